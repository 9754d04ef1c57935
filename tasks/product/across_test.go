package product_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// fused is an MLP whose down projection is dealt out by columns.
type fused struct {
	hidden, inner           int
	sms, consumers          int
	stage, stages, inFlight int
}

func (c fused) String() string {
	return fmt.Sprintf("%d·%d on %d SMs, %d warps, ring %d of %d", c.hidden, c.inner, c.sms, c.consumers, c.stages,
		c.stage)
}

// fusedWeights are its input.
type fusedWeights struct {
	gate, up, down, gain []half.BF16
	x                    []float32
}

func (c fused) weights(seed uint64) fusedWeights {
	rng := rig.Rand(seed)
	return fusedWeights{rig.Normals(rng, c.inner*c.hidden, 0.3), rig.Normals(rng, c.inner*c.hidden, 0.3),
		rig.Normals(rng, c.hidden*c.inner, 0.3), rig.Normals(rng, c.hidden, 1), rig.Floats(rng, c.hidden, 1)}
}

const fusedEps = 1e-5

// rig writes x, what it has read it from, and act, each SM its own elements.
func (c fused) rig(t testing.TB, w fusedWeights) *rig.Rig {
	r := rig.New(t, rig.Setup{SMs: c.sms, Consumers: c.consumers, Stage: c.stage, Stages: c.stages, InFlight: c.inFlight,
		Matrices: []pipeline.Matrix{
			{Name: "gate_up", Rows: 2 * c.inner, K: c.hidden}, {Name: "down", Rows: c.hidden, K: c.inner, From: "gate_up"}}})
	packed := make([]byte, r.Plan.PackedBytes)
	require.NoError(t, r.Plan.Pack(packed, 0, 0, pipeline.Permuted(append(append([]half.BF16(nil), w.gate...), w.up...),
		c.hidden, product.GateUpSource(c.inner))))
	require.NoError(t, r.Plan.Pack(packed, 0, 1, pipeline.Permuted(w.down, c.inner, nil)))
	weights := rig.In[dsl.B128](r, "w", packed, len(packed)/16)
	from, x, act := rig.In[dsl.F32](r, "from", rig.F32Bytes(w.x), c.hidden),
		rig.InOut[dsl.F32](r, "x", rig.F32Bytes(w.x), c.hidden),
		rig.Out[dsl.BF16](r, "act", c.inner)
	first := &product.GEMV{Name: "gate_up", M: &r.Plan.Layer[0],
		X:    dsl.Shared[dsl.BF16](r.K, "input", rig.Padded(c.hidden), dsl.Align(16)),
		Part: product.Partials{Buf: dsl.Shared[dsl.F32](r.K, "partials", product.PartialsLen(c.consumers), dsl.Align(16))}}
	own := dsl.Shared[dsl.BF16](r.K, "own", max(8, pipeline.AcrossColumns*r.Plan.Layer[0].MaxCount()), dsl.Align(16))
	second := &product.Across{Name: "down", M: &r.Plan.Layer[1], X: own, Y: x}
	norm := product.NormInput{N: c.hidden, Eps: fusedEps, X: product.FromBuf(from),
		Gain: rig.In[dsl.BF16](r, "gain", rig.BF16Bytes(w.gain), c.hidden), Dst: first.X}
	r.Body(func(cons *pipeline.Consumer) {
		share := r.Share(0)
		first.Consume(r.Env, cons, r.Ring, share, product.SwiGLUOwn(r.Env, own, share, norm.Emit(r.Env, r.K.U32(0))))
		r.Env.Sync()
		r.K.ForStep(r.Env.Tid, share.Count.MulC(pipeline.AcrossColumns), r.Env.Threads(), func(i dsl.Val[dsl.U32]) {
			act.Store(share.First.MulC(pipeline.AcrossColumns).Add(i), own.Load(i))
		})
		second.Consume(r.Env, cons, r.Ring, r.Share(1), r.K.U32(0))
	}, func(p *pipeline.Producer) {
		first.Produce(r.Env, p, r.Share(0), weights, r.From(0))
		second.Produce(r.Env, p, r.Share(1), weights, r.From(1))
	})
	return r
}

// check holds every seed against the formula: from the kernel's own act on only sums round.
func (c fused) check(t *testing.T) {
	w := c.weights(uint64(c.hidden*c.inner + c.sms))
	r := c.rig(t, w)
	program := r.Load()
	var acts []half.BF16
	for seed := range rig.Seeds() {
		got, err := r.Once(program, uint64(seed))
		require.NoError(t, err)
		y := reference.RMSNorm(rig.Wide32(w.x), w.gain, fusedEps)
		want := reference.SwiGLU(reference.MatVec(w.gate, y), reference.MatVec(w.up, y))
		act := rig.BF16s(got["act"])
		rig.Near(t, want, rig.Wide(act), rig.Scaled(want, 0x1p-6, 0.02*float64(c.hidden)/32), "act") // bf16 inputs and output
		if acts == nil {
			acts = act
		}
		require.Equal(t, acts, act, "act itself is the same in any run")
		sum := reference.MatVec(w.down, rig.Wide(act))
		for i := range sum {
			sum[i] += float64(w.x[i])
		}
		tolerance := rig.GemvTolerance(w.down, rig.Wide(act)) // and as many sums again as there are SMs
		for i := range tolerance {
			tolerance[i] = 2*tolerance[i] + 1e-6*math.Abs(float64(w.x[i]))
		}
		rig.Near(t, sum, rig.F32s(got["x"]), tolerance, "x of seed %d", seed)
	}
}

func TestDownByColumns(t *testing.T) {
	for _, c := range []fused{
		{hidden: 64, inner: 8, sms: 1, consumers: 1},
		{hidden: 64, inner: 104, sms: 3, consumers: 2},                          // 26 tiles: 9, 9 and 8
		{hidden: 64, inner: 16, sms: 6, consumers: 2},                           // 2 SMs without columns
		{hidden: 32, inner: 40, sms: 2, consumers: 2},                           // half a group of rows
		{hidden: 72, inner: 40, sms: 2, consumers: 1},                           // a group and 8 rows
		{hidden: 200, inner: 24, sms: 2, consumers: 4},                          // 4 groups, the last of 8 rows
		{hidden: 704, inner: 24, sms: 2, consumers: 4, stage: 2048, stages: 3},  // 11 groups: chunks of 4 and a tail of 3
		{hidden: 704, inner: 24, sms: 1, consumers: 8, stage: 17408},            // a tile a chunk, 11 groups over 8 warps
		{hidden: 256, inner: 24, sms: 1, consumers: 2, stage: 512, stages: 1},   // a group a chunk, one stage
		{hidden: 128, inner: 280, sms: 2, consumers: 3, stage: 1024, stages: 5}, // 35 tiles: batches of the first matrix
	} {
		t.Run(c.String(), c.check)
	}
}

// What comes in another order rounds otherwise: why this is for comparison only.
func TestSumsOfDownByColumnsDependOnTheRun(t *testing.T) {
	c := fused{hidden: 64, inner: 64, sms: 8, consumers: 2}
	w := c.weights(5)
	r := c.rig(t, w)
	program := r.Load()
	seen := map[string]bool{}
	for seed := range 8 {
		got, err := r.Once(program, uint64(seed))
		require.NoError(t, err)
		seen[string(got["x"])] = true
	}
	require.Greater(t, len(seen), 1)
}

// A NaN in one row of down reaches those that share its products: 8, 16 or 24 rows on, of 32.
func TestDownByColumnsOfNaN(t *testing.T) {
	c := fused{hidden: 128, inner: 24, sms: 2, consumers: 2}
	w := c.weights(6)
	w.down[77*c.inner+5] = 0x7fc0
	got, err := func() (map[string][]byte, error) { r := c.rig(t, w); return r.Once(r.Load(), 1) }()
	require.NoError(t, err)
	for row, v := range rig.F32s(got["x"]) {
		require.Equal(t, row/32 == 77/32 && row%8 == 77%8, math.IsNaN(v), "row %d", row)
	}
}

func TestWhatDownByColumnsRefuses(t *testing.T) {
	for want, spoil := range map[string]func(r *rig.Rig, a *product.Across){
		"down: the matrix is dealt out by rows, want columns": func(r *rig.Rig,
			a *product.Across) {
			a.M = &r.Plan.Layer[0]
		},
		"down: X has 8 elements, want 12: 4 a tile": func(r *rig.Rig,
			a *product.Across) {
			a.X = dsl.Shared[dsl.BF16](r.K, "short", 8)
		},
		"down: Y has 64 elements, want 2112": func(r *rig.Rig, a *product.Across) { a.Y = rig.Out[dsl.F32](r, "short", 64) },
		"down: 2112 rows in 2 chunks a tile are 264 sums a thread with 1 consumer warps, want 128 at most": func(r *rig.Rig,
			a *product.Across) {
			r.Env.Consumers = 1
		},
	} {
		r := rig.New(t, rig.Setup{Consumers: 4, Matrices: []pipeline.Matrix{{Name: "gate_up", Rows: 24, K: 64},
			{Name: "down", Rows: 2112, K: 12, From: "gate_up"}}, Stage: 16384, Stages: 2})
		a := &product.Across{Name: "down", M: &r.Plan.Layer[1], X: dsl.Shared[dsl.BF16](r.K, "own", 16),
			Y: rig.Out[dsl.F32](r, "y", 2112)}
		spoil(r, a)
		r.Body(func(c *pipeline.Consumer) { a.Consume(r.Env, c, r.Ring, r.Share(1), r.K.U32(0)) }, nil)
		require.Contains(t, r.Refused(), want)
	}
}

// sumsRig runs turns in which every SM reads the sums of the turn before, their rows' owners
// add to them, and all SMs add their parts, with one sync a turn or none. A row grows by
// 1 and by 1 + 2 + … of the SMs' parts.
func sumsRig(t *testing.T, turns int, syncWay bool) *rig.Rig {
	const n, sms = 128, 3
	r := rig.New(t, rig.Setup{SMs: sms, Consumers: 1})
	k, e := r.K, r.Env
	x, copied := rig.InOut[dsl.F32](r, "x", make([]byte, 3*4*n), 3*n), rig.Out[dsl.F32](r, "copy", n)
	seen, counter := rig.Out[dsl.F32](r, "seen", sms*n), rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
	r.Body(func(*pipeline.Consumer) {
		bar := grid.NewGridBarrier(e, counter, k.U32(0))
		read := func(turn dsl.Val[dsl.U32]) {
			v := product.Sums{X: x, N: n, Turn: turn}.Before()(e.Tid.MulC(4))
			seen.StoreN(e.CTA.MulC(n).Add(e.Tid.MulC(4)), v)
		}
		k.For(k.U32(0), k.U32(turns), func(turn dsl.Val[dsl.U32]) {
			sums := product.Sums{X: x, N: n, Turn: turn}
			read(turn)
			zero := func(dsl.Val[dsl.U32]) []dsl.Val[dsl.F32] { return slices.Repeat([]dsl.Val[dsl.F32]{k.F32(0)}, 4) }
			add := sums.AddResidual(e, product.Either(e, turn.EqC(0), zero, sums.Before()),
				func(row dsl.Val[dsl.U32], v []dsl.Val[dsl.F32]) { copied.StoreN(row, v) })
			k.If(e.Tid.RemC(sms).Eq(e.CTA), func() { add(e.Tid.MulC(4), slices.Repeat([]dsl.Val[dsl.F32]{k.F32(1)}, 4)) })
			for i := range 4 {
				dsl.ReduceAdd(x, sums.Now().Add(e.Tid.MulC(4)).AddC(i), dsl.Cast[dsl.F32](e.CTA.AddC(1)), dsl.Relaxed(dsl.GPUScope))
			}
			if syncWay {
				bar.Sync()
			}
		}, dsl.Unroll(1))
		read(k.U32(turns))
	}, nil)
	return r
}

func TestSumsInTurnsNeedOneSyncATurn(t *testing.T) {
	for turns := 1; turns <= 7; turns++ {
		r := sumsRig(t, turns, true)
		program := r.Load()
		for seed := range 8 {
			got, err := r.Once(program, uint64(seed))
			require.NoError(t, err)
			for i, v := range rig.F32s(got["seen"]) {
				require.EqualValues(t, turns*(1+1+2+3), v, "element %d after %d turns", i, turns)
			}
		}
	}
	r := sumsRig(t, 2, false)
	_, err := r.Once(r.Load(), 1)
	require.ErrorContains(t, err, "data race")
}
