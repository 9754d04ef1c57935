package tasks

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
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
// hand-off may be left out. It is the same in all CTAs.
func (m *MergeTable) Any(e *Env) dsl.Pred {
	return dsl.Uniform(m.word(e.K.U32(m.Tokens*m.KVHeads)), dsl.GPUScope).NeC(0)
}

// statesAtOnce is how many states a thread has loads in flight for.
const statesAtOnce = 24

// emitTable merges two elements a lane.
func (t *Merge) emitTable(e *Env, s Step) {
	k, m := e.K, t.Table
	if m.Tokens < 1 || m.KVHeads < 1 || t.Heads < 1 || t.Heads%m.KVHeads != 0 || t.D < 2 || t.D%2 != 0 || m.Final == nil {
		k.Require(false, "merge: %d tokens, %d heads of %d, %d KV heads: want at least 1 of each, whole groups, an even head and Final", m.Tokens, t.Heads, t.D, m.KVHeads)
		return
	}
	n, group := m.Tokens*t.Heads*t.D/2, t.Heads/m.KVHeads
	k.ForStep(e.Warp.MulC(e.Grid).Add(e.CTA), k.U32(ceilDiv(n, dsl.WarpSize)), e.Grid*e.Consumers, func(item u32) {
		i := item.MulC(dsl.WarpSize).Add(e.Lane).Named("i")
		row, dim := i.DivC(t.D/2), i.RemC(t.D/2).MulC(2)
		token, head := row.DivC(t.Heads).Named("row"), row.RemC(t.Heads).Named("head")
		states := func() {
			at := token.MulC(m.KVHeads).Add(head.DivC(group))
			first, end := m.word(at).Named("first"), m.word(at.AddC(1)).Named("end")
			k.If(first.Lt(end), func() {
				lo, hi := t.states(e, first, end, head.RemC(group), dim, group)
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

// states merges states first … end−1 (at least one) of a head of the group, in
// their order, statesAtOnce at a time.
func (t *Merge) states(e *Env, first, end, head, dim u32, group int) (lo, hi f32) {
	k := e.K
	top, sum := dsl.NewVar(k.F32(math.Inf(-1)), "top"), dsl.NewVar(k.F32(0), "sum")
	out := dsl.NewArray(k.F32(0), 2, "out")
	k.ForStep(first, end, statesAtOnce, func(from u32) {
		var lse []f32
		var part [][]f32
		for j := range statesAtOnce {
			state := from.AddC(j).Min(end.SubC(1)).MulC(group).Add(head)
			part = append(part, t.In.LoadN(state.MulC(t.D).Add(dim), 2))
			if !t.sums() {
				lse = append(lse, t.lse(e, from.AddC(j), end, state))
			}
		}
		if t.sums() {
			t.addSums(e, from, end, part, out)
			return
		}
		most := top.Get()
		for _, l := range lse {
			most = most.Max(l)
		}
		base := finite(e, most)
		decay := dsl.Exp2(top.Get().Sub(base))
		total := sum.Get().Mul(decay)
		acc := []f32{out[0].Get().Mul(decay), out[1].Get().Mul(decay)}
		for j, l := range lse {
			weight := dsl.Exp2(l.Sub(base))
			total = total.Add(weight)
			for x := range acc {
				acc[x] = dsl.FMA(weight, part[j][x], acc[x])
			}
		}
		top.Set(most)
		sum.Set(total)
		out[0].Set(acc[0])
		out[1].Set(acc[1])
	}, dsl.Unroll(1))
	if t.sums() {
		return out[0].Get(), out[1].Get()
	}
	return t.divide(e, out[0].Get(), sum.Get()), t.divide(e, out[1].Get(), sum.Get())
}

// lse is the log-sum-exp of a state, −inf from end on.
func (t *Merge) lse(e *Env, i, end, state u32) f32 {
	k := e.K
	l := t.LSE.Load(state)
	if t.LastBias != 0 {
		l = dsl.Select(i.AddC(1).Eq(end), l.Add(k.F32(t.LastBias)), l)
	}
	return dsl.Select(i.Lt(end), l, k.F32(math.Inf(-1)))
}

// addSums adds states that are sums.
func (t *Merge) addSums(e *Env, from, end u32, part [][]f32, out []*dsl.Var[dsl.F32]) {
	for x := range out {
		acc := out[x].Get()
		for j := range part {
			acc = acc.Add(dsl.Select(from.AddC(j).Lt(end), part[j][x], e.K.F32(0)))
		}
		out[x].Set(acc)
	}
}
