package megakernel

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// VectorPhases are the phases whose output vector is passed in LL packets where vectors are. That of gate_up is with
// VectorsAll: it is the longest.
func VectorPhases() []string { return []string{phaseAttention, phaseO, phaseDown} }

// VectorsAll is SyncCounted of all vectors, gate_up's too. A grid barrier behind the last layer's gate_up orders what a
// step has written to memory; otherwise counts keep SMs that are ahead from writing packets anew that another one has
// yet to read.
const VectorsAll Sync = "all"

// VectorWays are the ways in which vectors are passed: in LL packets that are looked for behind a count of arrivals,
// with gate_up's output or without, or in memory behind a grid barrier. See counted for the default.
func VectorWays() []Sync { return []Sync{SyncCounted, VectorsAll, SyncBarrier} }

// maxActInPackets is the longest output of gate_up that is passed in LL packets by default: 56 KiB in packets, 28
// without.
const maxActInPackets = 14336

// ordersMore is whether a layer's barriers order more than the KV cache and gate_up's output: queries or partial states
// that go through memory.
func (o *Options) ordersMore() bool { return o.Queries != SyncWords || o.Merge != MergeWords }

// handsOn is whether a phase's output vector is passed in LL packets. One to which all SMs add
// is not.
func (o *Options) handsOn(phase string) bool {
	if phase == phaseGateUp {
		return o.Vectors == string(VectorsAll)
	}
	return o.counts() && slices.Contains(VectorPhases(), phase) && !o.mlp().summed(phase)
}

// packetPhases are the phases whose output vector is passed in LL packets.
func (o *Options) packetPhases() (list []string) {
	for _, phase := range []string{phaseAttention, phaseO, phaseGateUp, phaseDown} {
		if o.handsOn(phase) {
			list = append(list, phase)
		}
	}
	return list
}

// syncWay is how a phase's vector is passed.
func (o *Options) syncWay(phase string) string {
	if o.handsOn(phase) {
		return string(SyncCounted)
	}
	return gridBarrier
}

// counted is the way of vectors that are counted where no option says other. Steps that read little wait for syncs
// most: those of weights of 4 bits. Floats of 4 bits take longer in products and gained nothing; with zero points nvcc
// spills three times as much, and nothing was measured.
func (o *Options) counted(c *models.Config) Sync {
	other := func(f pipeline.Format) bool { return !f.Integers() || f.Bits() != 4 || f.E2M1() || f.Zeros() }
	if o.MLP == MLPFused || o.ordersMore() || c.Intermediate > maxActInPackets ||
		slices.ContainsFunc(o.layerFormats(), other) {
		return SyncCounted
	}
	return VectorsAll
}

// completeVectors chooses how vectors are passed, and refuses what cannot be.
func (o *Options) completeVectors(c *models.Config) error {
	if o.Vectors == "" {
		o.Vectors = string(SyncBarrier)
		if o.Tokens == 1 && !o.graph() {
			o.Vectors = string(o.counted(c))
		}
	}
	switch {
	case !slices.Contains(VectorWays(), Sync(o.Vectors)):
		return refuse("Vectors", "found %q, want %s", o.Vectors, plural.Or(VectorWays()))
	case !o.counts():
		return nil
	case o.Tokens > 1:
		return refuse("Vectors", "%q with %d query rows a step, want barrier", o.Vectors, o.Tokens)
	case o.graph():
		return refuse("Vectors", "%q in a graph of kernels, where a kernel's end is the sync; want barrier", o.Vectors)
	case o.handsOn(phaseGateUp) && o.MLP == MLPFused:
		return refuse("Vectors", "%q with a fused MLP, where gate_up passes no vector; want %s", o.Vectors, SyncCounted)
	case o.handsOn(phaseGateUp) && o.ordersMore():
		return refuse("Vectors", "%q with queries by %q and states merged by %q, which want a barrier a layer; want %s of both, or vectors %s",
			o.Vectors, o.Queries, o.Merge, SyncWords, SyncCounted)
	}
	return nil
}

// ResidualError is how far passing residual vectors from SM to SM moves an element at most, which attention or the MLP
// has made after of before.
func (mk *Kernel) ResidualError(before, after float64) float64 {
	switch {
	case !mk.Options.counts():
		return 0
	case mk.kept(): // what is added is passed
		return product.ResidualError * math.Abs(after-before)
	}
	return product.ResidualError * math.Abs(after)
}

// counts is whether vectors are passed in LL packets behind counts of arrivals, after which the flag is another.
func (o *Options) counts() bool {
	return slices.Contains([]Sync{SyncCounted, VectorsAll}, Sync(o.Vectors))
}

// BufferWords is the buffer of a phase's output vector where it is passed in LL packets.
func BufferWords(phase string) string {
	switch phase {
	case phaseAttention:
		phase = "attn"
	case phaseGateUp:
		phase = "act"
	}
	return phase + "_words"
}

// vectorWords are those buffers.
type vectorWords struct{ attention, o, act, down dsl.Buf[dsl.B128] }

func (mk *Kernel) declareVectors(k *dsl.Kernel, b *buffers) {
	c, o := &mk.Config, &mk.Options
	words := func(phase string, n int, of string) (w dsl.Buf[dsl.B128]) {
		if o.handsOn(phase) {
			w = dsl.Global[dsl.B128](k, BufferWords(phase), int64(n/4),
				bufDoc("[%d] packets of %s, four elements and a flag in each", n/4, of))
		}
		return w
	}
	b.vectorWords.attention = words(phaseAttention, c.Heads*c.HeadDim, "attention's output")
	b.vectorWords.o = words(phaseO, c.Hidden, "the residual vector behind attention")
	b.vectorWords.act = words(phaseGateUp, c.Intermediate, "silu(gate)·up")
	b.vectorWords.down = words(phaseDown, c.Hidden, "the residual vector behind the MLP")
}

// vectors are what phases pass to all SMs: the residual vector, and attention's output.
type vectors struct{ f *single }

// output returns attention's output in packets, nil where it is passed behind a barrier. The packets have the flag that
// was current before its last ago changes.
func (v *vectors) output(ago int) *product.VectorPackets {
	f, c := v.f, &v.f.mk.Config
	if f.mk.Options.handsOn(phaseAttention) {
		return &product.VectorPackets{LL: f.packets(ago), Buf: f.bufs.vectorWords.attention, N: c.Heads * c.HeadDim,
			What: "waits for attention's output, word %d"}
	}
	return nil
}

// act returns gate_up's output as output returns attention's.
func (v *vectors) act(ago int) *product.VectorPackets {
	if !v.f.mk.Options.handsOn(phaseGateUp) {
		return nil
	}
	return &product.VectorPackets{LL: v.f.packets(ago), Buf: v.f.bufs.vectorWords.act, N: v.f.mk.Config.Intermediate,
		What: "waits for gate_up's output, word %d"}
}

// handed returns the packets of the residual vector behind o or down. They have the flag that was current before its
// last ago changes.
func (v *vectors) handed(phase string, ago int) *product.VectorPackets {
	buf := v.f.bufs.vectorWords.o
	if phase == phaseDown {
		buf = v.f.bufs.vectorWords.down
	}
	return &product.VectorPackets{LL: v.f.packets(ago), Buf: buf, N: v.f.mk.Config.Hidden,
		What: "waits for the residual vector, word %d"}
}

// source is that vector for all consumers, right behind the phase.
func (v *vectors) source(phase string) product.Source {
	if v.f.mk.Options.handsOn(phase) {
		return v.handed(phase, v.f.mk.Options.flagsSince(phase,
			map[string]string{phaseO: phaseGateUp, phaseDown: phaseQKV}[phase])).Residual()
	}
	if phase == phaseO {
		return v.f.mlp.middle()
	}
	return product.FromBuf(v.f.bufs.x)
}

// some is that vector for a few elements, some changes of the flag later.
func (v *vectors) some(phase string, ago int) product.Vector {
	if v.f.mk.Options.handsOn(phase) {
		return v.handed(phase, ago).Vector(v.f.env)
	}
	return product.FromBuf(v.f.bufs.x)
}

func (v *vectors) embedding() product.Vector {
	return v.f.embedding().Row(v.f.env, v.f.token.Get())
}

// first is the residual vector before attention: the token's embedding in the first
// layer, so that no sync is needed to begin a step.
func (v *vectors) first(s attention.Step) product.Source {
	if v.f.mk.kept() {
		after := v.kept(s, models.RolePostMLP)
		return product.EitherSource(s.Layer.EqC(0), after.Begin(v.embedding()), v.plus(after, s.Layer, models.RolePostMLP))
	}
	return product.EitherSource(s.Layer.EqC(0), v.embedding(), v.before(s.Layer))
}

// before is the residual vector that a layer begins with, but for the first.
func (v *vectors) before(layer dsl.Val[dsl.U32]) product.Source {
	return v.f.mlp.before(v, layer)
}

// middle is the residual vector behind attention, last the one behind the last layer.
func (v *vectors) middle(s attention.Step) product.Source {
	if v.f.mk.kept() {
		return v.plus(v.kept(s, models.RolePostAttn), s.Layer, models.RolePostAttn)
	}
	return v.source(phaseO)
}

func (v *vectors) last() product.Source {
	layers := v.f.k.U32(v.f.mk.Config.Layers)
	if v.f.mk.kept() {
		return v.plus(v.kept(inLayer(attention.Step{}, layers), models.RolePostMLP), layers, models.RolePostMLP)
	}
	return v.before(layers)
}

// afterO and afterDown add a projection to the residual vector.
func (v *vectors) afterO(s attention.Step) product.Finisher {
	return v.f.mlp.afterO(v, s)
}

func (v *vectors) afterDown(s attention.Step) product.Finisher {
	return v.add(s, phaseDown, v.f.earlyOf(MatrixDown).Vector(func() product.Vector { return v.addedToInDown(s) }))
}

// addedToInO and addedToInDown are what o's and down's products are added to: the residual vector and the biases, or
// where the vector is kept in shared memory these alone.
func (v *vectors) addedToInO(s attention.Step) product.Vector {
	if v.f.mk.kept() {
		return v.biased(s, MatrixO, v.nothing(), 1)
	}
	return v.biased(s, MatrixO, v.oldInO(s), v.f.mk.kind().Residual)
}

func (v *vectors) addedToInDown(s attention.Step) product.Vector {
	if v.f.mk.kept() {
		return v.biased(s, MatrixDown, v.nothing(), 1)
	}
	return v.biased(s, MatrixDown, v.oldInDown(), v.f.mk.kind().Residual)
}

func (v *vectors) biased(s attention.Step, i int, to product.Vector, factor float64) product.Vector {
	return product.Plus(v.f.env, to, v.f.biasRows(s, i), factor)
}

func (v *vectors) nothing() product.Vector {
	return func(dsl.Val[dsl.U32]) []dsl.Val[dsl.F32] {
		return slices.Repeat([]dsl.Val[dsl.F32]{v.f.k.F32(0)}, 4)
	}
}

// oldInO and oldInDown are the residual vector that o's and down's products are added to.
func (v *vectors) oldInO(s attention.Step) product.Vector {
	return product.Either(v.f.env, s.Layer.EqC(0), v.embedding(),
		v.some(phaseDown, v.f.mk.Options.flagsSince(phaseDown, phaseO)))
}

func (v *vectors) oldInDown() product.Vector {
	return v.some(phaseO, v.f.mk.Options.flagsSince(phaseO, phaseDown))
}

func (v *vectors) add(s attention.Step, phase string, old product.Vector) product.Finisher {
	keep, factor := v.f.probeResidual(s, phase), v.f.mk.kind().Residual
	if v.f.mk.kept() {
		keep, factor = nil, 1
	}
	epilogue := product.AddResidual(v.f.bufs.x, old, keep...)
	if v.f.mk.Options.handsOn(phase) {
		epilogue = product.HandResidual(v.f.env, v.handed(phase, 0), old, keep...)
	}
	return product.Times(v.f.env, factor, epilogue)
}

// actAt is where a layer's act begins in the buffer.
func (f *single) actAt(s attention.Step) dsl.Val[dsl.U32] {
	if f.mk.Options.ordered(phaseDown, phaseGateUp) {
		return f.k.U32(0)
	}
	return s.Index.MulC(f.mk.Config.Layers).Add(s.Layer).AndC(1).MulC(f.mk.Config.Intermediate)
}
