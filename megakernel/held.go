package megakernel

import (
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// MaxHeld is the most that Options.Held can be.
const MaxHeld = product.MaxPrefetch

// completeHeld refuses what Held cannot be. Several rows have their input beside each
// chunk, and a kernel of a graph is launched into the wait itself.
func (o *Options) completeHeld() error {
	switch {
	case o.Held < HeldNone || o.Held > MaxHeld:
		return refuse("Held", "%d chunks, want 0 to %d", o.Held, MaxHeld)
	case o.Held > 0 && o.Tokens > 1:
		return refuse("Held", "%s in registers with %d query rows a step, want one row", plural.Of(o.Held, "chunk"), o.Tokens)
	case o.Held > 0 && o.graph():
		return refuse("Held", "%s in registers in a graph of kernels, want one kernel", plural.Of(o.Held, "chunk"))
	}
	return nil
}

// registersBesideHeld are those of a thread that chunks held leave to the rest at least.
const registersBesideHeld = 32

// The default of Held, and of the registers of a thread that each takes at most.
const (
	defaultHeld          = 4
	defaultHeldRegisters = 16
)

// mostHiddenBesideMore is the longest hidden state beside whose words, which a thread polls
// all at once, it holds a chunk more: with 4096 that is faster, with 8192 nvcc would spill 516
// bytes. Between them nothing was looked at.
const mostHiddenBesideMore = 4096

// chooseHeld chooses how many chunks are held, if that was left open: the default, one more
// where many copies are in flight with leads, fewer where they take more registers, and none
// where consumers have few registers anyway. Beside fewer warps a thread has more registers, for one more in bf16.
func (mk *Kernel) chooseHeld() {
	o := &mk.Options
	if o.Held != 0 {
		return
	}
	if o.Held = HeldNone; o.Tokens == 1 && threadRegisters(o.Consumers) >= ampleRegisters {
		want, more := defaultHeld, 0
		if mk.Plan.InFlight == manyCopies && len(mk.Plan.Throttles) > 0 && mk.Config.Hidden <= mostHiddenBesideMore {
			want++
			if o.Weights == pipeline.FormatBF16 { // others are widened, in registers
				more = threadRegisters(o.Consumers) - ampleRegisters
			}
		}
		room := want*defaultHeldRegisters + more
		if n := min(want, room/product.PrefetchRegisters(mk.Plan, o.Consumers)); n > 0 {
			o.Held = n
		}
	}
}

// MostHeld is how many chunks of a stage's bytes n consumer warps can hold at most, 0
// to MaxHeld: a thread has registers for no more.
func MostHeld(stageBytes, consumers int) int {
	return min(MaxHeld, registersForHeld(consumers)/product.StageRegisters(stageBytes, consumers))
}

// registersForHeld are those of a thread that chunks held can take beside n consumer
// warps.
func registersForHeld(consumers int) int { return threadRegisters(consumers) - registersBesideHeld }

// checkHeld refuses more chunks than a thread has registers for.
func (mk *Kernel) checkHeld() error {
	o, each := &mk.Options, product.PrefetchRegisters(mk.Plan, mk.Options.Consumers)
	if most := min(MaxHeld, registersForHeld(o.Consumers)/each); o.Held > most {
		return refuse("Held", "%s of %d bytes, %d registers of a thread each, want at most %d: beside %s a thread has %d registers for them",
			plural.Of(o.Held, "chunk"), o.StageBytes, each, most, plural.Of(o.Consumers, "consumer warp"),
			registersForHeld(o.Consumers))
	}
	return nil
}

// reportHeld says what is held.
func (mk *Kernel) reportHeld(r *report) {
	o := &mk.Options
	if o.Held > 0 {
		r.text("While consumers wait for a product's input they hold its first %s in registers, %d of a thread.",
			firstChunks(o.Held), o.Held*product.PrefetchRegisters(mk.Plan, o.Consumers))
	}
}

func firstChunks(n int) string {
	if n == 1 {
		return "chunk"
	}
	return plural.Of(n, "chunk")
}

// held is where chunks are held, or nil.
func (mk *Kernel) held() *product.RegisterPrefetch {
	if mk.Options.Held <= 0 {
		return nil
	}
	return &product.RegisterPrefetch{Chunks: mk.Options.Held,
		Registers: product.PrefetchRegisters(mk.Plan, mk.Options.Consumers)}
}

// workAhead makes every phase's sync do what the phase behind it can without its input:
// behind a layer's last one is the next layer's first, or the final phase where that runs.
// What a step begins with does it itself, see firstAhead: a step that does not run holds
// nothing.
func (b *builder) workAhead() {
	last := len(b.layer) - 1
	for i := range last {
		b.layer[i].meanwhile = b.aheadOf(b.layer[i+1])
	}
	first, final := b.aheadOf(b.layer[0]), b.aheadOf(b.after[0])
	if first == nil || final == nil {
		return
	}
	b.layer[last].meanwhile = func(s attention.Step) {
		next := inLayer(s, s.Layer.AddC(1))
		b.k.IfElse(next.Layer.LtC(b.mk.Config.Layers), func() { first(next) }, func() {
			b.k.IfElse(b.flow.wanted(s), func() { final(s) }, func() { b.held.Forget(b.env) })
		})
	}
}

// aheadOf is what a phase does before its input is there, in all consumer warps; nil where
// there is nothing to do.
func (b *builder) aheadOf(p phase) func(s attention.Step) {
	if p.early == nil && p.residual == nil && p.hold == nil {
		return nil
	}
	return func(s attention.Step) {
		b.cons.Lost = b.lost(FaultLostRelease, p.Name)
		if p.early != nil || p.residual != nil {
			b.k.Region("read ahead of "+p.Name, func() {
				for _, read := range []func(attention.Step){p.early, p.residual} {
					if read != nil {
						read(s)
					}
				}
			})
		}
		if p.hold != nil {
			b.k.Region("chunks held for "+p.Name, func() { p.hold(s) })
		}
	}
}

// firstAhead is that of a step's first phase, before no sync.
func (b *builder) firstAhead(s attention.Step) {
	if ahead := b.aheadOf(b.layer[0]); ahead != nil {
		ahead(inLayer(s, b.k.U32(0)))
	}
}
