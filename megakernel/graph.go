package megakernel

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
)

// kernelEnd is the sync between the kernels of a graph.
const kernelEnd = "end of the kernel"

// phaseHead is the phase after the last layer.
const phaseHead = "lm_head"

// BufferState is where a sequence stands, in StateWords words, with LaunchGraph only:
// the host writes it before a launch, the kernels change it from step to step.
const (
	BufferState = "state"
	StateWords  = 4
)

// The words of BufferState.
const (
	StatePos     = iota // position of the next step
	StateKnown          // tokens known at launch, at least StatePos+1; behind them the kernels choose
	StateRunning        // 1: steps count; 0, which an end token or the host's stop makes it: they change nothing any more
	stateUnused
)

// BufferFinished counts the SMs that have found their best logit; 0 before a launch.
const BufferFinished = "finished"

// ScalarLayer is the scalar of a graph's kernels that says in which layer they run.
const ScalarLayer = "layer"

// chainBuffers are what the kernels of a graph have beside the single one's.
type chainBuffers struct {
	state, finished dsl.Buf[dsl.U32]
	layer           dsl.Val[dsl.U32]
}

// declareChain declares them, and the scalars of a graph's kernels. Not every kernel
// uses all.
func (mk *Kernel) declareChain(k *dsl.Kernel, b *buffers) {
	b.state = dsl.Global[dsl.U32](k, BufferState, StateWords,
		bufDoc("position of the next step; tokens known; whether steps count"))
	b.finished = dsl.Global[dsl.U32](k, BufferFinished, 1, bufDoc("SMs that have found their best logit; 0 between steps"))
	b.layer = dsl.Optional(dsl.Scalar[dsl.U32](k, ScalarLayer, "the layer; 0 after the last one"))
	b.pages = dsl.Optional(dsl.Scalar[dsl.U32](k, ScalarPages, "pages a layer in kv"))
}

// phaseMerge is the phase that has neither weights nor KV to stream.
const phaseMerge = "merge"

// buildGraph makes a kernel of each phase, and the order in which a step launches them.
// The options say what was asked for until all are made.
func (mk *Kernel) buildGraph() error {
	mk.Graph = &ir.Graph{Dependent: mk.Options.Dependents != DependentsEnded, Repeat: ScalarSteps,
		Steps: mk.Options.GraphSteps}
	names := []string{"qkv", phaseAttention, phaseMerge, "o", "gate_up", "down"}
	if mk.Options.Merge != MergePhase {
		names = slices.DeleteFunc(names, func(n string) bool { return n == phaseMerge })
	}
	r := mk.request()
	r.Stages, r.InFlight, r.Throttles = 0, 0, nil
	var err error
	if mk.Plan, err = pipeline.New(r); err != nil {
		return err
	}
	most := &pipeline.Plan{} // the plan of the deepest ring
	for _, name := range append(slices.Clone(names), phaseHead) {
		c, err := newChained(mk, name)
		if err != nil {
			return fmt.Errorf("kernel of %s: %w", name, err)
		}
		c.assemble()
		k, err := c.k.Finish()
		if err != nil {
			return fmt.Errorf("kernel of %s: %w", name, err)
		}
		mk.Phases, mk.Graph.Kernels = append(mk.Phases, c.phase.Phase), append(mk.Graph.Kernels, k)
		if name != phaseMerge && c.mk.Plan.Stages > most.Stages {
			most = c.mk.Plan
		}
	}
	mk.Plan = most
	mk.Options.Stages, mk.Options.StageBytes, mk.Options.InFlight = most.Stages, most.StageBytes, most.InFlight
	mk.Options.Leads = pipeline.ThrottlesText(most.Throttles)
	mk.IR = mk.Graph.Kernels[0]
	for layer := range mk.Config.Layers {
		for i := range names {
			mk.Graph.Nodes = append(mk.Graph.Nodes, node(i, layer))
		}
	}
	mk.Graph.Nodes = append(mk.Graph.Nodes, node(len(names), 0))
	return nil
}

func node(kernel, layer int) ir.Node {
	return ir.Node{Kernel: kernel, Scalars: map[string]uint64{ScalarLayer: uint64(layer)}}
}

// phasePlan is the plan of a phase's kernel. The weights lie as in mk.Plan; the ring is
// as deep as fits beside what the phase needs, or as was asked for where that is less.
func (mk *Kernel) phasePlan(name string) (*pipeline.Plan, error) {
	o, r := &mk.Options, mk.request()
	r.StageBytes, r.Stages, r.InFlight, r.SharedLimit = mk.Plan.StageBytes, 0, 0, o.sharedLimit()
	leads := r.Throttles
	r.Throttles = nil
	for i := range r.Fixed {
		mk.resize(&r.Fixed[i], name)
	}
	if name == phaseMerge {
		return withoutRing(mk.Plan, r.Fixed), nil
	}
	p, err := pipeline.New(r)
	if err != nil {
		return nil, err
	}
	r.Stages, r.InFlight = p.Stages, p.InFlight
	if o.Stages > 0 {
		r.Stages = min(r.Stages, o.Stages)
	}
	if o.InFlight > 0 {
		r.InFlight = o.InFlight
	}
	r.InFlight = min(r.InFlight, r.Stages)
	r.Throttles = leads
	return pipeline.New(r)
}

// unusedRegion is how many bytes a region has that the phase does not use.
const unusedRegion = 16

// resize makes a region as long as the phase needs it.
func (mk *Kernel) resize(g *pipeline.Region, name string) {
	c := &mk.Config
	input := map[string]int{"qkv": c.Hidden, "o": c.Heads * c.HeadDim, "gate_up": c.Hidden, "down": c.Intermediate,
		phaseHead: c.Hidden}[name]
	switch {
	case g.Name == regionInput && name == phaseAttention:
		att := attention.Attention{Heads: c.Heads, KV: mk.KV}
		g.Bytes = 4 * att.ScratchLen(mk.Options.Consumers)
	case g.Name == regionInput && input > 0:
		of := mk.Options.inputColumns()
		g.Bytes = 2 * pipeline.CeilDiv(input, of) * of
	case g.Name == regionInput, g.Name == regionPartials && input == 0, g.Name == regionTail && name != phaseAttention,
		g.Name == regionNotes:
		g.Bytes = unusedRegion
	}
}

// withoutRing is a plan whose shared memory has these regions and no ring.
func withoutRing(of *pipeline.Plan, regions []pipeline.Region) *pipeline.Plan {
	p := *of
	p.Shared, p.SharedBytes = nil, 0
	for _, g := range regions {
		g.Offset = pipeline.CeilDiv(p.SharedBytes, g.Align) * g.Align
		p.SharedBytes = g.Offset + g.Bytes
		p.Shared = append(p.Shared, g)
	}
	return &p
}
