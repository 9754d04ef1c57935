package product

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Early is what threads read for a product while its input is not there yet, so that no round trip to memory is left
// behind it: a thread reads numbers for the rows that it finishes, in pairs. All products of a kernel share the
// registers: what one has fetched it has used before the next fetches.
type Early struct {
	Pairs int // most pairs that a product has fetched; 0 is 1

	numbers []*dsl.Var[dsl.F32]
}

// Start declares the registers; it runs at the top of the consumers' role.
func (x *Early) Start(e *grid.Env) { x.numbers = dsl.NewArray(e.K.F32(0), 2*max(1, x.Pairs), "early") }

// Of is what is fetched for g, of which a thread finishes each rows at a time, 2 or 4; nil where it does so more than
// once.
func (x *Early) Of(e *grid.Env, g *GEMV, each int) *Fetched {
	if each > 2*max(1, x.Pairs) {
		panic(fmt.Sprintf("BUG: %d rows a thread, and registers for %d numbers", each, 2*max(1, x.Pairs)))
	}
	if g.M.MaxCount() > batchTiles || e.Threads() < batchTiles*pipeline.TileRows/each {
		return nil
	}
	return &Fetched{x, g, each}
}

// Fetched are a product's numbers in the registers of Early. All its methods are for nil, too,
// where nothing is fetched.
type Fetched struct {
	In   *Early // the registers
	g    *GEMV
	each int
}

// Fetch runs in all consumer threads, before the product's Consume: get reads the numbers for
// the rows from row on, at most as many as there are registers for.
func (x *Fetched) Fetch(e *grid.Env, share Share, get func(row u32) []f32) {
	if x == nil {
		return
	}
	k := e.K
	row := share.First.MulC(pipeline.TileRows).Add(e.Tid.MulC(x.each)).Named("row")
	mine := e.Tid.Lt(share.Count.MulC(pipeline.TileRows / x.each)).And(row.LtC(x.g.M.Rows))
	k.IfElse(mine, func() { x.In.Set(get(row)) },
		func() { x.In.Set(slices.Repeat([]f32{k.F32(0)}, len(x.In.numbers))) })
}

// Set keeps numbers, two a pair, of at most Pairs pairs; those behind stay what they are.
func (x *Early) Set(v []f32) {
	for i, to := range x.numbers[:len(v)] {
		to.Set(v[i])
	}
}

// Or is the first pair that was fetched, or where nothing is, what late reads.
func (x *Fetched) Or(late func() []f32) []f32 { return x.Pair(0, late) }

// Pair is the nth pair that was fetched, or where nothing is, what late reads.
func (x *Fetched) Pair(nth int, late func() []f32) []f32 {
	if x == nil {
		return late()
	}
	return []f32{x.In.numbers[2*nth].Get(), x.In.numbers[2*nth+1].Get()}
}

// Vector is a vector's elements of the rows that a thread finishes, and what late makes where
// they were not fetched.
func (x *Fetched) Vector(late func() Vector) Vector {
	if x == nil {
		return late()
	}
	if x.each != 4 {
		panic(fmt.Sprintf("BUG: %s: numbers of %d rows a thread were fetched, a vector has four", x.g.Name, x.each))
	}
	return func(u32) (v []f32) {
		for _, number := range x.In.numbers[:4] {
			v = append(v, number.Get())
		}
		return v
	}
}

// Gains are a norm's of the elements that a thread stages, read before these are there.
// All norms of a kernel share the registers, as with Early.
type Gains struct {
	N    int               // length of the vector
	Gain dsl.Buf[dsl.BF16] // of all norms, [norms][N]

	pairs [][]*dsl.Var[dsl.BF16x2] // [a thread's elements 4i to 4i + 3, in order][2]
	order *grid.Order              // in which they were fetched
}

// maxEarlyGains is how many fours of gains a thread keeps at most.
const maxEarlyGains = 4

// Start declares the registers; it runs at the top of the consumers' role. Where a thread
// has too many elements there are none.
func (t *Gains) Start(e *grid.Env) {
	t.pairs = nil
	n := pipeline.CeilDiv(t.N/4, e.Threads())
	if n > maxEarlyGains {
		return
	}
	for range n {
		t.pairs = append(t.pairs, dsl.NewArray(dsl.Lit[dsl.BF16x2](e.K, 0), 2, "gain"))
	}
}

// problem says what is wrong where a norm of n elements that are staged in an order is to take its gains from here.
func (t *Gains) problem(n int, order *grid.Order) string {
	switch {
	case t == nil:
		return ""
	case t.N != n:
		return fmt.Sprintf("norm input: Early is for %d elements, want %d", t.N, n)
	case len(t.pairs) > 0 && !t.order.Equal(order):
		return fmt.Sprintf("norm input: Early was fetched in order %v, want %v", t.order, order)
	}
	return ""
}

// Fetch reads the gains of a norm, in all consumer threads: of the elements that a thread stages in the order, or where
// that is nil in EachConsumer's. The norm's input is to be staged in the same one.
func (t *Gains) Fetch(e *grid.Env, norm u32, order *grid.Order) {
	norm, t.order = dsl.Optional(norm), order
	if order != nil && len(t.pairs) > 0 {
		nth := 0
		e.WithOrder(order, func() {
			e.EachConsumer(t.N/4, func(i u32) {
				t.set(nth, t.load(e, norm, i))
				nth++
			})
		})
		return
	}
	for n := range t.pairs {
		i := e.Tid.AddC(n * e.Threads())
		if (n+1)*e.Threads() <= t.N/4 {
			t.set(n, t.load(e, norm, i))
		} else { // the last ones
			none := dsl.Lit[dsl.BF16x2](e.K, 0)
			e.K.IfElse(i.LtC(t.N/4), func() { t.set(n, t.load(e, norm, i)) }, func() { t.set(n, []pair{none, none}) })
		}
	}
}

func (t *Gains) set(nth int, gains []pair) {
	for j, v := range gains {
		t.pairs[nth][j].Set(v)
	}
}

// load reads the gains of elements 4i to 4i + 3.
func (t *Gains) load(e *grid.Env, norm, i u32) []pair {
	return dsl.View[dsl.BF16x2](t.Gain).LoadN(norm.MulC(t.N/2).Add(i.MulC(2)), 2, dsl.CacheHint(dsl.NonCoherent))
}

// of is load, of what was fetched where something was; elements come in order, nth counts
// them, over all the ways that lead to them.
func (t *Gains) of(e *grid.Env, norm, i u32, nth int) []pair {
	if len(t.pairs) == 0 {
		return t.load(e, norm, i)
	}
	v := t.pairs[nth%len(t.pairs)]
	return []pair{v[0].Get(), v[1].Get()}
}
