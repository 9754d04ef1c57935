package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Mismatch is a word of "out" in which two devices disagree.
type Mismatch struct {
	Span      Span
	Thread    int // in the grid
	Got, Want uint32
}

// String names the row, the thread and both values.
func (m Mismatch) String() string {
	if m.Span.Check == Bits {
		return fmt.Sprintf("%s %s, thread %d: got %#08x, want %#08x", m.Span.Op, m.Span.Name, m.Thread, m.Got, m.Want)
	}
	return fmt.Sprintf("%s %s, thread %d: got %g (%#08x), want %g (%#08x)", m.Span.Op, m.Span.Name, m.Thread,
		math.Float32frombits(m.Got), m.Got, math.Float32frombits(m.Want), m.Want)
}

// Compare holds two contents of "out" against each other, span by span. Both
// must be Words words long.
func (r *OpRows) Compare(got, want []byte) ([]Mismatch, error) {
	if len(got) != 4*r.Words || len(want) != 4*r.Words {
		return nil, fmt.Errorf("results of %d and %d bytes, want %d", len(got), len(want), 4*r.Words)
	}
	var bad []Mismatch
	for _, s := range r.Spans {
		for t := range s.Words {
			at := 4 * (s.First + t)
			g, w := binary.LittleEndian.Uint32(got[at:]), binary.LittleEndian.Uint32(want[at:])
			if !s.agree(g, w) {
				bad = append(bad, Mismatch{Span: s, Thread: t, Got: g, Want: w})
			}
		}
	}
	return bad, nil
}

// agree applies the span's check to one word.
func (s Span) agree(got, want uint32) bool {
	if got == want {
		return true
	}
	if s.Check == Bits {
		return false
	}
	g, w := float64(math.Float32frombits(got)), float64(math.Float32frombits(want))
	switch {
	case math.IsNaN(g) || math.IsNaN(w):
		return math.IsNaN(g) && math.IsNaN(w)
	case s.Check == Zero:
		return g == 0 && w == 0
	case s.Check == Near && !math.IsInf(g, 0) && !math.IsInf(w, 0):
		return math.Abs(g-w) <= s.Abs+s.Rel*math.Abs(w)
	}
	return false
}
