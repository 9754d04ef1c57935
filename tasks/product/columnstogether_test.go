package product_test

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
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// mlp is a little step of several tokens: embedding, gate and up, down with the
// residual, LM head and argmax, with a sync after each, through one ring.
type mlp struct {
	rig.Step
	hidden, inner, vocab, batch int
	ahead                       bool // the residual's old values are loaded ahead, where that can be
}

// weights of an mlp, row-major.
type mlpWeights struct {
	gate, up, down, head, gain []half.BF16
	ids                        []uint32
}

func (c mlp) weights() *mlpWeights {
	rng := rig.Rand(uint64(c.SMs))
	w := &mlpWeights{gate: rig.Normals(rng, c.inner*c.hidden, 0.3), up: rig.Normals(rng, c.inner*c.hidden, 0.3),
		down: rig.Normals(rng, c.hidden*c.inner, 0.3), head: rig.Normals(rng, c.vocab*c.hidden, 1),
		gain: rig.Normals(rng, 2*c.hidden, 1)}
	for i := range c.T {
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
		pipeline.Permuted(append(append([]half.BF16(nil), w.gate...), w.up...), c.hidden, product.GateUpSource(c.inner))))
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
func (c mlp) rig(t testing.TB, w *mlpWeights, eps float64) *rig.Rig {
	r := rig.New(t, rig.Setup{SMs: c.SMs, Consumers: c.Consumers, Stage: 1024, Stages: 3, InFlight: 2, Batch: c.batch,
		Matrices: []pipeline.Matrix{
			{Name: "gate_up", Rows: 2 * c.inner, K: c.hidden}, {Name: "down", Rows: c.hidden, K: c.inner}},
		Final: pipeline.Matrix{Name: "head", Rows: c.vocab, K: c.hidden}})
	p := r.Plan
	packed := c.pack(t, p, w)
	weights := rig.In[dsl.B128](r, "w", packed, len(packed)/16)
	padded, places := c.Padded(), product.ColumnSumsLen(c.Consumers, c.Padded())
	a, inner := product.Activations{K: c.hidden, T: c.T}, product.Activations{K: c.inner, T: c.T}
	gains, x, next, act := rig.In[dsl.BF16](r, "gain", rig.BF16Bytes(w.gain), 2*c.hidden),
		rig.Out[dsl.F32](r, "x", c.T*c.hidden),
		rig.Out[dsl.BF16](r, "next", a.Len()), rig.Out[dsl.BF16](r, "act", inner.Len())
	sq, sums := rig.Out[dsl.F32](r, "sq", c.SMs*padded), rig.SharedF32(r, "sums", places)
	part := product.Partials{Buf: rig.SharedF32(r, "partials", product.ColumnPartialsLen(c.Consumers, padded, 0))}
	matrices := []*product.GEMM{{Name: "gate_up", M: &p.Layer[0], In: a, X: next, Part: part},
		{Name: "down", M: &p.Layer[1], In: inner, X: act, Part: part},
		{Name: "head", M: &p.Final[0], In: a, X: next, Part: part}}
	table := &product.PackedEmbedding{M: &p.Final[0], Weights: weights, Start: p.LayerBytes}
	embed := &product.EmbedColumns{Out: a, X: x, Next: next, Gain: gains, SQ: sq, Row: table.Row}
	norm := &product.ScaleColumns{N: c.hidden, Eps: eps, T: c.T, SQ: sq,
		Shared: rig.SharedF32(r, "scales", product.ScaleColumnsLen(c.Consumers, padded))}
	add := &product.AddResidualColumns{Out: a, X: x, Next: next, Gain: gains, SQ: sq, Shared: sums}
	best := &product.ArgmaxColumns{Vocab: c.vocab, T: c.T, Logits: rig.Out[dsl.F32](r, "logits", c.T*c.vocab),
		Best: rig.Out[dsl.F32](r, "best", c.SMs*padded), Index: rig.Out[dsl.U32](r, "index", c.SMs*padded), SharedBest: sums,
		SharedIndex: dsl.Shared[dsl.U32](r.K, "indices", places), Chosen: dsl.Shared[dsl.U32](r.K, "chosen", c.T)}
	rows := &product.ColumnRows{T: c.T, Words: dsl.Shared[dsl.U32](r.K, "words", c.T*kv.RowWords, dsl.Align(16)),
		Count: r.Scalar("n", uint32(c.N)), Grown: r.K.U32(0)}
	rowsIn, pages := rig.In[dsl.U32](r, "rows", rig.U32Bytes(w.words()...), c.T*kv.RowWords),
		rig.In[dsl.U32](r, "pages", rig.U32Bytes(0), 1)
	chosen, counter := rig.Out[dsl.U32](r, "next_token", c.SMs*c.T), rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
	r.Body(func(cons *pipeline.Consumer) {
		bar := grid.NewGridBarrier(r.Env, counter, r.K.U32(0))
		rows.Load(r.Env, rowsIn, pages, 16)
		embed.Emit(r.Env, rows.Count, r.K.U32(0),
			func(t dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return rows.Word(t, kv.RowToken) })
		bar.Sync()
		var scale product.ColumnScale // known when the epilogue first runs
		of := func(token dsl.Val[dsl.U32]) dsl.Val[dsl.F32] { return scale(token) }
		matrices[0].Consume(r.Env, cons, r.Ring, r.Share(0), rows.Count, func() { scale = norm.Emit(r.Env) },
			product.GLU{}.Columns(r.Env, inner, act, of))
		bar.Sync()
		var ahead, publish func()
		var epilogue product.ColumnEpilogue
		if !c.ahead {
			epilogue, publish = add.Start(r.Env, r.K.U32(1))
		} else {
			ahead, epilogue, publish = add.StartAhead(r.Env, r.K.U32(1), matrices[1], r.Share(1), rows.Count)
			require.Equal(t, p.Layer[1].MaxCount()*4*padded <= 32*c.Consumers, ahead != nil)
		}
		matrices[1].Consume(r.Env, cons, r.Ring, r.Share(1), rows.Count, ahead, epilogue)
		publish()
		bar.Sync()
		epilogue, publish = best.Start(r.Env, of)
		matrices[2].Consume(r.Env, cons, r.Ring, r.Share(2), rows.Count, func() { scale = norm.Emit(r.Env) }, epilogue)
		publish()
		bar.Sync()
		best.Choose(r.Env)
		r.K.If(r.Env.Tid.LtC(c.T), func() { chosen.Store(r.Env.CTA.MulC(c.T).Add(r.Env.Tid), best.Chosen.Load(r.Env.Tid)) })
	}, func(prod *pipeline.Producer) {
		matrices[0].Produce(r.Env, prod, r.Share(0), weights, r.From(0))
		matrices[1].Produce(r.Env, prod, r.Share(1), weights, r.From(1))
		matrices[2].Produce(r.Env, prod, r.Share(2), weights, r.From(2))
	})
	return r
}

func TestAStepOfSeveralTokens(t *testing.T) {
	const eps = 1e-5
	for _, c := range []mlp{
		{rig.StepOf(2, 2, 1, 2), 32, 104, 21, 14, false}, {rig.StepOf(8, 5, 3, 2), 40, 96, 77, 2, true},
		{rig.StepOf(16, 16, 5, 3), 64, 40, 24, 3, true},
		{rig.StepOf(9, 4, 4, 8), 72, 56, 50, 4, true}, {rig.StepOf(16, 13, 2, 1), 96, 72, 31, 2, false},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w := c.weights()
			got := c.rig(t, w, eps).Run()
			logits, chosen := rig.F32s(got["logits"]), rig.U32s(got["next_token"])
			for token := range c.N {
				want, have := c.reference(w, w.ids[token], eps), logits[token*c.vocab:][:c.vocab]
				largest := 0.0
				for _, v := range want {
					largest = max(largest, math.Abs(v))
				}
				// Three roundings to bf16, of inputs whose products have random signs.
				rig.Near(t, want, have, rig.Scaled(make([]float64, c.vocab), 0, 0x1p-5*largest), "token %d", token)
				for cta := range c.SMs {
					require.EqualValues(t, reference.Argmax(have), chosen[cta*c.T+token], "token %d in CTA %d", token, cta)
				}
			}
			c.alone(t, w, eps, got["logits"])
			if c.ahead {
				c.ahead = false
				require.Equal(t, got, c.rig(t, w, eps).Run())
			}
		})
	}
}

// alone requires that the first token has the same logits, bit for bit, when it is
// the only one.
func (c mlp) alone(t *testing.T, w *mlpWeights, eps float64, logits []byte) {
	c.N = 1
	require.Equal(t, logits[:4*c.vocab], c.rig(t, w, eps).Run()["logits"][:4*c.vocab])
}

// The code of a matrix product is as long for a thousand columns as for many more,
// and for many tiles as for a batch, on a ring of one depth: where it is deep the producer
// has leads.
func TestCodeOfAGEMMDoesNotGrowWithTheMatrix(t *testing.T) {
	instructions := func(rows, k, stages int) (count int) {
		c := columns{gemvCase: gemvCase{rows: rows, k: k, sms: 1, consumers: 8, stage: 4096, stages: stages}, t: 8, n: 8,
			batch: 4}
		kernel, err := gemmRig(t, c, make([]half.BF16, rows*k), nil).K.Finish()
		require.NoError(t, err)
		kernel.Instrs(func(*ir.Instr) { count++ })
		return count
	}
	for _, stages := range []int{4, 8} {
		require.LessOrEqual(t, instructions(8*4*5, 256*9, stages), instructions(8*4*2, 256*2, stages), "%d stages", stages)
	}
}
