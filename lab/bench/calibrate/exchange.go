package calibrate

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
)

// wordPayload is how many bytes of a vector a word of 16 bytes carries.
const wordPayload = 8

// exchange is that of a phase: each CTA writes its part of a vector and reads the whole.
// Vectors take turns in two places: whoever writes to one again has read all of the other,
// which others wrote when they had read the first. So each CTA must write some.
type exchange struct {
	b                 *builder
	bar               *grid.Barrier
	phase             u32
	wait, read, wrong *dsl.Var[dsl.U32]
}

// value is what element i of the vector is: no launch before had it there.
func (x *exchange) value(i u32) u32 { return x.b.salt.Add(x.phase.MulC(maxPhases)).Add(i) }

// turn is where the vector of n elements begins among those of two.
func (x *exchange) turn(n int) u32 { return x.phase.AndC(1).MulC(n).Named("turn") }

// share calls body for this CTA's part of n elements.
func (x *exchange) share(n u32, body func(i u32)) {
	e := x.b.e
	x.b.k.ForStep(e.CTA.Add(e.Tid.MulC(x.b.SMs)), n, x.b.SMs*e.Threads(), body)
}

// check counts an element that is not what was written.
func (x *exchange) check(found, i u32) {
	x.b.k.If(found.Ne(x.value(i)), func() { x.wrong.Set(x.wrong.Get().AddC(1)) })
}

// behindAll has all CTAs meet between writing and reading, at the barrier or at a count.
func (x *exchange) behindAll() {
	b, k, e := x.b, x.b.k, x.b.e
	turn := x.turn(b.VectorBytes / element)
	x.share(b.units, func(i u32) {
		v := x.value(i)
		b.vector.StoreN(turn.Add(i).MulC(4), []u32{v, v, v, v})
	})
	e.Sync()
	arrived := b.passed.read()
	k.IfElse(b.syncWay.EqC(int(Count)), func() { x.bar.Count(nil, nil) }, x.bar.Sync)
	released := b.clock() // of thread 0, which polls: the others have come to the barrier that ends it before
	x.each(b.units, unrolled, func(at []u32, in func(j int, store func())) {
		var all [][]u32
		for _, i := range at {
			all = append(all, b.vector.LoadN(turn.Add(i).MulC(4), 4))
		}
		for j, v := range all {
			in(j, func() {
				b.staged.StoreN(at[j].MulC(4), v)
				x.check(v[0], at[j])
			})
		}
	})
	x.note(arrived, released)
}

// inWords passes the vector in words with tags, behind a count or behind nothing.
func (x *exchange) inWords() {
	b, k := x.b, x.b.k
	turn, n, tag := x.turn(b.VectorBytes/wordPayload), b.units.MulC(element/wordPayload).Named("words"),
		b.tag.Add(x.phase).Named("running_tag")
	x.share(n, func(i u32) {
		b.words.Store(turn.Add(i), dsl.Join(x.value(i), x.value(i), k.U32(0), tag), dsl.Relaxed(dsl.GPUScope))
	})
	arrived := b.clock()
	k.If(b.syncWay.EqC(int(Counted)), func() { x.bar.Count(nil, nil) })
	released := b.clock()
	words := &grid.LL{Flag: func() u32 { return tag }}
	x.each(n, 2*unrolled, func(at []u32, in func(j int, store func())) {
		var places []u32
		for _, i := range at {
			places = append(places, turn.Add(i))
		}
		for j, v := range words.All(b.e, b.words, places, "waits for word %d of the vector") {
			w := dsl.Split(v)
			in(j, func() {
				b.staged.StoreN(at[j].MulC(2), []u32{w[0], w[1].Or(w[2])})
				x.check(w[0], at[j])
			})
		}
	})
	x.note(arrived, released)
}

// each calls body in the consumer threads for their elements of n, some at a time, whose
// loads can be under way together: those beyond the end are the last again, and in does
// nothing for them.
func (x *exchange) each(n u32, together int, body func(at []u32, in func(j int, store func()))) {
	k, e := x.b.k, x.b.e
	k.ForStep(e.Tid, n, together*e.Threads(), func(from u32) {
		var at, capped []u32
		for j := range together {
			i := from.AddC(j * e.Threads())
			at, capped = append(at, i), append(capped, i.Min(n.SubC(1)))
		}
		body(capped, func(j int, store func()) { k.If(at[j].Lt(n), store) })
	}, dsl.Unroll(1))
}

// note notes what it took, once the CTA has the whole vector.
func (x *exchange) note(arrived, released u32) {
	x.b.e.Sync()
	x.wait.Set(released.Sub(arrived))
	x.read.Set(x.b.passed.read().Sub(released))
}

// unrolled is how many 16-byte loads of the vector a thread has under way.
const unrolled = 4
