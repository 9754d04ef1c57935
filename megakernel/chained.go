package megakernel

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
)

// chained is the kernel of one phase of a graph under construction: the phase of the
// single kernel, between a wait for the kernel before and the kernel's end.
type chained struct {
	*single
	phase phase
	last  dsl.Buf[dsl.U32] // shared memory: whether this SM is the last one to end
}

// newChained begins the kernel of a phase.
func newChained(mk *Kernel, name string) (*chained, error) {
	own := *mk
	own.classes = make([]*attention.Variant, len(mk.specs))
	var err error
	if own.Plan, err = mk.phasePlan(name); err != nil {
		return nil, err
	}
	c, o, p := &mk.Config, &mk.Options, own.Plan
	ring, warps := fmt.Sprintf("ring of %d stages of %d bytes, %d copies in flight", p.Stages, p.StageBytes, p.InFlight),
		o.Consumers+1
	if name == phaseMerge {
		ring, warps = "no ring", o.Consumers
	}
	k := dsl.New("mkgen_"+name, dsl.Options{Warps: warps, Grid: o.SMs, PerSM: o.Resident, SharedLimit: o.sharedLimit(),
		Doc: []string{
			fmt.Sprintf("Phase %s of a decode step of %s: %d layers, hidden %d, %d query and %d KV heads of %d, intermediate %d, vocabulary %d.",
				name, c.Name, c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.Vocab),
			fmt.Sprintf("%d CTAs; %s; KV pages of %d tokens, %d KV splits.", o.SMs, ring, o.Page, o.Splits)}})
	b := &builder{mk: &own, k: k, bufs: own.declare(k)}
	own.instantiate(b.bufs)
	if name != phaseMerge {
		b.ring = pipeline.NewRing(k, p, o.Consumers)
	}
	f := &chained{single: newSingle(b)}
	f.declareShared()
	all := f.phases()
	phases := slices.Concat(all.layer, all.after)
	i := slices.IndexFunc(phases, func(p phase) bool { return p.Name == name })
	if i < 0 {
		panic("BUG: the single kernel has no phase " + name)
	}
	f.phase = phases[i]
	f.phase.Sync = kernelEnd
	return f, nil
}

// declareShared declares the shared memory that the single kernel's frame has, too, and
// what templates work on.
func (f *chained) declareShared() {
	k, o, p := f.k, &f.mk.Options, f.mk.Plan
	at := func(name string) dsl.BufOpt { return dsl.PlaceAt(p.Region(name).Offset) }
	words := func(name string) int { return p.Region(name).Bytes / 4 }
	f.last = dsl.Shared[dsl.U32](k, regionRunning, 1, at(regionRunning), dsl.Doc("whether this SM is the last one to end"))
	f.own.row = dsl.Shared[dsl.U32](k, regionOwn, words(regionOwn), at(regionOwn),
		dsl.Doc("this SM's row of the plan table"))
	scratch := dsl.Shared[dsl.F32](k, regionScratch, words(regionScratch), at(regionScratch),
		dsl.Doc("one a consumer warp"))
	f.indices = dsl.Shared[dsl.U32](k, regionIndex, words(regionIndex), at(regionIndex), dsl.Doc("one a consumer warp"))
	f.env = grid.NewEnv(k, o.SMs, o.Consumers, scratch)
}

// assemble builds the kernel's body. The producer fills the ring at once: weights, the
// plan and the page table nobody writes, and cached KV, the position and its token no
// kernel of the same step does, but for its last one at the end. The consumers wait for
// the kernel before, when they have read what no kernel of the step writes either: a norm's
// gains and RoPE's angles.
func (f *chained) assemble() {
	k, e := f.k, f.env
	streams := f.phase.produce != nil
	if at := f.mk.Options.Dependents; at == DependentsStart || at == DependentsStreamed && !streams {
		k.If(e.Tid.EqC(0), k.LaunchDependents)
	}
	roles := []dsl.Role{{Name: "consumers", First: 0, End: e.Consumers, Body: f.consumers}}
	if streams {
		k.Region("prologue", func() {
			k.If(e.Tid.EqC(0), f.ring.Init)
			if f.phase.Matrix != "" {
				f.own.fetch(e, f.bufs.plan)
			}
			k.Barrier()
		})
		roles = append(roles, dsl.Role{Name: "producer", First: e.Consumers, End: e.Consumers + 1, Body: f.producer})
	}
	k.Roles(roles...)
}

func (f *chained) consumers() {
	k, e, at := f.k, f.env, f.mk.Options.Dependents
	if f.ring != nil {
		f.cons = f.ring.Consumer()
	}
	step := f.now()
	if f.phase.Matrix == f.mk.matrix(MatrixQKV).Name || f.phase.Matrix == f.mk.matrix(MatrixO).Name {
		f.token = dsl.NewVar(k.U32(0), "token") // the embedding is the residual vector of layer 0
		k.If(step.Layer.EqC(0), func() {
			f.token.Set(dsl.Uniform(f.bufs.tokens.Load(step.Pos), dsl.GPUScope))
		})
	}
	if f.phase.early != nil || f.phase.residual != nil {
		f.startEarly()
	}
	if f.phase.early != nil {
		f.phase.early(step)
	}
	if at != DependentsEnded {
		k.WaitForPrior()
	}
	if at == DependentsWaited {
		k.If(e.Tid.EqC(0), k.LaunchDependents)
	}
	k.Region(f.phase.Name, func() {
		if f.phase.residual != nil {
			f.phase.residual(step)
		}
		f.phase.consume(step)
	})
	if f.phase.Name == phaseHead {
		f.end(step.Pos)
	}
}

func (f *chained) producer() {
	k := f.k
	f.prod = f.ring.Producer()
	step := attention.Step{Layer: f.bufs.layer} // weights depend on no more
	if f.phase.Matrix == "" {
		step = f.now()
	}
	k.Region(f.phase.Name, func() { f.phase.produce(step) })
	if f.mk.Options.Dependents == DependentsStreamed {
		k.If(f.env.Lane.EqC(0), k.LaunchDependents)
	}
	f.prod.Finish()
}

// now is the step in the launch's layer.
func (f *chained) now() attention.Step {
	f.bufs.pos = dsl.Optional(dsl.Uniform(f.bufs.state.Load(dsl.At(StatePos)), dsl.GPUScope))
	s := f.step(f.k.U32(0))
	dsl.Optional(s.Cached)
	return inLayer(s, f.bufs.layer)
}

// end ends the step, in the SM that is the last to have found its best logit: it
// chooses the token, where the next one is not known, and moves on.
func (f *chained) end(pos dsl.Val[dsl.U32]) {
	k, e, bufs := f.k, f.env, f.bufs
	k.Region("choose", func() {
		k.If(e.Tid.EqC(0), func() { // which has stored this SM's best
			before := dsl.AtomicAdd(bufs.finished, dsl.At(0), k.U32(1), dsl.AcqRel(dsl.GPUScope))
			last := before.EqC(e.Grid - 1)
			// for the next step, behind this kernel's end
			k.If(last, func() { bufs.finished.Store(dsl.At(0), k.U32(0), dsl.Relaxed(dsl.GPUScope)) })
			f.last.Store(dsl.At(0), dsl.Select(last, k.U32(1), k.U32(0)))
		})
		e.Sync()
		k.If(dsl.Uniform(f.last.Load(dsl.At(0)), dsl.CTAScope).NeC(0), func() {
			chosen := f.argmax.Choose(e)
			k.If(e.Tid.EqC(0), func() {
				k.If(bufs.state.Load(dsl.At(StateRunning)).NeC(0), func() { f.moveOn(pos.AddC(1).Named("next"), chosen) })
			})
		})
	})
}

// moveOn makes next the position, in one thread. The token there is the chosen one
// unless it is known.
func (f *chained) moveOn(next, chosen dsl.Val[dsl.U32]) {
	k, bufs := f.k, f.bufs
	running := dsl.NewVar(k.U32(1), "running")
	k.If(bufs.stop.Load(dsl.At(0), dsl.Relaxed(dsl.SysScope)).NeC(0), func() { running.Set(k.U32(0)) })
	k.If(next.Ge(bufs.state.Load(dsl.At(StateKnown))), func() {
		bufs.tokens.Store(next, chosen)
		bufs.times.Store(next, dsl.Cast[dsl.U32](k.GlobalTimer()), dsl.Relaxed(dsl.SysScope))
		bufs.stream.Store(next, chosen, dsl.Relaxed(dsl.SysScope))
		for i := range MaxEnds {
			k.If(chosen.Eq(bufs.ends.Load(dsl.At(i))), func() { running.Set(k.U32(0)) })
		}
	})
	bufs.state.Store(dsl.At(StatePos), next)
	bufs.state.Store(dsl.At(StateRunning), running.Get())
	bufs.progress.Store(dsl.At(0), next, dsl.Relaxed(dsl.SysScope))
}
