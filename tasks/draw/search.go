package draw

import "math"

// search finds the largest distance that top-k and top-p keep, a histogram at a time, as the template does.
type search struct {
	r        *Row
	bits     int
	far      uint32 // found so far
	distance []uint32
	first    *[Bins]bin // the histogram of the first level

	phase phase
	lo    uint32  // the stretch that is looked at begins here
	shift uint32  // and has Bins bins of 2^shift distances
	count uint32  // tokens before it
	mass  float32 // their weight
	goal  float32 // top-p: what the weight before a token that stays is below
}

type phase int

const (
	topK phase = iota
	topP
	found
)

// bin is one bin of a histogram.
type bin struct {
	count, mass uint32
}

func newSearch(r *Row, logits []float32) *search {
	s := &search{r: r, bits: MassBits(len(logits)), far: Farthest, shift: TopShift}
	top := highest(logits)
	for _, x := range logits {
		if d := r.distance(top, x); d <= Farthest {
			s.distance = append(s.distance, d)
		}
	}
	switch {
	case r[RowFlags]&FlagTopK != 0:
	case r[RowFlags]&FlagTopP != 0:
		s.phase = topP
		s.goal = float32(r.float(RowTopP) * s.total())
	default:
		s.phase = found
	}
	return s
}

// next takes the next histogram, and says whether there is another to take.
func (s *search) next() bool {
	if s.phase == found {
		return false
	}
	h := s.histogram()
	if s.shift == TopShift {
		s.first = h
	}
	if s.phase == topK {
		if weight, done := s.findK(h); done {
			s.phase, s.lo, s.shift, s.mass = found, 0, TopShift, 0
			if s.r[RowFlags]&FlagTopP != 0 {
				s.phase, s.goal = topP, float32(s.r.float(RowTopP)*weight)
				h = s.first
			}
		}
	}
	if s.phase == topP {
		s.findP(h)
	}
	return s.phase != found
}

func (s *search) histogram() *[Bins]bin {
	var h [Bins]bin
	for _, d := range s.distance {
		if b := (d - s.lo) >> s.shift; d >= s.lo && b < Bins {
			h[b].count++
			h[b].mass += Mass(d, s.bits)
		}
	}
	return &h
}

// Mass is the weight of a token at a distance, in 2^-bits of that of the nearest token of its first-level bin.
func Mass(distance uint32, bits int) uint32 {
	const nats = -math.Log2E / (1 << NatBits)
	w := exp2(float32(distance&(1<<TopShift-1)) * nats)
	return uint32(float32(w*float32(uint32(1)<<bits)) + 0.5)
}

// weights are the running sums of the bins' weights, that of the row's nearest token being 2^bits: before each bin and
// behind it. They are summed in the order of the template, eight bins a lane.
func (s *search) weights(h *[Bins]bin) (before, behind [Bins]float32) {
	const lanes, each = 32, Bins / 32
	var w [Bins]float32
	var sum [lanes]float32
	for b := range h {
		start := (s.lo + uint32(b)<<s.shift) >> TopShift
		w[b] = float32(float32(h[b].mass) * exp2(float32(start)*(-math.Log2E/(1<<(NatBits-TopShift)))))
	}
	for l := range lanes {
		sum[l] = w[each*l]
		for i := 1; i < each; i++ {
			sum[l] += w[each*l+i]
		}
	}
	for d := 1; d < lanes; d *= 2 {
		old := sum
		for l := d; l < lanes; l++ {
			sum[l] = old[l] + old[l-d]
		}
	}
	for l := range lanes {
		end := s.mass + sum[l]
		run := s.mass
		if l > 0 {
			run = s.mass + sum[l-1]
		}
		for i := range each {
			before[each*l+i] = run
			run = min(run+w[each*l+i], end)
			if i == each-1 {
				run = end
			}
			behind[each*l+i] = run
		}
	}
	return before, behind
}

// total is the weight of all tokens.
func (s *search) total() float32 {
	_, behind := s.weights(s.histogram())
	return behind[Bins-1]
}

// findK looks for the bin of the k-th nearest token. Once all of a bin stay that is the end, and weight that of all
// that stay.
func (s *search) findK(h *[Bins]bin) (weight float32, done bool) {
	before, behind := s.weights(h)
	k, n := s.r[RowTopK], s.count
	for b := range h {
		if n < k && k <= n+h[b].count {
			return s.into(b, n, h[b].count, k-n == h[b].count, before[b], behind[b])
		}
		n += h[b].count
	}
	s.far = Farthest // fewer than k
	return behind[Bins-1], true
}

// findP looks for the bin of the last token with less than goal before it.
func (s *search) findP(h *[Bins]bin) {
	before, behind := s.weights(h)
	for b := range h {
		if before[b] < s.goal && s.goal <= behind[b] {
			far := s.far
			if _, done := s.into(b, 0, h[b].count, h[b].count == 1, before[b], behind[b]); done {
				s.phase, s.far = found, min(far, s.far)
			}
			return
		}
	}
	s.phase = found
}

// into goes on in bin b, before which lie n tokens, or ends there.
func (s *search) into(b int, n, count uint32, whole bool, before, behind float32) (weight float32, done bool) {
	s.lo += uint32(b) << s.shift
	if whole || s.shift == 0 {
		s.far = s.lo + 1<<s.shift - 1
		return behind, true
	}
	s.shift -= BinBits
	s.count, s.mass = n, before
	return 0, false
}
