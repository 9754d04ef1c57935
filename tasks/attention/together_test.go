package attention_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// Two matrices behind one another through one ring, X and Part used again: an
// MLP of gate and up, a sync, down with the residual. Shares are uneven and
// some SMs have no tile of the second.
func TestTemplatesShareRingAndSharedMemory(t *testing.T) {
	for _, sms := range []int{1, 3, 5} {
		const hidden, inner, eps, consumers = 32, 104, 1e-5, 2
		rng := rig.Rand(uint64(sms))
		gate, up, down := rig.Normals(rng, inner*hidden, 0.3), rig.Normals(rng, inner*hidden, 0.3),
			rig.Normals(rng, hidden*inner, 0.3)
		gain, x := rig.Normals(rng, hidden, 1), rig.Floats(rng, hidden, 1)
		r := rig.New(t, rig.Setup{SMs: sms, Consumers: consumers, Stage: 512, Stages: 3, InFlight: 2,
			Matrices: []pipeline.Matrix{
				{Name: "gate_up", Rows: 2 * inner, K: hidden}, {Name: "down", Rows: hidden, K: inner}}})
		packed := make([]byte, r.Plan.PackedBytes)
		require.NoError(t, r.Plan.Pack(packed, 0, 0, pipeline.Permuted(append(append([]half.BF16(nil), gate...), up...),
			hidden, product.GateUpSource(inner))))
		require.NoError(t, r.Plan.Pack(packed, 0, 1, pipeline.Permuted(down, inner, nil)))
		weights, xs := rig.In[dsl.B128](r, "w", packed, len(packed)/16), rig.InOut[dsl.F32](r, "x", rig.F32Bytes(x), hidden)
		act, counter := rig.Out[dsl.BF16](r, "act", inner), rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0xfffffffe), 1)
		input := dsl.Shared[dsl.BF16](r.K, "input", rig.Padded(inner), dsl.Align(16))
		part := product.Partials{Buf: dsl.Shared[dsl.F32](r.K, "partials", product.PartialsLen(consumers), dsl.Align(16))}
		first := &product.GEMV{Name: "gate_up", M: &r.Plan.Layer[0], X: input, Part: part}
		second := &product.GEMV{Name: "down", M: &r.Plan.Layer[1], X: input, Part: part}
		r.Body(func(c *pipeline.Consumer) {
			bar := grid.NewGridBarrier(r.Env, counter, r.K.U32(0xfffffffe))
			norm := product.NormInput{N: hidden, Eps: eps, X: product.FromBuf(xs),
				Gain: rig.In[dsl.BF16](r, "gain", rig.BF16Bytes(gain), hidden), Dst: input}
			first.Consume(r.Env, c, r.Ring, r.Share(0), product.GLU{}.Epilogue(r.Env, act, r.K.U32(0), pipeline.FormatBF16,
				norm.Emit(r.Env, r.K.U32(0))))
			bar.Sync()
			plain := product.PlainInput{N: inner, X: act, Dst: input}
			plain.Emit(r.Env)
			second.Consume(r.Env, c, r.Ring, r.Share(1), product.AddResidual(xs, product.FromBuf(xs)))
		}, func(p *pipeline.Producer) {
			first.Produce(r.Env, p, r.Share(0), weights, r.From(0))
			second.Produce(r.Env, p, r.Share(1), weights, r.From(1))
		})
		got := r.Run()
		y := reference.RMSNorm(rig.Wide32(x), gain, eps)
		want := reference.SwiGLU(reference.MatVec(gate, y), reference.MatVec(up, y))
		// bf16 inputs (2⁻⁸ of each product, of random sign) and output.
		rig.Near(t, want, rig.Wide(rig.BF16s(got["act"])), rig.Scaled(want, 0x1p-6, 0.02), "act on %d SMs", sms)
		sum := reference.MatVec(down, rig.Wide(rig.BF16s(got["act"])))
		for i := range sum { // from the kernel's own act on only f32 sums: see gemvTolerance
			sum[i] += float64(x[i])
		}
		rig.Near(t, sum, rig.F32s(got["x"]), rig.Scaled(sum, 0x1p-18, 1e-5), "x on %d SMs", sms)
	}
}

// The LM head as the model has it, on more SMs than it has tiles.
func TestHeadOnSMsWithoutRows(t *testing.T) {
	for _, c := range []struct{ vocab, sms, consumers int }{{8, 4, 2}, {21, 5, 4}, {24, 2, 3}} {
		const hidden = 64
		rng := rig.Rand(uint64(c.vocab))
		w, gain, x := rig.Normals(rng, c.vocab*hidden, 1), rig.Normals(rng, hidden, 1), rig.Floats(rng, hidden, 1)
		r := rig.New(t, rig.Setup{SMs: c.sms, Consumers: c.consumers,
			Matrices: []pipeline.Matrix{{Name: "head", Rows: c.vocab, K: hidden}}})
		packed := make([]byte, r.Plan.PackedBytes)
		require.NoError(t, r.Plan.Pack(packed, 0, 0, pipeline.Permuted(w, hidden, nil)))
		weights, counter := rig.In[dsl.B128](r, "w", packed, len(packed)/16),
			rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
		g := &product.GEMV{Name: "head", M: &r.Plan.Layer[0], X: dsl.Shared[dsl.BF16](r.K, "input", hidden, dsl.Align(16)),
			Part: product.Partials{Buf: dsl.Shared[dsl.F32](r.K, "partials", product.PartialsLen(c.consumers), dsl.Align(16))}}
		a := &product.Argmax{Vocab: c.vocab, Logits: rig.Out[dsl.F32](r, "logits", c.vocab),
			Best:  rig.Out[dsl.F32](r, "best", c.sms),
			Index: rig.Out[dsl.U32](r, "index", c.sms), SharedIndex: dsl.Shared[dsl.U32](r.K, "indices", c.consumers)}
		next := rig.Out[dsl.U32](r, "next", c.sms)
		norm := product.NormInput{N: hidden, Eps: 1e-6, X: product.FromBuf(rig.In[dsl.F32](r, "x", rig.F32Bytes(x), hidden)),
			Gain: rig.In[dsl.BF16](r, "gain", rig.BF16Bytes(gain), hidden), Dst: g.X}
		r.Body(func(cons *pipeline.Consumer) {
			bar := grid.NewGridBarrier(r.Env, counter, r.K.U32(0))
			epilogue, publish := a.Start(r.Env, norm.Emit(r.Env, r.K.U32(0)))
			g.Consume(r.Env, cons, r.Ring, r.Share(0), epilogue)
			publish()
			bar.Sync()
			r.Choose(a, next)
		}, func(p *pipeline.Producer) { g.Produce(r.Env, p, r.Share(0), weights, r.From(0)) })
		got := r.Run()
		logits := rig.F32s(got["logits"])
		want := reference.MatVec(w, reference.RMSNorm(rig.Wide32(x), gain, 1e-6))
		abs := rig.GemvTolerance(w, reference.RMSNorm(rig.Wide32(x), gain, 1e-6))
		for i := range abs { // the input is rounded to bf16: 2⁻⁸ of Σ|w·x| at most
			abs[i] *= math.Exp2(20 - 8)
		}
		rig.Near(t, want, logits, abs, "vocabulary %d on %d SMs", c.vocab, c.sms)
		require.EqualValues(t, reference.Argmax(logits), rig.U32s(got["next"])[0])
	}
}

// The query's own K and V, appended in this launch, are read behind the sync, or as
// words that have come, and never through the ring, while the ring streams the tokens
// before it. Launches follow one another on one cache, from an empty one over several
// pages.
func TestAttentionOfTokensAppendedInTheSameLaunch(t *testing.T) {
	for _, c := range []appended{{heads: 4, kvHeads: 2, d: 32}, {heads: 4, kvHeads: 2, d: 32, words: true},
		{heads: 6, kvHeads: 2, d: 48, words: true}, {heads: 17, kvHeads: 1, d: 16, words: true},
		{heads: 4, kvHeads: 2, d: 32, words: true, unsplit: attention.Unsplit{Tokens: 11}},
		{heads: 17, kvHeads: 1, d: 16, words: true, unsplit: attention.Unsplit{Tokens: 11, Split: 1}}} {
		t.Run(fmt.Sprintf("%+v", c), c.check)
	}
}

// appended is attention of tokens that the same launch appends, with words instead of
// syncs or without.
type appended struct {
	heads, kvHeads, d int
	words             bool
	unsplit           attention.Unsplit // when no KV head is split
}

func (c appended) check(t *testing.T) {
	const page, splits, consumers, sms, tokens = 4, 2, 2, 3, 23
	heads, kvHeads, d := c.heads, c.kvHeads, c.d
	l := attention.KVLayout{Layers: 1, Heads: kvHeads, D: d, Page: page}
	rng := rig.Rand(4)
	r := rig.New(t, rig.Setup{SMs: sms, Consumers: consumers, KVToken: l.TokenBytes(), Stage: 16 * l.TokenBytes(),
		Stages: 2})
	q := &attention.QKV{Heads: heads, KV: l, InvFreq: rig.In[dsl.F32](r, "inv_freq", make([]byte, 4*d/2),
		d/2)} // no rotation
	att := &attention.Attention{Heads: heads, KV: l, Splits: splits, PerStage: 16,
		States: rig.InOut[dsl.B128](r, "states", nil, splits*attention.StatePackets(heads, d)),
		Tail:   dsl.Shared[dsl.B128](r.K, "tail", l.TokenUnits())}
	merge := &attention.Merge{Heads: heads, D: d, Splits: splits, States: att.States,
		Out: rig.Out[dsl.BF16](r, "attn", heads*d)}
	var words *grid.LL
	barriers := 2
	if c.words {
		barriers, words = 1, &grid.LL{}
		att.LL, att.Merge, att.Unsplit = words, merge, c.unsplit
		q.Packets = &attention.QKVPackets{LL: words, Q: rig.InOut[dsl.B128](r, "q_words", nil, heads*d/2),
			KV: rig.InOut[dsl.B128](r, "kv_words", nil, kvHeads*d)}
		att.Packets = q.Packets
	} else {
		q.Q = rig.Out[dsl.BF16](r, "q", heads*d)
		att.Q = q.Q
	}
	att.Scratch = dsl.Shared[dsl.F32](r.K, "attention_scratch", att.ScratchLen(consumers), dsl.Align(16))
	table := []uint32{5, 2, 0, 4, 1, 3}
	pos, epoch := r.Scalar("pos", 0), r.Scalar("epoch", 0)
	step := attention.Step{Pos: pos, Cached: pos, Pages: r.K.U32(len(table)), Layer: r.K.U32(0),
		Table: rig.In[dsl.U32](r, "table", rig.U32Bytes(table...), len(table)),
		Cache: rig.InOut[dsl.B128](r, "kv", nil, len(table)*l.PageBytes()/16)}
	y, counter := rig.In[dsl.F32](r, "y", make([]byte, 4*q.Rows()), q.Rows()),
		rig.InOut[dsl.U32](r, "barrier", rig.U32Bytes(0), 1)
	r.Body(func(c *pipeline.Consumer) {
		bar := grid.NewGridBarrier(r.Env, counter, epoch)
		if words != nil {
			words.Flag = bar.Flag
		}
		r.EachRows(y, q.Rows(), q.Epilogue(r.Env, step, func() product.NormScale { return product.KnownScale(r.K.F32(1)) }))
		if words == nil {
			bar.Sync()
		}
		att.Consume(r.Env, c, r.Ring, step)
		bar.Sync()
		if words == nil {
			merge.Emit(r.Env)
		}
	}, func(p *pipeline.Producer) { att.Produce(r.Env, p, step) })
	program := r.Load()
	kept := []string{"kv", "barrier", "states", "q_words", "kv_words"}
	for seed := range rig.Seeds() {
		var keys, values [][]float64
		for _, name := range kept {
			r.Data[name] = nil
		}
		r.Data["barrier"] = rig.U32Bytes(0)
		if c.words {
			r.Data["states"] = make([]byte, 16*splits*attention.StatePackets(heads, d))
			r.Data["q_words"], r.Data["kv_words"] = make([]byte, 16*heads*d/2), make([]byte, 16*kvHeads*d)
		}
		for p := range tokens {
			rows := rig.Floats(rng, q.Rows(), 1)
			r.Data["y"] = rig.F32Bytes(rows)
			r.Params["pos"], r.Params["epoch"] = uint64(p), uint64(barriers*sms*p)
			got, err := r.Once(program, uint64(seed))
			require.NoError(t, err, "token %d", p)
			for _, name := range kept {
				r.Data[name] = got[name]
			}
			var k, v []float64
			for i := range kvHeads * d { // the packed rows of a head of k are i and i + D/2 in turn
				at := heads*d + i/d*d + 2*(i%d%(d/2)) + i%d/(d/2)
				k, v = append(k, rig.FromBF16(rig.ToBF16(float64(rows[at])))),
					append(v, rig.FromBF16(rig.ToBF16(float64(rows[(heads+kvHeads)*d+i]))))
			}
			keys, values = append(keys, k), append(values, v)
			query := c.queries(got)
			for i := range query {
				query[i] *= math.Sqrt(float64(d)) / math.Log2E
			}
			want := reference.Concat(reference.Attention(query, keys, values, heads, kvHeads))
			// weights and outputs in bf16, |v| of about 1
			rig.Near(t, want, rig.Wide(rig.BF16s(got["attn"])), rig.Scaled(want, 0x1p-7, 0.02), "token %d", p)
		}
	}
}

// queries are the queries that the launch has made.
func (c appended) queries(got map[string][]byte) []float64 {
	if !c.words {
		return rig.Wide(rig.BF16s(got["q"]))
	}
	all, middle := make([]float64, c.heads*c.d), c.d/2
	for i, x := range rig.U32s(got["q_words"]) {
		if word := i / 4; i%4 == 0 {
			at := word/middle*c.d + word%middle
			all[at], all[at+middle] = rig.FromBF16(half.BF16(x)), rig.FromBF16(half.BF16(x>>16))
		}
	}
	return all
}
