package product_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

func TestAddResidualColumns(t *testing.T) {
	for _, s := range rig.Steps() {
		for _, n := range []int{8, 40, 200} {
			t.Run(fmt.Sprint(s, " ", n), func(t *testing.T) { residual(t, s, n) })
		}
	}
}

func residual(t *testing.T, s rig.Step, n int) {
	rng := rig.Rand(uint64(n + s.T))
	x, y, gain := rig.Floats(rng, s.T*n, 1), rig.Floats(rng, s.T*n, 1), rig.Normals(rng, 3*n, 1)
	r := rig.New(t, rig.Setup{SMs: s.SMs, Consumers: s.Consumers})
	a := product.Activations{K: n, T: s.T}
	add := &product.AddResidualColumns{Out: a, X: rig.InOut[dsl.F32](r, "x", rig.F32Bytes(x), s.T*n),
		Next: rig.Out[dsl.BF16](r, "next", a.Len()), Gain: rig.In[dsl.BF16](r, "gain", rig.BF16Bytes(gain), 3*n),
		SQ:     rig.Out[dsl.F32](r, "sq", s.SMs*s.Padded()),
		Shared: rig.SharedF32(r, "sums", product.ColumnSumsLen(s.Consumers, s.Padded()))}
	yIn, tokens := rig.In[dsl.F32](r, "y", rig.F32Bytes(y), s.T*n), r.Scalar("n", uint32(s.N))
	r.Body(func(*pipeline.Consumer) {
		epilogue, publish := add.Start(r.Env, r.K.U32(1))
		r.EachColumnPair(yIn, n, s.Padded(), tokens, epilogue)
		publish()
	}, nil)
	got := r.Run()
	next, sq := rig.BF16s(got["next"]), rig.F32s(got["sq"])
	squares := make([]float64, len(sq))
	for i, v := range rig.F32s(got["x"]) {
		token, k := i/n, i%n
		at := a.Index(token, k)
		if token >= s.N {
			require.Equal(t, float64(x[i]), v, "another token's vector")
			require.EqualValues(t, 0xffff, next[at], "and what would be made of it")
			continue
		}
		sum := x[i] + y[i]
		require.Equal(t, float64(sum), v, "element %d of token %d", k, token)
		require.Equal(t, rig.ToBF16(float64(sum*float32(rig.FromBF16(gain[n+k])))), next[at], "element %d of token %d", k,
			token)
		squares[s.Owner(k)*s.Padded()+token] += v * v
	}
	rig.Near(t, squares, sq, rig.Scaled(squares, 0x1p-20, 0), "sums of squares")
}

func TestSwiGLUColumns(t *testing.T) {
	for _, s := range rig.Steps() {
		t.Run(s.String(), func(t *testing.T) {
			const n = 40
			rng := rig.Rand(uint64(s.T))
			y := rig.Floats(rng, s.T*2*n, 3)
			r := rig.New(t, rig.Setup{SMs: s.SMs, Consumers: s.Consumers})
			a := product.Activations{K: n, T: s.T}
			by, scale := r.Scales(s.T)
			act := rig.Out[dsl.BF16](r, "act", a.Len())
			yIn, tokens := rig.In[dsl.F32](r, "y", rig.F32Bytes(y), len(y)), r.Scalar("n", uint32(s.N))
			r.Body(func(*pipeline.Consumer) {
				r.EachColumnPair(yIn, 2*n, s.Padded(), tokens, product.GLU{}.Columns(r.Env, a, act, scale))
			}, nil)
			got := rig.BF16s(r.Run()["act"])
			for token := range s.T {
				var gate, up, have []float64
				for j := range n {
					at := 2 * (token*n + j)
					gate, up = append(gate, by[token]*float64(y[at])), append(up, by[token]*float64(y[at+1]))
					have = append(have, rig.FromBF16(got[a.Index(token, j)]))
				}
				if token >= s.N {
					require.True(t, math.IsNaN(have[0]) && math.IsNaN(have[n-1]), "written beyond the step's tokens")
					continue
				}
				want := reference.SwiGLU(gate, up)
				rig.Near(t, want, have, rig.Scaled(want, 0x1.02p-8, 1e-36), "token %d", token)
			}
		})
	}
}

func TestScaleColumns(t *testing.T) {
	for _, s := range []rig.Step{rig.StepOf(2, 2, 1, 1), rig.StepOf(8, 8, 3, 1), rig.StepOf(16, 16, 5, 1),
		rig.StepOf(8, 8, 40, 2),
		rig.StepOf(16, 16, 37, 3), rig.StepOf(9, 9, 3, 8)} {
		t.Run(s.String(), func(t *testing.T) {
			const n, eps = 96, 1e-5
			rng := rig.Rand(uint64(s.SMs))
			sq := rig.Floats(rng, s.SMs*s.Padded(), 30)
			want := make([]float64, s.Padded())
			for i := range sq {
				sq[i] = float32(math.Abs(float64(sq[i])))
				want[i%s.Padded()] += float64(sq[i]) / n
			}
			for i := range want {
				want[i] = 1 / math.Sqrt(want[i]+eps)
			}
			r := rig.New(t, rig.Setup{SMs: s.SMs, Consumers: s.Consumers})
			c := &product.ScaleColumns{N: n, Eps: eps, T: s.T, SQ: rig.In[dsl.F32](r, "sq", rig.F32Bytes(sq), len(sq)),
				Shared: rig.SharedF32(r, "scales", product.ScaleColumnsLen(s.Consumers, s.Padded()))}
			to := rig.Out[dsl.F32](r, "scale", s.SMs*s.Padded())
			r.Body(func(*pipeline.Consumer) {
				scale := c.Emit(r.Env)
				r.Env.Sync()
				r.K.If(r.Env.Tid.LtC(s.Padded()), func() { to.Store(r.Env.CTA.MulC(s.Padded()).Add(r.Env.Tid), scale(r.Env.Tid)) })
			}, nil)
			got := rig.F32s(r.Run()["scale"])
			rig.Near(t, want, got[:s.Padded()], rig.Scaled(want, 0x1p-20, 0), "%v", s)
			for i, v := range got {
				require.Equal(t, got[i%s.Padded()], v, "every CTA has the same")
			}
		})
	}
}

func TestEmbedColumns(t *testing.T) {
	for _, c := range []struct {
		rig.Step
		n, vocab int
	}{
		{rig.StepOf(2, 2, 1, 1), 8, 3}, {rig.StepOf(3, 2, 2, 3), 136, 5}, {rig.StepOf(8, 8, 4, 2), 1032, 7},
		{rig.StepOf(16, 16, 3, 8), 512, 20},
		{rig.StepOf(9, 9, 2, 3), 40, 11},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			rng := rig.Rand(uint64(c.n))
			table, gain := rig.Normals(rng, c.vocab*c.n, 1), rig.Normals(rng, 2*c.n, 1)
			var ids []uint32
			for i := range c.T {
				ids = append(ids, uint32((5*i+2)%c.vocab))
				if i >= c.Step.N {
					ids[i] = 1 << 30
				}
			}
			r := rig.New(t, rig.Setup{SMs: c.SMs, Consumers: c.Consumers})
			a := product.Activations{K: c.n, T: c.T}
			matrix := product.Embedding{N: c.n, Vocab: c.vocab, Table: rig.In[dsl.BF16](r, "table", rig.BF16Bytes(table),
				len(table))}
			embed := &product.EmbedColumns{Out: a, X: rig.Out[dsl.F32](r, "x", c.T*c.n),
				Next: rig.Out[dsl.BF16](r, "next", a.Len()),
				Gain: rig.In[dsl.BF16](r, "gain", rig.BF16Bytes(gain), 2*c.n), SQ: rig.Out[dsl.F32](r, "sq", c.SMs*c.Padded()),
				Row: matrix.Row}
			idsIn, tokens := rig.In[dsl.U32](r, "ids", rig.U32Bytes(ids...), c.T), r.Scalar("n", uint32(c.Step.N))
			r.Body(func(*pipeline.Consumer) {
				embed.Emit(r.Env, tokens, r.K.U32(1), func(t dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return idsIn.Load(t) })
			}, nil)
			got := r.Run()
			next, sq, x := rig.BF16s(got["next"]), rig.F32s(got["sq"]), rig.F32s(got["x"])
			squares := make([]float64, len(sq))
			for token := range c.Step.N {
				row := reference.Embedding(table, c.n, int(ids[token]))
				require.Equal(t, row, x[token*c.n:][:c.n])
				for k, v := range row {
					require.Equal(t, rig.ToBF16(v*rig.FromBF16(gain[c.n+k])), next[a.Index(token, k)], "element %d of token %d", k,
						token)
					squares[k/128%c.SMs*c.Padded()+token] += v * v
				}
			}
			rig.Near(t, squares, sq, rig.Scaled(squares, 0x1p-20, 0), "sums of squares")
			for _, v := range x[c.Step.N*c.n:] {
				require.True(t, math.IsNaN(v), "written beyond the step's tokens")
			}
		})
	}
}
