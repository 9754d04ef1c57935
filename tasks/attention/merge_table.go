package attention

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// MergeTable is the partial states of a plan (package kv): those of query row t
// and KV head h are Indptr[c+i] … Indptr[c+i+1]−1 with i = t·KVHeads + h, where c
// is the class's first word. None means that the row is final or absent.
type MergeTable struct {
	Tokens, KVHeads int
	Class           int
	Indptr          dsl.Buf[dsl.U32] // [class][MergeWords(Tokens, KVHeads)]
	Work            *Work            // for the variant's hooks
	Final           Output           // takes the output
}

// MergeWords is the number of words of a class of the merge table.
func MergeWords(tokens, kvHeads int) int { return tokens*kvHeads + 1 }

func (m *MergeTable) word(i u32) u32 {
	return m.Indptr.Load(i.AddC(m.Class * MergeWords(m.Tokens, m.KVHeads)))
}

// Any is whether there is any state to merge; without one the phase and its
// sync may be left out. It is the same in all CTAs.
func (m *MergeTable) Any(e *grid.Env) dsl.Pred {
	return dsl.Uniform(m.word(e.K.U32(m.Tokens*m.KVHeads)), dsl.GPUScope).NeC(0)
}

// emitTable merges two elements a lane.
func (t *Merge) emitTable(e *grid.Env, s Step) {
	k, m := e.K, t.Table
	if m.Tokens < 1 || m.KVHeads < 1 || t.Heads < 1 || t.Heads%m.KVHeads != 0 || t.D < 2 || t.D%2 != 0 || m.Final == nil {
		k.Require(false, "merge: %d tokens, %d heads of %d, %d KV heads: want at least 1 of each, whole groups, an even head and Final", m.Tokens, t.Heads, t.D, m.KVHeads)
		return
	}
	n, group := m.Tokens*t.Heads*t.D/2, t.Heads/m.KVHeads
	items := pipeline.CeilDiv(n, dsl.WarpSize)
	k.ForStep(e.Warp.MulC(e.Grid).Add(e.CTA), k.U32(items), e.Grid*e.Consumers, func(item u32) {
		i := item.MulC(dsl.WarpSize).Add(e.Lane).Named("i")
		row, dim := i.DivC(t.D/2), i.RemC(t.D/2).MulC(2)
		token, head := row.DivC(t.Heads).Named("row"), row.RemC(t.Heads).Named("head")
		states := func() {
			at := token.MulC(m.KVHeads).Add(head.DivC(group))
			first, end := m.word(at).Named("first"), m.word(at.AddC(1)).Named("end")
			k.If(first.Lt(end), func() {
				at := func(state u32) u32 { return t.word(state, head.RemC(group), dim, group) }
				lo, hi := t.states(e, first, end, at)
				lo, hi = t.Variant.outputs(e, s, t.Heads, head, token, m.Work)(dim, lo, hi)
				m.Final(token, head.MulC(t.D).Add(dim), lo, hi)
			})
		}
		if n%dsl.WarpSize == 0 {
			states()
		} else {
			k.If(i.LtC(n), states)
		}
	})
}

// word is where the word of a state with dimension dim (even) of a head of the group lies.
func (t *Merge) word(state, head, dim u32, group int) u32 {
	return state.MulC(group).Add(head).MulC(t.D / 2).Add(dim.DivC(2))
}

// states merges states first … end−1 (at least one), whose words are where at says, in
// their order, statesAtOnce at a time.
func (t *Merge) states(e *grid.Env, first, end u32, at func(state u32) u32) (lo, hi f32) {
	k := e.K
	top, sum := dsl.NewVar(k.F32(math.Inf(-1)), "top"), dsl.NewVar(k.F32(0), "sum")
	out := dsl.NewArray(k.F32(0), 2, "out")
	k.ForStep(first, end, statesAtOnce, func(from u32) {
		var places []u32
		for j := range statesAtOnce {
			places = append(places, at(from.AddC(j).Min(end.SubC(1))))
		}
		parts := parts(t.States, places)
		if t.sums() {
			for j, p := range parts {
				in := from.AddC(j).Lt(end)
				for x, v := range []f32{p.lo, p.hi} {
					out[x].Set(out[x].Get().Add(dsl.Select(in, v, k.F32(0))))
				}
			}
			return
		}
		most := top.Get()
		for j := range parts {
			i := from.AddC(j)
			parts[j].lse = dsl.Select(i.Lt(end), t.weighed(e, i, end, parts[j].lse), k.F32(math.Inf(-1)))
			most = most.Max(parts[j].lse)
		}
		base := finite(e, most)
		decay := dsl.Exp2(top.Get().Sub(base))
		total := sum.Get().Mul(decay)
		lo, hi := out[0].Get().Mul(decay), out[1].Get().Mul(decay)
		for _, p := range parts {
			weight := dsl.Exp2(p.lse.Sub(base))
			total = total.Add(weight)
			lo, hi = dsl.FMA(weight, p.lo, lo), dsl.FMA(weight, p.hi, hi)
		}
		top.Set(most)
		sum.Set(total)
		out[0].Set(lo)
		out[1].Set(hi)
	}, dsl.Unroll(1))
	if t.sums() {
		return out[0].Get(), out[1].Get()
	}
	return t.divide(e, out[0].Get(), sum.Get()), t.divide(e, out[1].Get(), sum.Get())
}

// weighed is the log-sum-exp of state i of those before end.
func (t *Merge) weighed(e *grid.Env, i, end u32, lse f32) f32 {
	if t.LastBias == 0 {
		return lse
	}
	return dsl.Select(i.AddC(1).Eq(end), lse.Add(e.K.F32(t.LastBias)), lse)
}

// running is the merge of a word of states that come batch by batch.
type running struct {
	t        *Merge
	e        *grid.Env
	top, sum *dsl.Var[dsl.F32]
	out      []*dsl.Var[dsl.F32]
}

func (t *Merge) running(e *grid.Env) *running {
	r := &running{t: t, e: e, out: dsl.NewArray(e.K.F32(0), 2, "out")}
	if !t.sums() {
		r.top, r.sum = dsl.NewVar(e.K.F32(math.Inf(-1)), "top"), dsl.NewVar(e.K.F32(0), "sum")
	}
	return r
}

// add merges n more states, the first of them number from of all; word is the word of
// the j-th of the n.
func (r *running) add(from, all, n u32, word func(j u32) dsl.Val[dsl.B128]) {
	k, t := r.e.K, r.t
	each := func(body func(j u32, p statePart)) {
		k.For(k.U32(0), n, func(j u32) { body(j, partOf(word(j))) }, dsl.Unroll(8))
	}
	if t.sums() {
		each(func(_ u32, p statePart) {
			r.out[0].Set(r.out[0].Get().Add(p.lo))
			r.out[1].Set(r.out[1].Get().Add(p.hi))
		})
		return
	}
	lse := func(j u32, p statePart) f32 { return t.weighed(r.e, dsl.Optional(from.Add(j)), all, p.lse) }
	before := r.top.Get()
	k.For(k.U32(0), n, func(j u32) {
		f := dsl.Split(word(j))
		r.top.Set(r.top.Get().Max(lse(j, statePart{lse: dsl.Bits[dsl.F32](f[2])})))
	}, dsl.Unroll(8))
	base := finite(r.e, r.top.Get()).Named("base")
	decay := dsl.Exp2(before.Sub(base))
	for _, v := range append(r.out, r.sum) {
		v.Set(v.Get().Mul(decay))
	}
	each(func(j u32, p statePart) {
		weight := dsl.Exp2(lse(j, p).Sub(base))
		r.sum.Set(r.sum.Get().Add(weight))
		r.out[0].Set(dsl.FMA(weight, p.lo, r.out[0].Get()))
		r.out[1].Set(dsl.FMA(weight, p.hi, r.out[1].Get()))
	})
}

func (r *running) done() (lo, hi f32) {
	if r.t.sums() {
		return r.out[0].Get(), r.out[1].Get()
	}
	return r.t.divide(r.e, r.out[0].Get(), r.sum.Get()), r.t.divide(r.e, r.out[1].Get(), r.sum.Get())
}
