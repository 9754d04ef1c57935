package pipeline

import "github.com/mkgen/mkgen/dsl"

// The waits at the ring, as a trace names them. There is one for every chunk, or two, and
// most are short: a span each would make a step several percent slower. So those that are
// long (with EachWait all) have spans of their own, and the others, and where chunks are held
// all (Trace.Summed), are summed: a sum is noted once in SummedChunks chunks, where a long
// wait begins, and where any other span begins or ends.
//
// A span of a sum is as long as its waits together, and ends where the last of them did.
// The detail of all these spans is the number of the last chunk of the launch whose wait
// is in it. So each sum says how many chunks it is of.
const (
	ChunkWait  = "waits for a chunk" // consumers: a long one, or any where warps share chunks out
	ChunkWaits = "waits for chunks"  // consumers: a sum
	StageWait  = "waits for a free stage"
	StageWaits = "waits for free stages" // the producer's sum, with that of FlightWait before it
	// FlightWait is of the producer, always a sum, and lies before the StageWaits of the
	// same chunks.
	FlightWait = "waits for copies in flight"
)

// SummedChunks is how many chunks' waits are one sum at most. A power of two.
const SummedChunks = 32

// longWait is from how many clocks on a wait is long: more than a chunk takes of an SM's
// share of memory's bandwidth, which is what most waits of a product are bounded by.
func longWait(stageBytes int) int { return max(2048, stageBytes/8) }

// ringWaits are a role's waits at the ring that are not noted yet.
type ringWaits struct {
	long   int  // clocks from which on a wait is
	limits bool // whether the producer waits for copies in flight; of another ring than a product's: false

	chunks *dsl.Var[dsl.U32]   // of the launch before the role's position
	names  []string            // of the sums
	sums   []*dsl.Var[dsl.U32] // of waits, in clocks
	ended  *dsl.Var[dsl.U32]   // when the last of them did
	busy   bool                // while code is built that uses a chunk
}

func (w *ringWaits) start(k *dsl.Kernel, track int) {
	zero := k.U32(0)
	w.chunks, w.ended, w.sums = dsl.NewVar(zero, "chunks"), dsl.NewVar(zero, "ended"), nil
	if track == 0 {
		w.names = []string{ChunkWaits}
	} else if w.names = []string{StageWaits}; w.limits {
		w.names = []string{FlightWait, StageWaits}
	}
	for range w.names {
		w.sums = append(w.sums, dsl.NewVar(zero, "waited"))
	}
}

// passed is how many chunks of the launch lie before a role's position.
func (t *Trace) passed() dsl.Val[dsl.U32] { return t.at.chunks.Get() }

// pass moves it on.
func (t *Trace) pass(n dsl.Val[dsl.U32]) {
	if t != nil {
		t.at.chunks.Set(t.passed().Add(n))
	}
}

// settle notes the sums, and begins new ones.
func (t *Trace) settle() { t.k.If(t.notes, t.takeSums()) }

// takeSums begins new sums and returns what notes the old ones, if there are any: the
// waits up to the last chunk passed. It runs in the thread that notes.
func (t *Trace) takeSums() (note func()) {
	w, k := &t.at, t.k
	ended, last, total := w.ended.Get(), t.passed().SubC(1), k.U32(0)
	var sums []dsl.Val[dsl.U32]
	var sites []int
	for i, s := range w.sums {
		sites = append(sites, t.site(TraceWait, w.names[i]))
		sums = append(sums, s.Get())
		total = total.Add(s.Get())
		s.Set(k.U32(0))
	}
	w.ended.Set(k.U32(0)) // what is known to be zero takes no register until the next wait
	return func() {
		k.If(total.NeC(0), func() {
			begin := ended.Sub(total)
			for i, s := range sums {
				end := begin.Add(s)
				t.note(sites[i], begin, end, last)
				begin = end
			}
		})
	}
}

// due is whether sums are to be noted before a wait for chunk number is added to them.
func (t *Trace) due(number dsl.Val[dsl.U32], long dsl.Pred) dsl.Pred {
	return t.notes.And(long.Or(number.AndC(SummedChunks - 1).EqC(0)))
}

// Summed runs body, a few waits for chunks in a span of their own: all are added up there,
// long ones too, unless each wait is a span. It saves the code that looks at each.
func (t *Trace) Summed(body func()) {
	if t == nil || t.EachWait {
		body()
		return
	}
	t.summed = true
	body()
	t.summed = false
}

// draining are the clocks around a consumer warp's wait for the next chunk. They are made
// use of when the chunk has been drained: who needs one at once waits for it.
type draining struct {
	t          *Trace
	begin, end dsl.Val[dsl.U32]
}

func (t *Trace) draining() *draining {
	if t == nil {
		return nil
	}
	return &draining{t: t, begin: t.clock().Named("began")}
}

// landed is behind the wait.
func (d *draining) landed() {
	if d != nil {
		d.end, d.t.at.busy = d.t.clock(), true
	}
}

// drained is behind the chunk's use.
func (d *draining) drained() {
	if d == nil {
		return
	}
	t, k, w := d.t, d.t.k, &d.t.at
	w.busy = false
	number, sum := t.passed(), w.sums[0]
	took := d.end.Sub(d.begin).Named("took")
	if t.summed {
		t.add(sum, took, d.end)
		return
	}
	long := took.GeC(w.long)
	k.If(t.due(number, long), func() {
		t.takeSums()()
		k.If(long, func() {
			t.note(t.site(TraceWait, ChunkWait), d.begin, d.end, number)
			sum.Set(k.U32(0).Sub(took)) // what follows adds it
		})
	})
	t.add(sum, took, d.end)
}

// add adds a wait for a chunk to a sum.
func (t *Trace) add(sum *dsl.Var[dsl.U32], took, ended dsl.Val[dsl.U32]) {
	sum.Set(sum.Get().Add(took))
	t.at.ended.Set(ended)
	t.pass(t.k.U32(1))
}

// filling are the clocks of the producer between the waits for a chunk's stage. They are
// made use of when the copy has been issued, which they are not to delay: the fence before
// it would wait for a span that is being stored.
type filling struct {
	t       *Trace
	clocks  []dsl.Val[dsl.U32]     // before the wait for a stage, behind it, and behind that for copies in flight
	yielded [][2]*dsl.Var[dsl.U32] // before and behind further waits for those; both 0 where there was none
}

func (t *Trace) filling() *filling {
	if t == nil {
		return nil
	}
	f := &filling{t: t}
	f.tick()
	return f
}

// tick is behind a wait.
func (f *filling) tick() {
	if f != nil {
		f.clocks = append(f.clocks, f.t.clock())
	}
}

// yielding runs wait, one for copies in flight that not every chunk has.
func (f *filling) yielding(wait func()) {
	if f == nil {
		wait()
		return
	}
	at := f.yielded[len(f.yielded)-1]
	at[0].Set(f.t.clock())
	wait()
	at[1].Set(f.t.clock())
}

// mayYield stands before each condition of yielding.
func (f *filling) mayYield() {
	if f != nil {
		zero := f.t.k.U32(0)
		f.yielded = append(f.yielded, [2]*dsl.Var[dsl.U32]{dsl.NewVar(zero, "yields"), dsl.NewVar(zero, "yielded")})
	}
}

// issued is behind the issue of the copy.
func (f *filling) issued() {
	if f == nil {
		return
	}
	t, k, w := f.t, f.t.k, &f.t.at
	number, begin, free := t.passed(), f.clocks[0], f.clocks[1]
	took, sum := free.Sub(begin).Named("took"), w.sums[len(w.sums)-1]
	long := took.GeC(w.long)
	k.If(t.due(number, long), func() {
		t.takeSums()()
		k.If(long, func() {
			t.note(t.site(TraceWait, StageWait), begin, free, number)
			sum.Set(k.U32(0).Sub(took)) // what follows adds it
		})
	})
	sum.Set(sum.Get().Add(took))
	w.ended.Set(free)
	if w.limits {
		ended := f.clocks[2]
		for _, at := range f.yielded {
			ended = ended.Add(at[1].Get().Sub(at[0].Get()))
		}
		w.sums[0].Set(w.sums[0].Get().Add(ended.Sub(free)))
		w.ended.Set(ended) // or somewhat later
	}
	t.pass(k.U32(1))
}
