package tasks_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// Two matrices behind one another through one ring, X and Part used again: an
// MLP of gate and up, a sync, down with the residual. Shares are uneven and
// some SMs have no tile of the second.
func TestTemplatesShareRingAndSharedMemory(t *testing.T) {
	for _, sms := range []int{1, 3, 5} {
		const hidden, inner, eps, consumers = 32, 104, 1e-5, 2
		rng := newRand(uint64(sms))
		gate, up, down := normals(rng, inner*hidden, 0.3), normals(rng, inner*hidden, 0.3), normals(rng, hidden*inner, 0.3)
		gain, x := normals(rng, hidden, 1), floats(rng, hidden, 1)
		r := newRig(t, setup{sms: sms, consumers: consumers, stage: 512, stages: 3, inFlight: 2, matrices: []pipeline.Matrix{
			{Name: "gate_up", Rows: 2 * inner, K: hidden}, {Name: "down", Rows: hidden, K: inner}}})
		packed := make([]byte, r.plan.PackedBytes)
		require.NoError(t, r.plan.Pack(packed, 0, 0, pipeline.Permuted(append(append([]half.BF16(nil), gate...), up...),
			hidden, tasks.GateUpSource(inner))))
		require.NoError(t, r.plan.Pack(packed, 0, 1, pipeline.Permuted(down, inner, nil)))
		weights, xs := in[dsl.B128](r, "w", packed, len(packed)/16), inOut[dsl.F32](r, "x", f32Bytes(x), hidden)
		act, counter := out[dsl.BF16](r, "act", inner), inOut[dsl.U32](r, "barrier", u32Bytes(0xfffffffe), 1)
		input := dsl.Shared[dsl.BF16](r.k, "input", padded(inner), dsl.Align(16))
		part := tasks.Partials{Buf: dsl.Shared[dsl.F32](r.k, "partials", tasks.PartialsLen(consumers), dsl.Align(16))}
		first := &tasks.GEMV{Name: "gate_up", M: &r.plan.Layer[0], X: input, Part: part}
		second := &tasks.GEMV{Name: "down", M: &r.plan.Layer[1], X: input, Part: part}
		r.body(func(c *pipeline.Consumer) {
			bar := tasks.NewGridBarrier(r.e, counter, r.k.U32(0xfffffffe))
			norm := tasks.NormInput{N: hidden, Eps: eps, X: tasks.FromBuf(xs),
				Gain: in[dsl.BF16](r, "gain", bf16Bytes(gain), hidden), Dst: input}
			first.Consume(r.e, c, r.ring, r.share(0), tasks.GLU{}.Epilogue(r.e, act, r.k.U32(0), pipeline.FormatBF16,
				norm.Emit(r.e, r.k.U32(0))))
			bar.Sync()
			plain := tasks.PlainInput{N: inner, X: act, Dst: input}
			plain.Emit(r.e)
			second.Consume(r.e, c, r.ring, r.share(1), tasks.AddResidual(xs, tasks.FromBuf(xs)))
		}, func(p *pipeline.Producer) {
			first.Produce(r.e, p, r.share(0), weights, r.from(0))
			second.Produce(r.e, p, r.share(1), weights, r.from(1))
		})
		got := r.run()
		y := reference.RMSNorm(wide32(x), gain, eps)
		want := reference.SwiGLU(reference.MatVec(gate, y), reference.MatVec(up, y))
		// bf16 inputs (2⁻⁸ of each product, of random sign) and output.
		near(t, want, wide(bf16s(got["act"])), scaled(want, 0x1p-6, 0.02), "act on %d SMs", sms)
		sum := reference.MatVec(down, wide(bf16s(got["act"])))
		for i := range sum { // from the kernel's own act on only f32 sums: see gemvTolerance
			sum[i] += float64(x[i])
		}
		near(t, sum, f32s(got["x"]), scaled(sum, 0x1p-18, 1e-5), "x on %d SMs", sms)
	}
}

// The LM head as the model has it, on more SMs than it has tiles.
func TestHeadOnSMsWithoutRows(t *testing.T) {
	for _, c := range []struct{ vocab, sms, consumers int }{{8, 4, 2}, {21, 5, 4}, {24, 2, 3}} {
		const hidden = 64
		rng := newRand(uint64(c.vocab))
		w, gain, x := normals(rng, c.vocab*hidden, 1), normals(rng, hidden, 1), floats(rng, hidden, 1)
		r := newRig(t, setup{sms: c.sms, consumers: c.consumers,
			matrices: []pipeline.Matrix{{Name: "head", Rows: c.vocab, K: hidden}}})
		packed := make([]byte, r.plan.PackedBytes)
		require.NoError(t, r.plan.Pack(packed, 0, 0, pipeline.Permuted(w, hidden, nil)))
		weights, counter := in[dsl.B128](r, "w", packed, len(packed)/16), inOut[dsl.U32](r, "barrier", u32Bytes(0), 1)
		g := &tasks.GEMV{Name: "head", M: &r.plan.Layer[0], X: dsl.Shared[dsl.BF16](r.k, "input", hidden, dsl.Align(16)),
			Part: tasks.Partials{Buf: dsl.Shared[dsl.F32](r.k, "partials", tasks.PartialsLen(c.consumers), dsl.Align(16))}}
		a := &tasks.Argmax{Vocab: c.vocab, Logits: out[dsl.F32](r, "logits", c.vocab), Best: out[dsl.F32](r, "best", c.sms),
			Index: out[dsl.U32](r, "index", c.sms), SharedIndex: dsl.Shared[dsl.U32](r.k, "indices", c.consumers)}
		next := out[dsl.U32](r, "next", c.sms)
		norm := tasks.NormInput{N: hidden, Eps: 1e-6, X: tasks.FromBuf(in[dsl.F32](r, "x", f32Bytes(x), hidden)),
			Gain: in[dsl.BF16](r, "gain", bf16Bytes(gain), hidden), Dst: g.X}
		r.body(func(cons *pipeline.Consumer) {
			bar := tasks.NewGridBarrier(r.e, counter, r.k.U32(0))
			epilogue, publish := a.Start(r.e, norm.Emit(r.e, r.k.U32(0)))
			g.Consume(r.e, cons, r.ring, r.share(0), epilogue)
			publish()
			bar.Sync()
			r.choose(a, next)
		}, func(p *pipeline.Producer) { g.Produce(r.e, p, r.share(0), weights, r.from(0)) })
		got := r.run()
		logits := f32s(got["logits"])
		want := reference.MatVec(w, reference.RMSNorm(wide32(x), gain, 1e-6))
		abs := gemvTolerance(w, reference.RMSNorm(wide32(x), gain, 1e-6))
		for i := range abs { // the input is rounded to bf16: 2⁻⁸ of Σ|w·x| at most
			abs[i] *= math.Exp2(20 - 8)
		}
		near(t, want, logits, abs, "vocabulary %d on %d SMs", c.vocab, c.sms)
		require.EqualValues(t, reference.Argmax(logits), u32s(got["next"])[0])
	}
}

// The query's own K and V, appended in this launch, are read behind the sync, or as
// words that have come, and never through the ring, while the ring streams the tokens
// before it. Launches follow one another on one cache, from an empty one over several
// pages.
func TestAttentionOfTokensAppendedInTheSameLaunch(t *testing.T) {
	for _, c := range []appended{{heads: 4, kvHeads: 2, d: 32}, {heads: 4, kvHeads: 2, d: 32, words: true},
		{heads: 6, kvHeads: 2, d: 48, words: true}, {heads: 17, kvHeads: 1, d: 16, words: true}} {
		t.Run(fmt.Sprintf("%+v", c), c.check)
	}
}

// appended is attention of tokens that the same launch appends, with words instead of
// syncs or without.
type appended struct {
	heads, kvHeads, d int
	words             bool
}

func (c appended) check(t *testing.T) {
	const page, splits, consumers, sms, tokens = 4, 2, 2, 3, 23
	heads, kvHeads, d := c.heads, c.kvHeads, c.d
	l := tasks.KVLayout{Layers: 1, Heads: kvHeads, D: d, Page: page}
	rng := newRand(4)
	r := newRig(t, setup{sms: sms, consumers: consumers, kvToken: l.TokenBytes(), stage: 16 * l.TokenBytes(), stages: 2})
	q := &tasks.QKV{Heads: heads, KV: l, InvFreq: in[dsl.F32](r, "inv_freq", make([]byte, 4*d/2), d/2)} // no rotation
	att := &tasks.Attention{Heads: heads, KV: l, Splits: splits, PerStage: 16,
		States: inOut[dsl.B128](r, "states", nil, splits*tasks.StatePackets(heads, d)),
		Tail:   dsl.Shared[dsl.B128](r.k, "tail", l.TokenUnits())}
	merge := &tasks.Merge{Heads: heads, D: d, Splits: splits, States: att.States, Out: out[dsl.BF16](r, "attn", heads*d)}
	var words *tasks.LL
	barriers := 2
	if c.words {
		barriers, words = 1, &tasks.LL{}
		att.LL, att.Merge = words, merge
		q.Packets = &tasks.QKVPackets{LL: words, Q: inOut[dsl.B128](r, "q_words", nil, heads*d/2),
			KV: inOut[dsl.B128](r, "kv_words", nil, kvHeads*d)}
		att.Packets = q.Packets
	} else {
		q.Q = out[dsl.BF16](r, "q", heads*d)
		att.Q = q.Q
	}
	att.Scratch = dsl.Shared[dsl.F32](r.k, "attention_scratch", att.ScratchLen(consumers), dsl.Align(16))
	table := []uint32{5, 2, 0, 4, 1, 3}
	pos, epoch := r.scalar("pos", 0), r.scalar("epoch", 0)
	step := tasks.Step{Pos: pos, Cached: pos, Pages: r.k.U32(len(table)), Layer: r.k.U32(0),
		Table: in[dsl.U32](r, "table", u32Bytes(table...), len(table)),
		Cache: inOut[dsl.B128](r, "kv", nil, len(table)*l.PageBytes()/16)}
	y, counter := in[dsl.F32](r, "y", make([]byte, 4*q.Rows()), q.Rows()), inOut[dsl.U32](r, "barrier", u32Bytes(0), 1)
	r.body(func(c *pipeline.Consumer) {
		bar := tasks.NewGridBarrier(r.e, counter, epoch)
		if words != nil {
			words.Flag = bar.Flag
		}
		r.eachPair(y, q.Rows(), q.Epilogue(r.e, step, func() dsl.Val[dsl.F32] { return r.k.F32(1) }))
		if words == nil {
			bar.Sync()
		}
		att.Consume(r.e, c, r.ring, step)
		bar.Sync()
		if words == nil {
			merge.Emit(r.e)
		}
	}, func(p *pipeline.Producer) { att.Produce(r.e, p, step) })
	program := r.load()
	kept := []string{"kv", "barrier", "states", "q_words", "kv_words"}
	for seed := range seeds() {
		var keys, values [][]float64
		for _, name := range kept {
			r.data[name] = nil
		}
		r.data["barrier"] = u32Bytes(0)
		if c.words {
			r.data["states"] = make([]byte, 16*splits*tasks.StatePackets(heads, d))
			r.data["q_words"], r.data["kv_words"] = make([]byte, 16*heads*d/2), make([]byte, 16*kvHeads*d)
		}
		for p := range tokens {
			rows := floats(rng, q.Rows(), 1)
			r.data["y"] = f32Bytes(rows)
			r.params["pos"], r.params["epoch"] = uint64(p), uint64(barriers*sms*p)
			got, err := r.once(program, uint64(seed))
			require.NoError(t, err, "token %d", p)
			for _, name := range kept {
				r.data[name] = got[name]
			}
			var k, v []float64
			for i := range kvHeads * d { // the packed rows of a head of k are i and i + D/2 in turn
				at := heads*d + i/d*d + 2*(i%d%(d/2)) + i%d/(d/2)
				k, v = append(k, fromBF16(toBF16(float64(rows[at])))),
					append(v, fromBF16(toBF16(float64(rows[(heads+kvHeads)*d+i]))))
			}
			keys, values = append(keys, k), append(values, v)
			query := c.queries(got)
			for i := range query {
				query[i] *= math.Sqrt(float64(d)) / math.Log2E
			}
			want := reference.Concat(reference.Attention(query, keys, values, heads, kvHeads))
			// weights and outputs in bf16, |v| of about 1
			near(t, want, wide(bf16s(got["attn"])), scaled(want, 0x1p-7, 0.02), "token %d", p)
		}
	}
}

// queries are the queries that the launch has made.
func (c appended) queries(got map[string][]byte) []float64 {
	if !c.words {
		return wide(bf16s(got["q"]))
	}
	all, middle := make([]float64, c.heads*c.d), c.d/2
	for i, x := range u32s(got["q_words"]) {
		if word := i / 4; i%4 == 0 {
			at := word/middle*c.d + word%middle
			all[at], all[at+middle] = fromBF16(half.BF16(x)), fromBF16(half.BF16(x>>16))
		}
	}
	return all
}
