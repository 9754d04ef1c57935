package tasks_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

func TestAddResidualColumns(t *testing.T) {
	for _, s := range steps() {
		for _, n := range []int{8, 40, 200} {
			t.Run(fmt.Sprint(s, " ", n), func(t *testing.T) { residual(t, s, n) })
		}
	}
}

func residual(t *testing.T, s step, n int) {
	rng := newRand(uint64(n + s.t))
	x, y, gain := floats(rng, s.t*n, 1), floats(rng, s.t*n, 1), normals(rng, 3*n, 1)
	r := newRig(t, setup{sms: s.sms, consumers: s.consumers})
	a := tasks.Activations{K: n, T: s.t}
	add := &tasks.AddResidualColumns{Out: a, X: inOut[dsl.F32](r, "x", f32Bytes(x), s.t*n),
		Next: out[dsl.BF16](r, "next", a.Len()), Gain: in[dsl.BF16](r, "gain", bf16Bytes(gain), 3*n),
		SQ:     out[dsl.F32](r, "sq", s.sms*s.padded()),
		Shared: sharedF32(r, "sums", tasks.ColumnSumsLen(s.consumers, s.padded()))}
	yIn, tokens := in[dsl.F32](r, "y", f32Bytes(y), s.t*n), r.scalar("n", uint32(s.n))
	r.body(func(*pipeline.Consumer) {
		epilogue, publish := add.Start(r.e, r.k.U32(1))
		r.eachColumnPair(yIn, n, s.padded(), tokens, epilogue)
		publish()
	}, nil)
	got := r.run()
	next, sq := bf16s(got["next"]), f32s(got["sq"])
	squares := make([]float64, len(sq))
	for i, v := range f32s(got["x"]) {
		token, k := i/n, i%n
		at := a.Index(token, k)
		if token >= s.n {
			require.Equal(t, float64(x[i]), v, "another token's vector")
			require.EqualValues(t, 0xffff, next[at], "and what would be made of it")
			continue
		}
		sum := x[i] + y[i]
		require.Equal(t, float64(sum), v, "element %d of token %d", k, token)
		require.Equal(t, toBF16(float64(sum*float32(fromBF16(gain[n+k])))), next[at], "element %d of token %d", k, token)
		squares[s.owner(k)*s.padded()+token] += v * v
	}
	near(t, squares, sq, scaled(squares, 0x1p-20, 0), "sums of squares")
}

func TestSwiGLUColumns(t *testing.T) {
	for _, s := range steps() {
		t.Run(s.String(), func(t *testing.T) {
			const n = 40
			rng := newRand(uint64(s.t))
			y := floats(rng, s.t*2*n, 3)
			r := newRig(t, setup{sms: s.sms, consumers: s.consumers})
			a := tasks.Activations{K: n, T: s.t}
			by, scale := r.scales(s.t)
			act := out[dsl.BF16](r, "act", a.Len())
			yIn, tokens := in[dsl.F32](r, "y", f32Bytes(y), len(y)), r.scalar("n", uint32(s.n))
			r.body(func(*pipeline.Consumer) {
				r.eachColumnPair(yIn, 2*n, s.padded(), tokens, tasks.GLU{}.Columns(r.e, a, act, scale))
			}, nil)
			got := bf16s(r.run()["act"])
			for token := range s.t {
				var gate, up, have []float64
				for j := range n {
					at := 2 * (token*n + j)
					gate, up = append(gate, by[token]*float64(y[at])), append(up, by[token]*float64(y[at+1]))
					have = append(have, fromBF16(got[a.Index(token, j)]))
				}
				if token >= s.n {
					require.True(t, math.IsNaN(have[0]) && math.IsNaN(have[n-1]), "written beyond the step's tokens")
					continue
				}
				want := reference.SwiGLU(gate, up)
				near(t, want, have, scaled(want, 0x1.02p-8, 1e-36), "token %d", token)
			}
		})
	}
}

func TestScaleColumns(t *testing.T) {
	for _, s := range []step{stepOf(2, 2, 1, 1), stepOf(8, 8, 3, 1), stepOf(16, 16, 5, 1), stepOf(8, 8, 40, 2),
		stepOf(16, 16, 37, 3), stepOf(9, 9, 3, 8)} {
		t.Run(s.String(), func(t *testing.T) {
			const n, eps = 96, 1e-5
			rng := newRand(uint64(s.sms))
			sq := floats(rng, s.sms*s.padded(), 30)
			want := make([]float64, s.padded())
			for i := range sq {
				sq[i] = float32(math.Abs(float64(sq[i])))
				want[i%s.padded()] += float64(sq[i]) / n
			}
			for i := range want {
				want[i] = 1 / math.Sqrt(want[i]+eps)
			}
			r := newRig(t, setup{sms: s.sms, consumers: s.consumers})
			c := &tasks.ScaleColumns{N: n, Eps: eps, T: s.t, SQ: in[dsl.F32](r, "sq", f32Bytes(sq), len(sq)),
				Shared: sharedF32(r, "scales", tasks.ScaleColumnsLen(s.consumers, s.padded()))}
			to := out[dsl.F32](r, "scale", s.sms*s.padded())
			r.body(func(*pipeline.Consumer) {
				scale := c.Emit(r.e)
				r.e.Sync()
				r.k.If(r.e.Tid.LtC(s.padded()), func() { to.Store(r.e.CTA.MulC(s.padded()).Add(r.e.Tid), scale(r.e.Tid)) })
			}, nil)
			got := f32s(r.run()["scale"])
			near(t, want, got[:s.padded()], scaled(want, 0x1p-20, 0), "%v", s)
			for i, v := range got {
				require.Equal(t, got[i%s.padded()], v, "every CTA has the same")
			}
		})
	}
}

func TestEmbedColumns(t *testing.T) {
	for _, c := range []struct {
		step
		n, vocab int
	}{
		{stepOf(2, 2, 1, 1), 8, 3}, {stepOf(3, 2, 2, 3), 136, 5}, {stepOf(8, 8, 4, 2), 1032, 7},
		{stepOf(16, 16, 3, 8), 512, 20},
		{stepOf(9, 9, 2, 3), 40, 11},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			rng := newRand(uint64(c.n))
			table, gain := normals(rng, c.vocab*c.n, 1), normals(rng, 2*c.n, 1)
			var ids []uint32
			for i := range c.t {
				ids = append(ids, uint32((5*i+2)%c.vocab))
				if i >= c.step.n {
					ids[i] = 1 << 30
				}
			}
			r := newRig(t, setup{sms: c.sms, consumers: c.consumers})
			a := tasks.Activations{K: c.n, T: c.t}
			matrix := tasks.Embedding{N: c.n, Vocab: c.vocab, Table: in[dsl.BF16](r, "table", bf16Bytes(table), len(table))}
			embed := &tasks.EmbedColumns{Out: a, X: out[dsl.F32](r, "x", c.t*c.n), Next: out[dsl.BF16](r, "next", a.Len()),
				Gain: in[dsl.BF16](r, "gain", bf16Bytes(gain), 2*c.n), SQ: out[dsl.F32](r, "sq", c.sms*c.padded()), Row: matrix.Row}
			idsIn, tokens := in[dsl.U32](r, "ids", u32Bytes(ids...), c.t), r.scalar("n", uint32(c.step.n))
			r.body(func(*pipeline.Consumer) {
				embed.Emit(r.e, tokens, r.k.U32(1), func(t dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return idsIn.Load(t) })
			}, nil)
			got := r.run()
			next, sq, x := bf16s(got["next"]), f32s(got["sq"]), f32s(got["x"])
			squares := make([]float64, len(sq))
			for token := range c.step.n {
				row := reference.Embedding(table, c.n, int(ids[token]))
				require.Equal(t, row, x[token*c.n:][:c.n])
				for k, v := range row {
					require.Equal(t, toBF16(v*fromBF16(gain[c.n+k])), next[a.Index(token, k)], "element %d of token %d", k, token)
					squares[k/128%c.sms*c.padded()+token] += v * v
				}
			}
			near(t, squares, sq, scaled(squares, 0x1p-20, 0), "sums of squares")
			for _, v := range x[c.step.n*c.n:] {
				require.True(t, math.IsNaN(v), "written beyond the step's tokens")
			}
		})
	}
}
