package megakernel

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// Kernel is one model's decode step as one kernel, with everything a host needs
// to run it.
type Kernel struct {
	Config  models.Config
	arch    models.Arch // Config's mathematics
	Options Options
	Plan    *pipeline.Plan
	KV      attention.KVLayout
	idle    int                  // bytes of zeros in shared memory, see idleBytes
	IR      *ir.Kernel           // with LaunchGraph the first of Graph's
	Graph   *ir.Graph            // the step's kernels; nil with LaunchSingle
	Phases  []Phase              // what runs between two syncs, in order
	specs   []attentionSpec      // classes of layers, which differ in their attention
	classes []*attention.Variant // theirs, with the kernel's buffers; nil is plain
	pattern []int                // the class of layers in turn
	Sites   []pipeline.Site      // the waits that a launch can be given up at; none with NoWatchdog
	Traced  []pipeline.TraceSite // what spans of a trace are of; none without Options.Trace
}

// Phase is a part of the step that ends in a sync to all SMs.
type Phase struct {
	Name     string
	PerLayer bool     // runs once a layer; else once a step
	Ops      []string // what it computes, in order
	Matrix   string   // the weights it streams, if any
	Sync     string   // how its output reaches the next phase
	Planned  bool     // runs only where a launch's plan has work for it
}

// The matrices of a plan, by index: Layer of every layer, Final after the last.
const (
	MatrixQKV = iota
	MatrixO
	MatrixGateUp
	MatrixDown
	layerMatrices
)

// Names of the shared-memory regions beside the ring.
const (
	regionInput = "input"
	regionUnits = "units"

	regionInputSums = "input_sums"
	regionPartials  = "partials"
	regionScratch   = "scratch"
	regionIndex     = "scratch_index"
	regionTail      = "tail"
	regionStepReady = "step_ready"
	regionStepAck   = "step_ack"
	regionRunning   = "running"
	regionLeaving   = "leaving"
	regionNotes     = "notes"
	regionOwn       = "own"
)

// Build plans and assembles the kernel of a model. It refuses, with what was
// found and what is wanted, whatever the templates or the hardware cannot do; an
// option outside its range is an *OptionError.
func Build(c models.Config, o Options) (*Kernel, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("model %s: %w", c.Name, err)
	}
	if err := check(&c); err != nil {
		return nil, fmt.Errorf("model %s: %w", c.Name, err)
	}
	o, err := o.complete(&c)
	if err != nil {
		return nil, err
	}
	if err := inputFits(&c, o.SharedLimit); err != nil {
		return nil, fmt.Errorf("model %s: %w", c.Name, err)
	}
	mk := &Kernel{Config: c, Options: o, arch: c.Arch()}
	if mk.specs, mk.pattern, err = parseAttention(o.Attention, c.Layers); err != nil {
		panic("BUG: " + err.Error())
	}
	if o.Fault == FaultAttention || o.Fault == FaultWindow {
		for i, s := range mk.specs {
			mk.specs[i] = s.spoil(o.Fault)
		}
	}
	mk.classes = make([]*attention.Variant, len(mk.specs))
	mk.KV = kvLayout(&c, &o)
	if o.graph() {
		if err := mk.buildGraph(); err != nil {
			return nil, err
		}
		return mk, nil
	}
	if err := mk.plan(); err != nil {
		return nil, err
	}
	mk.Options.Stages, mk.Options.StageBytes, mk.Options.InFlight = mk.Plan.Stages, mk.Plan.StageBytes, mk.Plan.InFlight
	mk.Options.Leads = pipeline.ThrottlesText(mk.Plan.Throttles)
	mk.chooseHeld()
	if err := mk.checkHeld(); err != nil {
		return nil, err
	}
	b := newBuilder(mk)
	b.assemble()
	if mk.IR, err = b.k.Finish(); err != nil {
		return nil, err
	}
	return mk, nil
}

// Kernels are the kernels of a step: one, or those of Graph.
func (mk *Kernel) Kernels() []*ir.Kernel {
	if mk.Graph != nil {
		return mk.Graph.Kernels
	}
	return []*ir.Kernel{mk.IR}
}

// layerShapes are the matrices of a layer as the planner is told of them, by their numbers.
func (mk *Kernel) layerShapes() []pipeline.Matrix {
	c, o := &mk.Config, &mk.Options
	qRows, kvRows := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return []pipeline.Matrix{
		MatrixQKV:    {Name: "qkv", Rows: qRows + 2*kvRows, K: c.Hidden, Format: o.Weights.For("qkv")},
		MatrixO:      {Name: "o", Rows: c.Hidden, K: qRows, Format: o.Weights.For("o")},
		MatrixGateUp: {Name: "gate_up", Rows: 2 * c.Intermediate, K: c.Hidden, Format: o.Weights.For("gate_up")},
		MatrixDown: {Name: "down", Rows: c.Hidden, K: c.Intermediate, From: o.mlp().columnsOf(),
			Format: o.Weights.For("down")},
	}
}

// headShape is the LM head.
func (mk *Kernel) headShape() pipeline.Matrix {
	return pipeline.Matrix{Name: "lm_head", Rows: mk.Config.Vocab, K: mk.Config.Hidden, Format: mk.Options.Head}
}

// request is what the planner is asked for.
func (mk *Kernel) request() pipeline.Request {
	c, o := &mk.Config, &mk.Options
	leads, err := pipeline.ParseThrottles(o.Leads)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	own, batch, indices := mk.singleRegions, 0, o.Consumers
	if mk.Ragged() {
		pad := product.ColumnsPadded(o.Tokens)
		own, batch = mk.raggedRegions, product.DefaultBatchTiles(pad, o.layerFormats())
		indices = product.ColumnSumsLen(o.Consumers, pad)
	}
	return pipeline.Request{
		SMs: o.SMs, Layers: c.Layers,
		Layer: mk.layerShapes(), Final: []pipeline.Matrix{mk.headShape()},
		StageBytes: o.StageBytes, Stages: o.Stages, InFlight: o.InFlight, Throttles: leads,
		SharedLimit:  pipeline.TracedLimit(o.SharedLimit, o.Trace),
		KVTokenBytes: mk.KV.TokenBytes(),
		BatchTiles:   batch,
		BatchWide:    product.BatchWide(o.Weights, o.Tokens),
		Fixed: append(own(), []pipeline.Region{
			{Name: regionStepReady, Bytes: 8, Align: 8},
			{Name: regionStepAck, Bytes: 8, Align: 8},
			{Name: regionRunning, Bytes: 4, Align: 4},
			{Name: regionOwn, Bytes: 4 * planWords, Align: 16},
			{Name: regionScratch, Bytes: 4 * o.Consumers, Align: 16},
			{Name: regionIndex, Bytes: 4 * indices, Align: 16},
			{Name: regionLeaving, Bytes: 4, Align: 4},
			{Name: regionNotes, Bytes: 4 * pipeline.NoteWords * o.warps(), Align: 16},
		}...),
	}
}

// kvTokensPerStage is the largest power of two of tokens a stage holds.
func kvTokensPerStage(p *pipeline.Plan) int {
	n := 16
	for 2*n <= p.KVTokensPerStage {
		n *= 2
	}
	return n
}

// ChunkTokens is how many cached tokens of a KV head one copy brings at most, a
// power of two; a head's last chunk may hold fewer.
func (mk *Kernel) ChunkTokens() int { return kvTokensPerStage(mk.Plan) }

// The scalars of the params block.
const (
	ScalarPos   = "pos"   // position of the first step
	ScalarSteps = "steps" // steps to run at most, at least 1
	ScalarKnown = "known" // tokens known at launch, at least pos+1
	ScalarPages = "pages" // pages a layer of the KV cache
)

// MaxEnds is the most end tokens a kernel compares with.
const MaxEnds = 8

// Barriers is how often all SMs meet in a step that chooses a token: at grid barriers, and
// to count arrivals (SyncCounted). They share a counter.
func (mk *Kernel) Barriers() int {
	n := 0
	for _, p := range mk.Phases {
		switch {
		case p.Sync != gridBarrier && p.Sync != string(SyncCounted):
		case p.PerLayer:
			n += mk.Config.Layers
		default:
			n++
		}
	}
	return n
}

func bufDoc(format string, args ...any) dsl.BufOpt { return dsl.Doc(fmt.Sprintf(format, args...)) }
