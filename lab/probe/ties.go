package probe

import (
	"math"

	"github.com/mkgen/mkgen/models/half"
)

// tieWithin is how far from the middle of two bf16 an element of a query may lie that the kernel rounds the other way,
// relative to the root mean square of its head: ten times what sums in float32 move it by (limits).
const tieWithin = 2e-6

// tie is an element of a query near the middle of two bf16: other is the one that it was not rounded to.
type tie struct {
	at    int
	other float64
}

// ties finds the elements of a head's query that float32 may have rounded the other way. exact is the query before it
// was rounded, rounded the query behind it; both times scale are what is rounded to bf16.
func ties(exact, rounded []float64, scale float64) (found []tie) {
	size := 0.0
	for _, x := range exact {
		size += x * x
	}
	within := tieWithin * math.Sqrt(size/float64(len(exact))) * scale
	for i, x := range exact {
		at, y := float32(rounded[i]*scale), x*scale
		bits := half.BF16Of(at)
		if away := math.Abs(y) > math.Abs(float64(at)); away {
			bits++
		} else if bits&0x7fff != 0 {
			bits--
		} else {
			continue
		}
		other := float64(bits.Float32())
		if math.Abs(y-(float64(at)+other)/2) <= within {
			found = append(found, tie{i, other / scale})
		}
	}
	return found
}

// rounding is attention of the query whose ties are rounded so that the output is nearest to got: each time the tie is
// turned that helps most, until none does. q is left as that query.
func (w *view) rounding(q []float64, head int, got []float64, found []tie) headOutput {
	best := w.plain(q, head, got)
	for len(found) > 0 {
		least, turned := relative(got, best.out), -1
		var nearest headOutput
		for n, t := range found {
			kept := q[t.at]
			q[t.at] = t.other
			x := w.plain(q, head, got)
			q[t.at] = kept
			if r := relative(got, x.out); r < least {
				least, turned, nearest = r, n, x
			}
		}
		if turned < 0 {
			break
		}
		best, q[found[turned].at] = nearest, found[turned].other
		found = append(found[:turned:turned], found[turned+1:]...)
	}
	return best
}
