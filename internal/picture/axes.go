package picture

import "math"

// TextWidth estimates how wide text of a size is.
func TextWidth(s string, size float64) float64 { return 0.56 * size * float64(len([]rune(s))) }

// Ticks returns 0, step, 2·step … up to top (positive), step being 1, 2 or 5 times a power of ten so that there are at
// most most of them behind 0; and step's decimals.
func Ticks(top float64, most int) (at []float64, decimals int) {
	step := math.Pow(10, math.Floor(math.Log10(top/float64(most))))
	for _, by := range []float64{2, 2.5, 2} { // 2, 5, 10
		if top/step > float64(most) {
			step *= by
		}
	}
	for i := 0; float64(i)*step <= top*(1+1e-9); i++ {
		at = append(at, float64(i)*step)
	}
	return at, max(0, int(-math.Floor(math.Log10(step)+1e-9)))
}

// Entry is one of a legend.
type Entry struct {
	Colours []RGB // side by side in its swatch
	Label   string
}

// Legend draws entries from left to right in lines of a width and returns the baseline of the last line.
func (p *Picture) Legend(x, y, width float64, entries []Entry) float64 {
	at := x
	for _, e := range entries {
		swatch := 12 * float64(len(e.Colours))
		w := swatch + 5 + TextWidth(e.Label, 11) + 16
		if at > x && at+w > x+width {
			at, y = x, y+18
		}
		for i, colour := range e.Colours {
			p.Box(at+12*float64(i), y-10, 12, 12, colour, "")
		}
		p.Label(at+swatch+5, y, 11, Left, Ink, e.Label)
		at += w
	}
	return y
}
