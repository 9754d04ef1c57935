package sample

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// finding is how a warp finds the highest logits of a row. As many lanes as tokens are wanted have a logit that is no
// lower than the floor, so no token under it is among them. Those that are not under it are few, mostly; each lane
// collects its own in Shared, and where they fit they are ranked by comparison with each other.
type finding struct {
	t     *Sample
	e     *grid.Env
	place u32 // the part of Shared, one a row, that the warp has
	floor f32
	count *dsl.Var[dsl.U32] // of the lane, foundOfLane + 1 for more
}

const (
	foundOfLane = 8                // that fit of a lane
	foundOfWarp = 2 * dsl.WarpSize // that fit of all
	foundWords  = 2                // a logit and its token
)

// finding begins with each lane's highest logit.
func (t *Sample) finding(e *grid.Env, place u32, own f32, tops u32) *finding {
	k := e.K
	rank := dsl.NewVar(k.U32(0), "rank")
	k.For(k.U32(0), k.U32(dsl.WarpSize), func(lane u32) {
		other := dsl.Shfl(own, lane)
		before := other.Gt(own).Or(other.Eq(own).And(lane.Lt(e.Lane)))
		rank.Set(rank.Get().Add(dsl.Select(before, k.U32(1), k.U32(0))))
	}, dsl.Unroll(8))
	floor := dsl.WarpMax(dsl.Select(rank.Get().AddC(1).Eq(tops), own, k.F32(math.Inf(-1))))
	return &finding{t, e, place, floor, dsl.NewVar(k.U32(0), "found")}
}

// at is where the i-th pair of the warp's memory is.
func (f *finding) at(i u32) u32 { return f.place.MulC(rowBins).Add(i.MulC(foundWords)) }

// add collects a logit of a lane unless it is under the floor.
func (f *finding) add(token u32, x f32) {
	k, n, above := f.e.K, f.count.Get(), x.Ge(f.floor)
	k.If(above.And(n.LtC(foundOfLane)), func() {
		f.t.Shared.StoreN(f.at(n.MulC(dsl.WarpSize).Add(f.e.Lane)), []u32{dsl.Bits[dsl.U32](x), token})
	})
	f.count.Set(n.Add(dsl.Select(above, k.U32(1), k.U32(0))).MinC(foundOfLane + 1))
}

// write writes the n highest of what each gives the lanes, once add has seen all of it, to b from at on, the highest
// first, of equals the lower token; draw.NoToken where there are fewer.
func (f *finding) write(n u32, each func(body func(token u32, x f32)), b dsl.Buf[dsl.U32], at u32) {
	k := f.e.K
	write := func(i, token u32, x f32) { b.StoreN(at.Add(i.MulC(2)), []u32{dsl.Bits[dsl.U32](x), token}) }
	k.If(n.NeC(0), func() {
		k.IfElse(f.fit(), func() { f.rank(n, write) }, func() {
			f.t.highest(f.e, each, n, func(i, token u32, x f32) { k.If(f.e.Lane.EqC(0), func() { write(i, token, x) }) })
		})
	})
}

// fit is whether all that were found fit, in the warp alike.
func (f *finding) fit() dsl.Pred {
	n := f.count.Get()
	return dsl.All(n.LtC(foundOfLane + 1)).And(dsl.ReduxAdd(n).LtC(foundOfWarp + 1))
}

// rank calls write for the n highest of them, each in one lane, with its place in their order; draw.NoToken where there
// are fewer.
func (f *finding) rank(n u32, write func(i, token u32, x f32)) {
	k, e, s := f.e.K, f.e, f.t.Shared
	none := dsl.Lit[dsl.U32](k, draw.NoToken)
	count := f.count.Get().MinC(foundOfLane) // as fit says, for the analysis of addresses
	words := dsl.NewArray(none, foundOfLane*foundWords, "pair")
	for i := foundOfLane - 1; i >= 0; i-- { // the first last: most lanes have one
		k.If(count.Gt(k.U32(i)), func() {
			for j, v := range s.LoadN(f.at(k.U32(i*dsl.WarpSize).Add(e.Lane)), foundWords) {
				words[i*foundWords+j].Set(v)
			}
		})
	}
	k.SyncWarp() // all have read what they collected
	sum := scan(e, []u32{count}, u32.Add, k.U32(0))
	first, total := sum.Sub(count), dsl.Shfl(sum, k.U32(dsl.WarpSize-1))
	for j := range foundOfLane { // the first and the last are those that most lanes have: 0, and 7 down to 1
		i := (foundOfLane - j) % foundOfLane
		k.If(count.Gt(k.U32(i)), func() {
			s.StoreN(f.at(first.AddC(i)), []u32{words[i*foundWords].Get(), words[i*foundWords+1].Get()})
		})
	}
	k.SyncWarp()
	const each = foundOfWarp / dsl.WarpSize // that a lane ranks
	ranks, owns := dsl.NewArray(k.U32(0), each, "rank"), dsl.NewArray(none, each*foundWords, "own")
	for i := range each {
		k.If(e.Lane.AddC(i*dsl.WarpSize).Lt(total), func() {
			for j, v := range s.LoadN(f.at(e.Lane.AddC(i*dsl.WarpSize)), foundWords) {
				owns[i*foundWords+j].Set(v)
			}
		})
	}
	own := func(i int) (x f32, token u32) {
		return dsl.Bits[dsl.F32](owns[i*foundWords].Get()), owns[i*foundWords+1].Get()
	}
	k.For(k.U32(0), total, func(j u32) {
		other := s.LoadN(f.at(j), foundWords)
		y := dsl.Bits[dsl.F32](other[0])
		for i, rank := range ranks {
			x, token := own(i)
			before := y.Gt(x).Or(y.Eq(x).And(other[1].Lt(token)))
			rank.Set(rank.Get().Add(dsl.Select(before, k.U32(1), k.U32(0))))
		}
	}, dsl.Unroll(4))
	for i, rank := range ranks {
		k.If(e.Lane.AddC(i*dsl.WarpSize).Lt(total).And(rank.Get().Lt(n)), func() {
			x, token := own(i)
			write(rank.Get(), token, x)
		})
	}
	k.If(e.Lane.Ge(total).And(e.Lane.Lt(n)), func() { write(e.Lane, none, k.F32(math.Inf(-1))) })
}

// highest calls found for the n highest logits that each gives the lanes of a warp, the highest first, of equals the
// lower token; draw.NoToken where there are fewer. A lane looks through its logits again when its highest is taken.
func (t *Sample) highest(e *grid.Env, each func(body func(token u32, x f32)), n u32, found func(i, token u32, x f32)) {
	k := e.K
	none, low := dsl.Lit[dsl.U32](k, draw.NoToken), k.F32(math.Inf(-1))
	own := product.Best{Value: dsl.NewVar(low, "own"), Index: dsl.NewVar(none, "own_token")}
	last := product.Best{Value: dsl.NewVar(k.F32(math.Inf(1)), "last"), Index: dsl.NewVar(k.U32(0), "last_token")}
	look := func() {
		own.Value.Set(low)
		own.Index.Set(none)
		each(func(token u32, x f32) {
			have, at, y, before := own.Value.Get(), own.Index.Get(), last.Value.Get(), last.Index.Get()
			left := x.Lt(y).Or(x.Eq(y).And(token.Gt(before)))
			better := left.And(x.Gt(have).Or(x.Eq(have).And(token.Lt(at))))
			own.Value.Set(dsl.Select(better, x, have))
			own.Index.Set(dsl.Select(better, token, at))
		})
	}
	take := dsl.NewVar(k.U32(1), "take")
	k.For(k.U32(0), n, func(i u32) {
		k.If(take.Get().NeC(0), look)
		last.Value.Set(own.Value.Get())
		last.Index.Set(own.Index.Get())
		last.Warp()
		found(i, last.Index.Get(), last.Value.Get())
		take.Set(dsl.Select(own.Index.Get().Eq(last.Index.Get()), k.U32(1), k.U32(0)))
	}, dsl.Unroll(1))
}
