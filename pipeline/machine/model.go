package machine

import (
	"cmp"
	"math"
	"slices"
)

const (
	micro = 1e-6
	giga  = 1e9
)

// point is a place on a measured curve.
type point struct{ x, y float64 }

// between is a curve's value at x: linear between two points, flat beyond the ends.
func between(curve []point, x float64) float64 {
	i := slices.IndexFunc(curve, func(p point) bool { return p.x >= x })
	switch {
	case i < 0:
		return curve[len(curve)-1].y
	case i == 0:
		return curve[0].y
	}
	a, b := curve[i-1], curve[i]
	return a.y + (b.y-a.y)*(x-a.x)/(b.x-a.x)
}

// CopySeconds is how long one copy of a stage takes to land while every SM has one in
// flight.
func (m *Machine) CopySeconds() float64 {
	c := m.Copies[0]
	return float64(m.SMs*c.InFlight*m.StageBytes) / (c.GBps.Median * giga)
}

// BytesPerSecond is what sms SMs stream together with n bytes in flight on each.
// By Little's law what is in flight altogether decides: up to the first measured point a
// copy takes CopySeconds, from there the measured curve holds, never more than the ceiling.
func (m *Machine) BytesPerSecond(sms int, inFlight int64) float64 {
	all := func(copies int) float64 { return float64(m.SMs) * float64(copies) * float64(m.StageBytes) }
	curve := []point{{}}
	for _, c := range m.Copies {
		curve = append(curve, point{all(c.InFlight), c.GBps.Median * giga})
	}
	by := cmp.Or(m.bandwidth, 1)
	return min(by*between(curve, float64(sms)*float64(inFlight)/by), m.Ceiling.Median*giga)
}

// copies are n bytes in flight on an SM in copies of m.
func (m *Machine) copies(inFlight int64) float64 { return float64(inFlight) / float64(m.StageBytes) }

// LoadSeconds is the latency of a load from the L2 cache with n bytes in flight on
// every SM; 0 is while nothing streams.
func (m *Machine) LoadSeconds(inFlight int64) float64 {
	if inFlight == 0 {
		return m.Idle.Load.Median * micro
	}
	var curve []point
	for _, c := range m.Copies {
		curve = append(curve, point{float64(c.InFlight), c.Load.Median * micro})
	}
	return between(curve, m.copies(inFlight))
}

// VectorSeconds is what an exchange of a vector of n bytes adds to a stream with n
// bytes in flight on every SM, handed on in a way: "barrier", "counted" or "words",
// which name those of Exchange. It may be below 0. Vectors shorter or longer than those
// measured cost what the nearest does. spread is half the distance from the least to the
// greatest. known is whether the file has figures of it.
func (m *Machine) VectorSeconds(way string, bytes int, inFlight int64) (seconds, spread float64, known bool) {
	seconds, known = m.ofVector(way, bytes, inFlight, func(f *Figure) float64 { return f.Median })
	spread, _ = m.ofVector(way, bytes, inFlight, func(f *Figure) float64 { return (f.Max - f.Min) / 2 })
	return seconds, spread, known
}

// ofVector is one number of a figure of VectorSeconds, which micros picks, in seconds: between
// the vectors and the copies in flight that were measured.
func (m *Machine) ofVector(way string, bytes int, inFlight int64,
	micros func(*Figure) float64) (seconds float64, known bool) {
	var curve []point // by copies in flight
	for i := 0; i < len(m.Exchanges); {
		n := m.Exchanges[i].InFlight
		var row []point // by the vector's length
		for ; i < len(m.Exchanges) && m.Exchanges[i].InFlight == n; i++ {
			e := &m.Exchanges[i]
			if f := e.unhidden(way); n > 0 && f != nil {
				row = append(row, point{float64(e.VectorBytes), micros(f) * micro})
			}
		}
		if row != nil {
			curve = append(curve, point{float64(n), between(row, float64(bytes))})
		}
	}
	if curve == nil {
		return 0, false
	}
	return between(curve, m.copies(inFlight)), true
}

// unhidden is what a way adds to a stream, or nil.
func (e *Exchange) unhidden(way string) *Figure {
	of := e.Words
	switch way {
	case "barrier":
		return e.Unhidden
	case "counted":
		of = e.Counted
	case "words":
	default:
		panic("BUG: no way of an exchange is called " + way)
	}
	if of == nil {
		return nil
	}
	return of.Unhidden
}

// WaitSeconds is how long an SM waits at a grid barrier for the others, with n
// bytes in flight on every SM; 0 is while nothing streams. It is the mean over the SMs.
func (m *Machine) WaitSeconds(inFlight int64) float64 {
	return m.exchange(inFlight, 0, func(e *Exchange) float64 { return e.Wait.Median })
}

// SyncSeconds is how long the SMs wait at a sync at which all meet, behind a phase
// in which each streamed n bytes with a given number in flight: mean over the SMs. counts
// is whether it is a count of arrivals, and no barrier.
//
// It is what the sync takes while nothing streams, and what the SMs are apart. The
// latter grows as the sum of many independent delays does, as the root of what was
// streamed, from what was measured at Between bytes.
func (m *Machine) SyncSeconds(inFlight, streamed int64, counts bool) float64 {
	latency := m.WaitSeconds(0)
	apart := max(0, m.WaitSeconds(inFlight)-latency)
	if counts {
		latency = m.exchange(0, 0, func(e *Exchange) float64 {
			if e.Count != nil {
				return e.Count.Median
			}
			return e.Wait.Median
		})
	}
	return latency + apart*math.Sqrt(float64(streamed)/float64(m.Between))
}

// ReadSeconds is how long an SM takes behind a sync to read a vector of n bytes
// that the others wrote, with n bytes in flight on every SM. Beyond the longest
// measured vector it grows as it did up to there.
func (m *Machine) ReadSeconds(inFlight int64, bytes int) float64 {
	if bytes == 0 {
		return 0
	}
	longest := 0
	for _, e := range m.Exchanges {
		longest = max(longest, e.VectorBytes)
	}
	beyond := max(1, float64(bytes)/max(1, float64(longest)))
	return beyond * m.exchange(inFlight, min(bytes, longest), func(e *Exchange) float64 { return e.Read.Median })
}

// exchange is a figure (µs) of the exchanges in seconds, between those measured.
func (m *Machine) exchange(inFlight int64, bytes int, of func(*Exchange) float64) float64 {
	var curve []point // by copies in flight
	for i := 0; i < len(m.Exchanges); {
		n := m.Exchanges[i].InFlight
		var row []point // by the vector's length
		for ; i < len(m.Exchanges) && m.Exchanges[i].InFlight == n; i++ {
			row = append(row, point{float64(m.Exchanges[i].VectorBytes), of(&m.Exchanges[i]) * micro})
		}
		if (n == 0) == (inFlight == 0) {
			curve = append(curve, point{float64(n), between(row, float64(bytes))})
		}
	}
	return between(curve, m.copies(inFlight))
}

// DrainSeconds is how long consumers take for n bytes that lie in the ring.
func (m *Machine) DrainSeconds(bytes int) float64 {
	return m.Drain.Chunk.Median * micro * float64(bytes) / float64(m.StageBytes)
}

// FinishSeconds is what the end of a product takes.
func (m *Machine) FinishSeconds() float64 { return m.Drain.Finish.Median * micro }

// At is m with memory of another ceiling (bytes a second, positive) and all latencies as
// they are: what is in flight has to grow as the bandwidth does.
func (m *Machine) At(bytesPerSecond float64) *Machine {
	by := bytesPerSecond / (m.Ceiling.Median * giga)
	out := *m
	out.Ceiling = Figure{Median: bytesPerSecond / giga, Min: bytesPerSecond / giga, Max: bytesPerSecond / giga}
	out.bandwidth = by * cmp.Or(m.bandwidth, 1)
	return &out
}
