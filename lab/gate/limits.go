package gate

import (
	"fmt"
	"math"
	"slices"
)

// KLs are divergences from o in nats: of h, of s and of k.
type KLs struct {
	Reference, Own, Ours float64
}

// place is a position that was judged.
type place struct {
	Sequence, Position int
	KLs
	top
}

// top is what Position has of o's and k's top tokens.
type top struct {
	Margin, RMS float64
	Want, Got   int
}

// Worst is the position or the sequence that came closest to its limit, or went furthest beyond.
type Worst struct {
	Sequence    int    `json:"sequence"`
	Position    *int   `json:"position,omitempty"` // absent: the mean over the sequence
	KLReference Number `json:"kl_reference"`
	KLOwn       Number `json:"kl_own"`
	KLOurs      Number `json:"kl_ours"`
	Limit       Number `json:"limit"` // of KLOurs
}

// Place names the position, as "988 of sequence 1"; of a mean over a sequence "all of sequence 1".
func (w Worst) Place() string {
	if w.Position == nil {
		return fmt.Sprintf("all of sequence %d", w.Sequence)
	}
	return fmt.Sprintf("%d of sequence %d", *w.Position, w.Sequence)
}

// beyond is by how many times KLOurs is above the limit; NaN counts as infinite.
func (w Worst) beyond() float64 {
	if x := float64(w.KLOurs / w.Limit); !math.IsNaN(x) {
		return x
	}
	return math.Inf(1)
}

// columns are the divergences of some places.
type columns struct{ ref, own, ours []float64 }

func kls(places []place) (c columns) {
	for _, p := range places {
		c.ref, c.own, c.ours = append(c.ref, p.Reference), append(c.own, p.Own), append(c.ours, p.Ours)
	}
	return c
}

// bySequence returns the places of each sequence, in the order of their numbers.
func bySequence(places []place) (all [][]place) {
	sorted := slices.Clone(places)
	slices.SortStableFunc(sorted, func(a, b place) int { return a.Sequence - b.Sequence })
	for len(sorted) > 0 {
		n := slices.IndexFunc(sorted, func(p place) bool { return p.Sequence != sorted[0].Sequence })
		if n < 0 {
			n = len(sorted)
		}
		all, sorted = append(all, sorted[:n]), sorted[n:]
	}
	return all
}

// limits judges each sequence and each position, and notes the worst of both.
func (g *Gate) limits(r *Result, all columns, sequences [][]place, fail func(format string, args ...any)) {
	const most = 3 // that are named
	bad := 0
	for _, places := range sequences {
		if len(places) < g.rules.SequencePositions {
			continue
		}
		w := g.rules.sequence(all, places)
		if w.beyond() > r.WorstSequence.beyond() || r.WorstSequence == (Worst{}) {
			r.WorstSequence = w
		}
		if w.beyond() > 1 {
			if bad++; bad <= most {
				fail("sequence %d: mean KL(o‖k) of its %d positions is %.4g, want at most %.4g", w.Sequence, len(places), w.KLOurs,
					w.Limit)
			}
		}
	}
	if bad > most {
		fail("%d sequences beyond their limits", bad)
	}
	bad = 0
	for _, p := range g.places {
		w := g.rules.position(r, p)
		if w.beyond() > r.WorstPosition.beyond() || r.WorstPosition == (Worst{}) {
			r.WorstPosition = w
		}
		if w.beyond() > 1 {
			bad++
		}
	}
	if w := r.WorstPosition; bad > 0 {
		fail("%d positions with KL(o‖k) beyond their limits, the worst sequence %d position %d: %.4g, want at most %.4g", bad,
			w.Sequence, *w.Position, w.KLOurs, w.Limit)
	}
}

// sequence is the limit of one sequence's mean: the bounds of the whole mean, and as an allowance for its few positions
// Deviations standard errors. k is compared with s (or h): where the kernel is sound, the two means over n positions
// are draws that differ by sqrt((sd_k² + sd_s²)/n) in the root mean square, and k's spread is s's. The spread is that
// over all positions, or over the sequence's own where that is more: a long context has greater divergences.
func (r Rules) sequence(all columns, places []place) Worst {
	c := kls(places)
	ref, own := mean(c.ref), mean(c.own)
	sdOwn, sdRef := max(deviation(all.own), deviation(c.own)), max(deviation(all.ref), deviation(c.ref))
	errors := r.Deviations / math.Sqrt(float64(len(places)))
	limit := min(r.OwnFactor*own+r.OwnSlack+errors*math.Hypot(sdOwn, sdOwn),
		r.MeanFactor*ref+r.MeanSlack+errors*math.Hypot(sdOwn, sdRef))
	return Worst{Sequence: places[0].Sequence, KLReference: Number(ref), KLOwn: Number(own), KLOurs: Number(mean(c.ours)),
		Limit: Number(limit)}
}

// position is the limit at one position: PositionFactor times the sum of three estimates of what the kernel's own
// roundings cost there. s is one draw of that, and may be near 0 by chance; h is another, of greater roundings, brought
// to s's size by the ratio of the means; and the mean of s is what any position may cost.
func (r Rules) position(of *Result, p place) Worst {
	scaled := 0.0
	if of.KLReference > 0 {
		scaled = p.Reference * of.KLOwn / of.KLReference
	}
	limit := r.PositionFactor*(p.Own+scaled+of.KLOwn) + r.OwnSlack
	return Worst{Sequence: p.Sequence, Position: &p.Position, KLReference: Number(p.Reference), KLOwn: Number(p.Own),
		KLOurs: Number(p.Ours), Limit: Number(limit)}
}

// flips judges k's top tokens where o is sure. s and h are draws of errors of other sizes, whose squares are as the
// mean divergences: so rms(h-o) times the root of their ratio is what the kernel's own roundings move a logit at a
// position, and the difference of two logits by √2 times that. Of a kernel whose roundings are as large as h's, three
// times rms(h-o) are 2.1 standard deviations, and sound kernels flip; six times are 4.2.
func (g *Gate) flips(r *Result, fail func(format string, args ...any)) {
	factor, first := g.rules.MarginFactor, ""
	if r.KLReference > 0 {
		factor = max(factor, g.rules.OwnMarginFactor*math.Sqrt(r.KLOwn/r.KLReference))
	}
	for _, p := range g.places {
		sure := p.Margin > factor*p.RMS
		if sure {
			r.Sure++
		}
		if p.Got == p.Want || p.Margin == 0 {
			continue
		}
		r.WidestFlip = max(r.WidestFlip, p.Margin/(factor*p.RMS))
		if sure {
			if r.Flips++; r.Flips == 1 {
				first = fmt.Sprintf("sequence %d position %d: token %d, want %d", p.Sequence, p.Position, p.Got, p.Want)
			}
		}
	}
	if r.Flips > 0 {
		fail("%d flips of a sure top-1, first %s", r.Flips, first)
	}
}

// deviation is the standard deviation, 0 of fewer than two values.
func deviation(v []float64) float64 {
	if len(v) < 2 {
		return 0
	}
	m, sum := mean(v), 0.0
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	return math.Sqrt(sum / float64(len(v)-1))
}
