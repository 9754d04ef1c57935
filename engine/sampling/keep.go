package sampling

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
)

// candidate is a token that may be drawn. Its weight is its probability but for a
// common factor: the most probable token has weight 1.
type candidate struct {
	token  int
	weight float64
}

// keep lists the tokens that may be drawn, in no order that means anything but
// always the same. best is the first of the highest logits.
func (p Params) keep(logits []float32, best int) []candidate {
	least := float32(math.Inf(-1))
	if p.TopK > 0 && p.TopK < len(logits) {
		least = kth(logits, p.TopK)
	}
	top := float64(logits[best])
	kept := make([]candidate, 0, len(logits))
	for i, x := range logits {
		if x < least {
			continue
		}
		if w := math.Exp((float64(x) - top) / p.Temperature); w > 0 {
			kept = append(kept, candidate{i, w})
		}
	}
	if p.TopP > 0 && p.TopP < 1 {
		kept = nucleus(kept, p.TopP)
	}
	// Probabilities are compared with the highest one, so that what top-k and
	// top-p took away makes no difference.
	return slices.DeleteFunc(kept, func(c candidate) bool { return c.weight < p.MinP })
}

// kth is the k-th highest logit, k from 1 to len(logits): the least of a heap of
// the k highest so far.
func kth(logits []float32, k int) float32 {
	h := slices.Clone(logits[:k])
	less := func(a, b float32) bool { return a < b }
	heapify(h, less)
	for _, x := range logits[k:] {
		if x > h[0] {
			h[0] = x
			sift(h, 0, less)
		}
	}
	return h[0]
}

// nucleus keeps the most probable tokens, one at least, until their probabilities
// reach p. Of equally probable ones it prefers the lower ids; transformers leaves
// that to its sort.
func nucleus(cs []candidate, p float64) []candidate {
	total := 0.0
	for _, c := range cs {
		total += c.weight
	}
	before := func(a, b candidate) bool {
		return a.weight > b.weight || a.weight == b.weight && a.token < b.token
	}
	heapify(cs, before)
	var kept []candidate
	for sum := 0.0; len(cs) > 0 && (len(kept) == 0 || sum < p*total); {
		last := len(cs) - 1
		kept = append(kept, cs[0])
		sum += cs[0].weight
		cs[0] = cs[last]
		cs = cs[:last]
		sift(cs, 0, before)
	}
	return kept
}

// heapify orders h so that no element comes before its parent, (i-1)/2.
func heapify[T any](h []T, before func(a, b T) bool) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		sift(h, i, before)
	}
}

// sift moves element i down to where it belongs.
func sift[T any](h []T, i int, before func(a, b T) bool) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && before(h[child+1], h[child]) {
			child++
		}
		if !before(h[child], h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// uniform is a number in [0, 1) with 53 random bits: the first output of ChaCha8
// (math/rand/v2, fixed by its specification) keyed with seed and position.
func uniform(seed uint64, position int) float64 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(position))
	return float64(rand.NewChaCha8(key).Uint64()>>11) / (1 << 53)
}
