package tasks_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// mlp is a little step of several tokens: embedding, gate and up, down with the
// residual, LM head and argmax, with a sync after each, through one ring.
type mlp struct {
	step
	hidden, inner, vocab, batch int
	ahead                       bool // the residual's old values are loaded ahead, where that can be
}

// weights of an mlp, row-major.
type mlpWeights struct {
	gate, up, down, head, gain []half.BF16
	ids                        []uint32
}

func (c mlp) weights() *mlpWeights {
	rng := newRand(uint64(c.sms))
	w := &mlpWeights{gate: normals(rng, c.inner*c.hidden, 0.3), up: normals(rng, c.inner*c.hidden, 0.3),
		down: normals(rng, c.hidden*c.inner, 0.3), head: normals(rng, c.vocab*c.hidden, 1), gain: normals(rng, 2*c.hidden, 1)}
	for i := range c.t {
		w.ids = append(w.ids, uint32(7*i%c.vocab))
	}
	return w
}

// reference is a token's logits in float64.
func (c mlp) reference(w *mlpWeights, id uint32, eps float64) []float64 {
	x := reference.Embedding(w.head, c.hidden, int(id))
	y := reference.RMSNorm(x, w.gain[:c.hidden], eps)
	for i, v := range reference.MatVec(w.down, reference.SwiGLU(reference.MatVec(w.gate, y), reference.MatVec(w.up, y))) {
		x[i] += v
	}
	return reference.MatVec(w.head, reference.RMSNorm(x, w.gain[c.hidden:], eps))
}

func (c mlp) pack(t testing.TB, p *pipeline.Plan, w *mlpWeights) []byte {
	packed := make([]byte, p.PackedBytes)
	require.NoError(t, p.Pack(packed[:p.LayerBytes], 0, 0,
		pipeline.Permuted(append(append([]half.BF16(nil), w.gate...), w.up...), c.hidden, tasks.GateUpSource(c.inner))))
	require.NoError(t, p.Pack(packed[:p.LayerBytes], 0, 1, pipeline.Permuted(w.down, c.inner, nil)))
	require.NoError(t, p.Pack(packed[p.LayerBytes:], pipeline.FinalLayer, 0, pipeline.Permuted(w.head, c.hidden, nil)))
	return packed
}

// words are the tokens' rows.
func (w *mlpWeights) words() (words []uint32) {
	for _, id := range w.ids {
		words = append(words, append([]uint32{kv.RowToken: id}, make([]uint32, kv.RowWords-1)...)...)
	}
	return words
}

// rig builds the kernel; it leaves logits and chosen tokens.
func (c mlp) rig(t testing.TB, w *mlpWeights, eps float64) *rig {
	r := newRig(t, setup{sms: c.sms, consumers: c.consumers, stage: 1024, stages: 3, inFlight: 2, batch: c.batch,
		matrices: []pipeline.Matrix{
			{Name: "gate_up", Rows: 2 * c.inner, K: c.hidden}, {Name: "down", Rows: c.hidden, K: c.inner}},
		final: pipeline.Matrix{Name: "head", Rows: c.vocab, K: c.hidden}})
	p := r.plan
	packed := c.pack(t, p, w)
	weights := in[dsl.B128](r, "w", packed, len(packed)/16)
	padded, places := c.padded(), tasks.ColumnSumsLen(c.consumers, c.padded())
	a, inner := tasks.Activations{K: c.hidden, T: c.t}, tasks.Activations{K: c.inner, T: c.t}
	gains, x, next, act := in[dsl.BF16](r, "gain", bf16Bytes(w.gain), 2*c.hidden), out[dsl.F32](r, "x", c.t*c.hidden),
		out[dsl.BF16](r, "next", a.Len()), out[dsl.BF16](r, "act", inner.Len())
	sq, sums := out[dsl.F32](r, "sq", c.sms*padded), sharedF32(r, "sums", places)
	part := tasks.Partials{Buf: sharedF32(r, "partials", tasks.ColumnPartialsLen(c.consumers, padded, 0))}
	matrices := []*tasks.GEMM{{Name: "gate_up", M: &p.Layer[0], In: a, X: next, Part: part},
		{Name: "down", M: &p.Layer[1], In: inner, X: act, Part: part},
		{Name: "head", M: &p.Final[0], In: a, X: next, Part: part}}
	table := &tasks.PackedEmbedding{M: &p.Final[0], Weights: weights, Start: p.LayerBytes}
	embed := &tasks.EmbedColumns{Out: a, X: x, Next: next, Gain: gains, SQ: sq, Row: table.Row}
	norm := &tasks.ScaleColumns{N: c.hidden, Eps: eps, T: c.t, SQ: sq,
		Shared: sharedF32(r, "scales", tasks.ScaleColumnsLen(c.consumers, padded))}
	add := &tasks.AddResidualColumns{Out: a, X: x, Next: next, Gain: gains, SQ: sq, Shared: sums}
	best := &tasks.ArgmaxColumns{Vocab: c.vocab, T: c.t, Logits: out[dsl.F32](r, "logits", c.t*c.vocab),
		Best: out[dsl.F32](r, "best", c.sms*padded), Index: out[dsl.U32](r, "index", c.sms*padded), SharedBest: sums,
		SharedIndex: dsl.Shared[dsl.U32](r.k, "indices", places), Chosen: dsl.Shared[dsl.U32](r.k, "chosen", c.t)}
	rows := &tasks.ColumnRows{T: c.t, Words: dsl.Shared[dsl.U32](r.k, "words", c.t*kv.RowWords, dsl.Align(16)),
		Count: r.scalar("n", uint32(c.n)), Grown: r.k.U32(0)}
	rowsIn, pages := in[dsl.U32](r, "rows", u32Bytes(w.words()...), c.t*kv.RowWords),
		in[dsl.U32](r, "pages", u32Bytes(0), 1)
	chosen, counter := out[dsl.U32](r, "next_token", c.sms*c.t), inOut[dsl.U32](r, "barrier", u32Bytes(0), 1)
	r.body(func(cons *pipeline.Consumer) {
		bar := tasks.NewGridBarrier(r.e, counter, r.k.U32(0))
		rows.Load(r.e, rowsIn, pages, 16)
		embed.Emit(r.e, rows.Count, r.k.U32(0),
			func(t dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return rows.Word(t, kv.RowToken) })
		bar.Sync()
		var scale tasks.ColumnScale // known when the epilogue first runs
		of := func(token dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return scale(token) }
		matrices[0].Consume(r.e, cons, r.ring, r.share(0), rows.Count, func() { scale = norm.Emit(r.e) },
			tasks.GLU{}.Columns(r.e, inner, act, of))
		bar.Sync()
		var ahead, publish func()
		var epilogue tasks.ColumnEpilogue
		if !c.ahead {
			epilogue, publish = add.Start(r.e, r.k.U32(1))
		} else {
			ahead, epilogue, publish = add.StartAhead(r.e, r.k.U32(1), matrices[1], r.share(1), rows.Count)
			require.Equal(t, p.Layer[1].MaxCount()*4*padded <= 32*c.consumers, ahead != nil)
		}
		matrices[1].Consume(r.e, cons, r.ring, r.share(1), rows.Count, ahead, epilogue)
		publish()
		bar.Sync()
		epilogue, publish = best.Start(r.e, of)
		matrices[2].Consume(r.e, cons, r.ring, r.share(2), rows.Count, func() { scale = norm.Emit(r.e) }, epilogue)
		publish()
		bar.Sync()
		best.Choose(r.e)
		r.k.If(r.e.Tid.LtC(c.t), func() { chosen.Store(r.e.CTA.MulC(c.t).Add(r.e.Tid), best.Chosen.Load(r.e.Tid)) })
	}, func(prod *pipeline.Producer) {
		matrices[0].Produce(r.e, prod, r.share(0), weights, r.from(0))
		matrices[1].Produce(r.e, prod, r.share(1), weights, r.from(1))
		matrices[2].Produce(r.e, prod, r.share(2), weights, r.from(2))
	})
	return r
}

func TestAStepOfSeveralTokens(t *testing.T) {
	const eps = 1e-5
	for _, c := range []mlp{
		{stepOf(2, 2, 1, 2), 32, 104, 21, 14, false}, {stepOf(8, 5, 3, 2), 40, 96, 77, 2, true},
		{stepOf(16, 16, 5, 3), 64, 40, 24, 3, true},
		{stepOf(9, 4, 4, 8), 72, 56, 50, 4, true}, {stepOf(16, 13, 2, 1), 96, 72, 31, 2, false},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w := c.weights()
			got := c.rig(t, w, eps).run()
			logits, chosen := f32s(got["logits"]), u32s(got["next_token"])
			for token := range c.n {
				want, have := c.reference(w, w.ids[token], eps), logits[token*c.vocab:][:c.vocab]
				largest := 0.0
				for _, v := range want {
					largest = max(largest, math.Abs(v))
				}
				// Three roundings to bf16, of inputs whose products have random signs.
				near(t, want, have, scaled(make([]float64, c.vocab), 0, 0x1p-5*largest), "token %d", token)
				for cta := range c.sms {
					require.EqualValues(t, reference.Argmax(have), chosen[cta*c.t+token], "token %d in CTA %d", token, cta)
				}
			}
			c.alone(t, w, eps, got["logits"])
			if c.ahead {
				c.ahead = false
				require.Equal(t, got, c.rig(t, w, eps).run())
			}
		})
	}
}

// alone requires that the first token has the same logits, bit for bit, when it is
// the only one.
func (c mlp) alone(t *testing.T, w *mlpWeights, eps float64, logits []byte) {
	c.n = 1
	require.Equal(t, logits[:4*c.vocab], c.rig(t, w, eps).run()["logits"][:4*c.vocab])
}

// The code of a matrix product is as long for a thousand columns as for many more,
// and for many tiles as for a batch, on a ring of one depth: where it is deep the producer
// has leads.
func TestCodeOfAGEMMDoesNotGrowWithTheMatrix(t *testing.T) {
	instructions := func(rows, k, stages int) (count int) {
		c := columns{product: product{rows: rows, k: k, sms: 1, consumers: 8, stage: 4096, stages: stages}, t: 8, n: 8,
			batch: 4}
		kernel, err := gemmRig(t, c, make([]half.BF16, rows*k), nil).k.Finish()
		require.NoError(t, err)
		kernel.Instrs(func(*ir.Instr) { count++ })
		return count
	}
	for _, stages := range []int{4, 8} {
		require.LessOrEqual(t, instructions(8*4*5, 256*9, stages), instructions(8*4*2, 256*2, stages), "%d stages", stages)
	}
}
