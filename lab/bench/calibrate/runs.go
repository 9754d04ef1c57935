package calibrate

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/mkgen/mkgen/pipeline/machine"
)

// runs are the launches of one session and what is made of them. After an error nothing
// runs, and figures are 0.
type runs struct {
	s   *Suite
	k   *Session
	ctx context.Context
	err error

	nsPerClock float64 // of the SMs, as found by stream
}

// figure is the median of values and their spread, rounded for a file; 0 of none.
func figure(values []float64) machine.Figure {
	if len(values) == 0 {
		return machine.Figure{}
	}
	v := slices.Sorted(slices.Values(values))
	return rounded(machine.Figure{Median: (v[(len(v)-1)/2] + v[len(v)/2]) / 2, Min: v[0], Max: v[len(v)-1]})
}

// rounded has five significant digits.
func rounded(f machine.Figure) machine.Figure {
	for _, x := range []*float64{&f.Median, &f.Min, &f.Max} {
		y, err := strconv.ParseFloat(strconv.FormatFloat(*x, 'g', 5, 64), 64)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		*x = y
	}
	return f
}

// each runs a launch that warms up and those that count, and calls found for each of
// these.
func (r *runs) each(l Launch, found func(f *Found)) {
	for i := range r.s.launches + 1 {
		if r.err != nil {
			return
		}
		f, err := r.k.Launch(r.ctx, l)
		if err != nil {
			r.err = err
			return
		}
		if i > 0 {
			found(f)
		}
	}
}

// whole streams all of the data, in one phase, unread.
func (r *runs) whole() Launch {
	return Launch{Phases: 1, Tiles: int(r.k.bytes / int64(r.k.shape.SMs) / r.k.shape.tileBytes())}
}

// stream is the bandwidth in GB/s. It also finds how long a clock of the SMs is.
func (r *runs) stream() machine.Figure {
	l := r.whole()
	bytes := float64(l.Tiles) * float64(r.k.shape.SMs) * float64(r.k.shape.tileBytes())
	var rates, clocks []float64
	r.each(l, func(f *Found) {
		rates = append(rates, bytes/float64(f.Took.Nanoseconds()))
		for _, h := range f.Heads {
			clocks = append(clocks, float64(h[headEndTime]-h[headBeginTime])/float64(h[headEnd]-h[headBegin]))
		}
	})
	r.nsPerClock = figure(clocks).Median
	if r.err == nil && !(r.nsPerClock > 0) {
		r.err = fmt.Errorf("calibrate: the GPU's timer stood still for %d bytes", int64(bytes))
	}
	return figure(rates)
}

// micros are clocks in µs.
func (r *runs) micros(clocks float64) float64 { return clocks * r.nsPerClock / 1e3 }

// latency is that of n loads, and of atomics, of each SM beside a launch: means of
// the SMs.
func (r *runs) latency(beside Launch, n int) (out machine.Latency) {
	beside.Probes = n
	for _, atomic := range []bool{false, true} {
		beside.Atomic = atomic
		var each []float64
		r.each(beside, func(f *Found) {
			for _, p := range f.Probes {
				each = append(each, r.micros(float64(p[probeTook])/float64(n)))
			}
		})
		if atomic {
			out.Atomic = figure(each)
		} else {
			out.Load = figure(each)
		}
	}
	return out
}

// cold is how many phases of a launch do not count.
const cold = 2

// exchange is that of a vector of n bytes, with n copies in flight or, if 0,
// nothing that streams.
func (r *runs) exchange(inFlight, bytes int) machine.Exchange {
	f := r.syncWay(inFlight, bytes, Barrier)
	out := machine.Exchange{InFlight: inFlight, VectorBytes: bytes, Wait: figure(f.wait), Unhidden: f.unhidden}
	if bytes == 0 {
		count := figure(r.syncWay(inFlight, 0, Count).wait)
		out.Count = &count
		return out
	}
	out.Read = figure(f.read)
	way := func(h Sync) *machine.Way {
		f := r.syncWay(inFlight, bytes, h)
		return &machine.Way{Took: figure(f.took), Unhidden: f.unhidden}
	}
	out.Counted, out.Words = way(Counted), way(Words)
	return out
}

// found is what syncs took in µs, means over the SMs, of every phase.
type found struct {
	wait, read, took []float64
	unhidden         *machine.Figure // where something streams; not of a Count
}

// syncWay is that of a vector of n bytes. While something streams the same launch
// without syncs is beside it each time, but for a Count, of which only the wait is
// wanted.
func (r *runs) syncWay(inFlight, bytes int, how Sync) (out found) {
	l := Launch{Phases: r.s.idle, Sync: how, VectorBytes: bytes}
	if inFlight > 0 {
		l.Tiles, l.Work = r.s.tiles, true
		if l.Phases = r.k.phasesOf(l.Tiles); l.Phases <= cold && r.err == nil {
			r.err = fmt.Errorf("calibrate: %d bytes are enough for %d exchanges, want more than %d", r.k.bytes, l.Phases, cold)
		}
	}
	without := l
	without.Sync, without.VectorBytes = None, 0
	beside := inFlight > 0 && how != Count
	var unhidden []float64
	r.each(l, func(f *Found) {
		for _, phase := range f.Stamps[cold:] {
			wait, read := r.micros(mean(phase, stampWait)), r.micros(mean(phase, stampRead))
			out.wait, out.read, out.took = append(out.wait, wait), append(out.read, read), append(out.took, wait+read)
		}
		if !beside {
			return
		}
		plain, err := r.k.Launch(r.ctx, without)
		if r.err = err; err == nil {
			unhidden = append(unhidden, float64((f.Took-plain.Took).Nanoseconds())/1e3/float64(l.Phases))
		}
	})
	if beside {
		u := figure(unhidden)
		out.unhidden = &u
	}
	return out
}

// mean is that of a word over the SMs.
func mean(sms [][]uint32, word int) float64 {
	sum := 0.0
	for _, x := range sms {
		sum += float64(x[word])
	}
	return sum / float64(len(sms))
}

// drain is how long consumers take for what lies in the ring: of one row tile and of
// two, the difference is a tile's chunks, and the rest what ends a product, or 0 where that is
// too little to tell. Figures are of the SMs.
func (r *runs) drain() machine.Drain {
	chunks := r.chunksPerTile()
	took := make([][][]float64, 2) // of one and of two tiles, of each SM
	for i := range took {
		took[i] = make([][]float64, r.k.shape.SMs)
		l := Launch{Phases: min(r.s.drains, r.k.phasesOf(i+1)), Tiles: i + 1, Work: true, Ready: (i + 1) * chunks}
		r.each(l, func(f *Found) {
			for _, phase := range f.Stamps[min(cold, len(f.Stamps)):] {
				for sm, x := range phase {
					took[i][sm] = append(took[i][sm], r.micros(float64(x[stampDrain])))
				}
			}
		})
	}
	var chunk, finish []float64
	for sm := range r.k.shape.SMs {
		a, b := figure(took[0][sm]).Median, figure(took[1][sm]).Median
		each := (b - a) / float64(chunks)
		chunk, finish = append(chunk, each), append(finish, max(0, a-float64(chunks)*each))
	}
	return machine.Drain{Chunk: figure(chunk), Finish: figure(finish)}
}

// chunksPerTile is how many full stages a row tile takes.
func (r *runs) chunksPerTile() int { return int(r.k.shape.tileBytes()) / r.k.shape.StageBytes }
