package trace

import (
	"fmt"
	"math"
	"strconv"

	"github.com/mkgen/mkgen/internal/picture"
)

// strokes is an SVG path of horizontal strokes, all at height 0, from intervals in
// order. Those shorter than sliver pixels are drawn once they add up to one, where the
// last of them lies, so that the picture stays small and shares stay right; strokes
// that touch become one.
type strokes struct {
	x        func(t float64) float64
	from, to float64 // the stroke being made; from == to: none
	owed     float64 // length of slivers
	d        []byte
	pen      float64 // where the pen is, as written
}

const sliver = 0.4

// add adds an interval clipped to a window.
func (s *strokes) add(begin, end float64, w window) {
	begin, end = max(begin, w.begin), min(end, w.end)
	if !(end > begin) {
		return
	}
	from, to := s.x(begin), s.x(end)
	if s.to > s.from && from-s.to < 0.05 {
		s.to = max(s.to, to)
		return
	}
	if s.owed += to - from; s.owed < sliver {
		return
	}
	s.flush()
	s.from, s.to = max(to-s.owed, s.to), to
	s.owed = 0
}

// flush writes the stroke being made.
func (s *strokes) flush() {
	from, to := round(s.from), round(s.to)
	if to <= from {
		return
	}
	if len(s.d) == 0 {
		s.d = append(s.d, 'M')
	} else {
		s.d = append(s.d, 'm')
	}
	s.d = append(append(append(s.d, px(from-s.pen)...), " 0h"...), px(to-from)...)
	s.pen = to
	s.from = s.to
}

func round(x float64) float64 {
	if x < 0 {
		return -round(-x)
	}
	return float64(int(x*10+0.5)) / 10
}

// draw draws the strokes in a colour, as wide as the group they are in says.
func (s *strokes) draw(c *picture.Picture, colour picture.RGB) {
	if s.flush(); len(s.d) > 0 {
		c.Path(string(s.d), fmt.Sprintf(`stroke="%s"`, colour))
	}
}

// px is a coordinate of a path: a tenth of a pixel without the zeros behind it.
func px(x float64) string {
	s := strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
	if s == "-0" {
		return "0"
	}
	return s
}
