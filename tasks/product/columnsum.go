package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
)

// ColumnSumsLen is the length, in elements, of the shared memory in which what the
// consumer threads have of each token meets: of 8 or 16 columns.
func ColumnSumsLen(consumers, padded int) int { return roundTiles(consumers, padded) * padded }

// perToken is something each consumer thread keeps of its tokens. A thread finishes
// pairs of one token, or, where there are fewer threads than pairs of a tile, of one
// in each stretch of 8.
type perToken[T any] struct {
	e      *grid.Env
	padded int
	slots  []T
}

func newPerToken[T any](e *grid.Env, padded int, fresh func() T) *perToken[T] {
	p := &perToken[T]{e: e, padded: padded}
	for range max(1, tilePairs(padded)/e.Threads()) {
		p.slots = append(p.slots, fresh())
	}
	return p
}

// of calls use with what the thread keeps of the token.
func (p *perToken[T]) of(token u32, use func(v T)) {
	if len(p.slots) == 1 {
		use(p.slots[0])
		return
	}
	each := p.padded / len(p.slots)
	for i, v := range p.slots {
		p.e.K.If(token.DivC(each).EqC(i), func() { use(v) })
	}
}

// gather brings the threads' parts together, in an order that depends on nothing but
// their numbers: fold makes the four lanes of a token that are neighbours agree, put
// writes to a place in shared memory, and then, after a barrier, take reads in thread
// t below padded what belongs to token t, place after place. All consumer threads
// run it.
func (p *perToken[T]) gather(fold func(v T), put func(v T, place u32), take func(place u32)) {
	k, e := p.e.K, p.e
	places := roundTiles(e.Consumers, p.padded) * p.padded
	for i, v := range p.slots {
		fold(v)
		place := e.Tid.DivC(4).AddC(i * e.Threads() / 4)
		k.If(e.Lane.AndC(3).EqC(0).And(place.LtC(places)), func() { put(v, place) })
	}
	e.Sync()
	k.If(e.Tid.LtC(p.padded), func() {
		for r := range places / p.padded {
			take(e.Tid.AddC(r * p.padded))
		}
	})
}

// columnSums are sums over a CTA, one a token.
type columnSums struct {
	*perToken[*dsl.Var[dsl.F32]]
	shared dsl.Buf[dsl.F32]
}

func newColumnSums(e *grid.Env, padded int, shared dsl.Buf[dsl.F32]) columnSums {
	return columnSums{newPerToken(e, padded, func() *dsl.Var[dsl.F32] { return dsl.NewVar(e.K.F32(0), "squares") }),
		shared}
}

// square adds the squares of a and b to the token's sum.
func (s columnSums) square(token u32, a, b f32) {
	s.of(token, func(v *dsl.Var[dsl.F32]) { v.Set(dsl.FMA(b, b, dsl.FMA(a, a, v.Get()))) })
}

// publish writes the sums of all padded tokens to the CTA's row of out.
func (s columnSums) publish(out dsl.Buf[dsl.F32]) {
	k, e := s.e.K, s.e
	total := dsl.NewVar(k.F32(0), "total")
	s.gather(func(v *dsl.Var[dsl.F32]) {
		for d := 1; d < 4; d *= 2 {
			v.Set(v.Get().Add(dsl.ShflXor(v.Get(), d)))
		}
	}, func(v *dsl.Var[dsl.F32], place u32) { s.shared.Store(place, v.Get()) },
		func(place u32) { total.Set(total.Get().Add(s.shared.Load(place))) })
	k.If(e.Tid.LtC(s.padded), func() { out.Store(e.CTA.MulC(s.padded).Add(e.Tid), total.Get()) })
}
