package product_test

import (
	"fmt"
	"math"
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

func TestEmbeddingCopiesTheTokensRowExactly(t *testing.T) {
	for _, c := range []struct{ n, vocab, token, sms, consumers int }{
		{8, 3, 0, 1, 1}, {8, 3, 2, 4, 1}, {60, 5, 4, 1, 1}, {96, 7, 3, 1, 4}, {352, 4, 1, 3, 2}, {4, 1, 0, 2, 2},
		{1056, 3, 2, 2, 8},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			r := rig.New(t, rig.Setup{SMs: c.sms, Consumers: c.consumers})
			table := rig.Normals(rig.Rand(1), c.vocab*c.n, 1)
			table[c.token*c.n] = 0xff80 // −inf passes through
			e := product.Embedding{N: c.n, Vocab: c.vocab, Table: rig.In[dsl.BF16](r, "table", rig.BF16Bytes(table), len(table))}
			x := rig.Out[dsl.F32](r, "x", c.n)
			token := r.Scalar("token", uint32(c.token))
			r.Body(func(*pipeline.Consumer) { copyVector(r, e.Row(r.Env, token), x) }, nil)
			require.Equal(t, reference.Embedding(table, c.n, c.token), rig.F32s(r.Run()["x"]))
		})
	}
}

// The LM head's plan has padded rows and columns, and SMs that own several tiles or
// none; a matrix lies before it in the buffer.
func TestPackedEmbeddingIsTheRowOfTheLMHead(t *testing.T) {
	for _, c := range []struct{ n, vocab, token, sms, batch int }{
		{8, 3, 0, 1, 0}, {8, 3, 2, 4, 0}, {60, 43, 42, 1, 0}, {60, 43, 21, 5, 0}, {96, 24, 8, 3, 0}, {352, 17, 16, 2, 0},
		{4, 1, 0, 2, 0}, {1056, 33, 31, 3, 0},
		{8, 3, 2, 4, 3}, {60, 43, 42, 1, 4}, {60, 43, 21, 5, 1}, {60, 43, 0, 5, 2}, {96, 24, 8, 3, 5}, {352, 17, 16, 2, 2},
		{4, 1, 0, 2, 1},
		{1056, 33, 31, 3, 2}, {1056, 90, 5, 3, 3}, {1056, 90, 30, 3, 3}, {1056, 90, 60, 3, 3}, {1056, 90, 89, 3, 3},
		{1056, 90, 77, 3, 3},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			r := rig.New(t, rig.Setup{SMs: c.sms})
			p, err := pipeline.New(pipeline.Request{SMs: c.sms, Layers: 2, SharedLimit: 65536, StageBytes: 2048 + 512,
				BatchTiles: c.batch, Layer: []pipeline.Matrix{{Name: "w", Rows: 20, K: 40}},
				Final: []pipeline.Matrix{{Name: "head", Rows: c.vocab, K: c.n}}})
			require.NoError(t, err)
			table := rig.Normals(rig.Rand(1), c.vocab*c.n, 1)
			packed := make([]byte, p.PackedBytes)
			start := 2 * p.LayerBytes
			require.NoError(t, p.Pack(packed[start:], pipeline.FinalLayer, 0, pipeline.Permuted(table, c.n, nil)))
			e := product.PackedEmbedding{M: &p.Final[0], Weights: rig.In[dsl.B128](r, "weights", packed, len(packed)/16),
				Start: start}
			x := rig.Out[dsl.F32](r, "x", c.n)
			token := r.Scalar("token", uint32(c.token))
			r.Body(func(*pipeline.Consumer) { copyVector(r, e.Row(r.Env, token), x) }, nil)
			require.Equal(t, reference.Embedding(table, c.n, c.token), rig.F32s(r.Run()["x"]))
		})
	}
}

// copyVector writes a vector to a buffer, in CTA 0.
func copyVector(r *rig.Rig, v product.Vector, x dsl.Buf[dsl.F32]) {
	r.K.If(r.Env.CTA.EqC(0), func() {
		r.K.ForStep(r.Env.Tid, r.K.U32(int(x.Len())/4), r.Env.Threads(), func(i dsl.Val[dsl.U32]) {
			at := i.MulC(4)
			x.StoreN(at, v(at))
		})
	})
}

func TestEmbeddingOfATokenOutsideTheVocabularyIsReported(t *testing.T) {
	r := rig.New(t, rig.Setup{})
	e := product.Embedding{N: 8, Vocab: 3, Table: rig.In[dsl.BF16](r, "table", make([]byte, 48), 24)}
	x := rig.Out[dsl.F32](r, "x", 8)
	token := r.Scalar("token", 3)
	r.Body(func(*pipeline.Consumer) { copyVector(r, e.Row(r.Env, token), x) }, nil)
	_, err := r.Once(r.Load(), 0)
	require.ErrorContains(t, err, "assertion failed: embedding: token is not below the vocabulary")
	require.ErrorContains(t, err, "product/vector.go:")
}

// dump writes a staged input and the scale of every CTA to global memory.
func dump(r *rig.Rig, dst dsl.Buf[dsl.BF16], to dsl.Buf[dsl.BF16], n int) {
	r.K.If(r.Env.CTA.EqC(0), func() {
		r.K.ForStep(r.Env.Tid, r.K.U32(n), r.Env.Threads(), func(i dsl.Val[dsl.U32]) { to.Store(i, dst.Load(i)) })
	})
}

// inOrder is a staged input in the order of its elements.
func inOrder(staged []half.BF16) []half.BF16 {
	out := make([]half.BF16, len(staged))
	for i := range out {
		out[i] = staged[2*product.InputPair(i/2)+i%2]
	}
	return out
}

func TestNormInput(t *testing.T) {
	for _, c := range []struct {
		n, consumers, sms int
		scale             float64
	}{
		{4, 1, 1, 1}, {32, 1, 1, 1}, {36, 2, 2, 1}, {96, 1, 1, 1}, {100, 4, 1, 1}, {128, 1, 1, 1}, {352, 3, 1, 1},
		{1056, 8, 2, 1},
		{96, 2, 1, 0}, {96, 2, 1, 1e-4}, {96, 2, 1, 1e15}, {1020, 8, 1, 100},
		{384, 1, 1, 1}, {512, 1, 1, 1}, {640, 1, 1, 1}, // 3, 4 and 5 fours a thread: the gains of the last come late
	} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprint(c, " early ", early), func(t *testing.T) {
				rng := rig.Rand(uint64(c.n))
				const eps = 1e-5
				x, gains := rig.Floats(rng, c.n, c.scale), rig.Normals(rng, 3*c.n, 1)
				r := rig.New(t, rig.Setup{SMs: c.sms, Consumers: c.consumers})
				norm := product.NormInput{N: c.n, Eps: eps, X: product.FromBuf(rig.In[dsl.F32](r, "x", rig.F32Bytes(x), c.n)),
					Gain: rig.In[dsl.BF16](r, "gains", rig.BF16Bytes(gains), 3*c.n),
					Dst:  dsl.Shared[dsl.BF16](r.K, "input", rig.Padded(c.n), dsl.Align(16))}
				staged, scale := rig.Out[dsl.BF16](r, "staged", rig.Padded(c.n)),
					rig.Out[dsl.F32](r, "scale", c.sms*r.Env.Threads())
				which := r.Scalar("norm", 1)
				r.Body(func(*pipeline.Consumer) {
					if early {
						norm.Early = &product.Gains{N: c.n, Gain: norm.Gain}
						norm.Early.Start(r.Env)
						norm.Early.Fetch(r.Env, which, nil)
					}
					s := norm.Emit(r.Env, which)
					dump(r, norm.Dst, staged, rig.Padded(c.n))
					scale.Store(r.Env.CTA.MulC(r.Env.Threads()).Add(r.Env.Tid), s())
				}, nil)
				got := r.Run()
				gain := gains[c.n : 2*c.n]
				// Every thread has the same scale: a sum of N squares in at most N/4/threads+10
				// roundings of 2⁻²⁴, and rsqrt.approx's 2⁻²².
				scales := rig.F32s(got["scale"])
				mean := 0.0
				for _, v := range x {
					mean += float64(v) * float64(v) / float64(c.n)
				}
				want := 1 / math.Sqrt(mean+eps)
				for _, s := range scales {
					require.Equal(t, scales[0], s)
					require.InEpsilon(t, want, s, 0x1p-20)
				}
				// One rounding to bf16: the product in f32 (2⁻²⁴) can turn a tie over, no more.
				full := rig.Wide(inOrder(rig.BF16s(got["staged"])))
				for i, v := range full[c.n:] {
					require.Zero(t, v, "padding element %d", c.n+i)
				}
				ref := reference.RMSNorm(rig.Wide32(x), gain, eps)
				for i := range ref {
					full[i] *= scales[0]
				}
				rig.Near(t, ref, full[:c.n], rig.Scaled(ref, 0x1.01p-8, 1e-30), "%v", c)
			})
		}
	}
}

func TestPlainInputCopiesAndPads(t *testing.T) {
	for _, c := range []struct{ n, consumers int }{{8, 1}, {32, 1}, {40, 2}, {96, 4}, {264, 1}, {512, 2}, {1056, 8},
		{1064, 3}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			x := rig.Normals(rig.Rand(uint64(c.n)), c.n, 1)
			x[c.n-1] = 0x7fc0 // bits pass through, whatever they mean
			r := rig.New(t, rig.Setup{Consumers: c.consumers})
			p := product.PlainInput{N: c.n, X: rig.In[dsl.BF16](r, "x", rig.BF16Bytes(x), c.n),
				Dst: dsl.Shared[dsl.BF16](r.K, "input", rig.Padded(c.n), dsl.Align(16))}
			staged := rig.Out[dsl.BF16](r, "staged", rig.Padded(c.n))
			r.Body(func(*pipeline.Consumer) {
				p.Emit(r.Env)
				dump(r, p.Dst, staged, rig.Padded(c.n))
			}, nil)
			require.Equal(t, append(x, make([]half.BF16, rig.Padded(c.n)-c.n)...), inOrder(rig.BF16s(r.Run()["staged"])))
		})
	}
}

// A norm's input that each warp stages for itself gives the products of one that all warps wait for, and its scale but
// for the order of the sum; also where gains were fetched before. In another order these are refused.
func TestNormInputOfWarpsThatStageWhatTheyMultiply(t *testing.T) {
	const n, rows, consumers = 2048, 16, 4
	rng := rig.Rand(11)
	x, gains, w := rig.Floats(rng, n, 1), rig.Normals(rng, 2*n, 1), rig.Normals(rng, rows*n, 1)
	multiply := func(own, early bool, fetched func(*grid.Order) *grid.Order) (y, scales []float64, err error) {
		r := rig.New(t, rig.Setup{Consumers: consumers, Stage: 9216, Stages: 3,
			Matrices: []pipeline.Matrix{{Name: "w", Rows: rows, K: n, Format: pipeline.FormatI4G128}}})
		m := &r.Plan.Layer[0]
		packed := gemvCase{k: n}.packed(t, r.Plan, w)
		weights := rig.In[dsl.B128](r, "w", packed, len(packed)/16)
		g := &product.GEMV{Name: "w", M: m, Fixed: fixedInput(r, m), X: dsl.Shared[dsl.BF16](r.K, "input", n, dsl.Align(16)),
			Part: product.Partials{Buf: dsl.Shared[dsl.F32](r.K, "partials", product.PartialsLen(consumers), dsl.Align(16))}}
		require.Equal(t, &grid.Order{Stride: 4, Offsets: []int{0, 1, 2, 3}}, g.Fixed.Order)
		if !own {
			g.Fixed.Order = nil
		}
		norm := product.NormInput{N: n, Eps: 1e-5, X: product.FromBuf(rig.In[dsl.F32](r, "x", rig.F32Bytes(x), n)),
			Gain: rig.In[dsl.BF16](r, "gains", rig.BF16Bytes(gains), 2*n), Dst: g.X, Format: m.Format, Fixed: g.Fixed}
		out, scale := rig.Out[dsl.F32](r, "y", rows), rig.Out[dsl.F32](r, "scale", rows)
		r.Body(func(cons *pipeline.Consumer) {
			if early {
				norm.Early = &product.Gains{N: n, Gain: norm.Gain}
				norm.Early.Start(r.Env)
				norm.Early.Fetch(r.Env, r.K.U32(1), fetched(g.Fixed.Order))
			}
			s := norm.Emit(r.Env, r.K.U32(1))
			g.Consume(r.Env, cons, r.Ring, r.Share(0), product.Epilogue(func(row dsl.Val[dsl.U32], y0, y1 dsl.Val[dsl.F32]) {
				out.StoreN(row, []dsl.Val[dsl.F32]{y0, y1})
				scale.StoreN(row, []dsl.Val[dsl.F32]{s(), s()})
			}))
		}, func(p *pipeline.Producer) { g.Produce(r.Env, p, r.Share(0), weights, r.From(0)) })
		if err := r.K.Err(); err != nil {
			return nil, nil, err
		}
		got := r.Run()
		return rig.F32s(got["y"]), rig.F32s(got["scale"]), nil
	}
	same := func(o *grid.Order) *grid.Order { return o }
	want, scales, err := multiply(false, false, same)
	require.NoError(t, err)
	for _, early := range []bool{false, true} {
		y, s, err := multiply(true, early, same)
		require.NoError(t, err)
		require.Equal(t, want, y, "early %v", early)
		for i := range s {
			require.InEpsilon(t, scales[i], s[i], 0x1p-22)
		}
	}
	_, _, err = multiply(true, true, func(*grid.Order) *grid.Order { return nil })
	require.ErrorContains(t, err, "Early was fetched in order")
}
