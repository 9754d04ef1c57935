package sampling

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/tasks/draw"
)

// MaxLogprobs is how many of the most probable tokens Logprobs lists at most, as in OpenAI's interface.
const MaxLogprobs = draw.MaxTops

// Logprob is a token and the natural logarithm of its probability.
type Logprob struct {
	Token   int
	Logprob float64
}

// Logprobs are of one position: of the model's own distribution, before temperature, penalties and masks.
type Logprobs struct {
	Logprob           // the token that is there
	Top     []Logprob // the most probable tokens, the most probable first, of equals the lower id
}

// LogprobsOf computes those of a token and of the n most probable ones, in float64. A NaN or a +inf among the logits,
// or nothing but -inf, is a *LogitError.
func LogprobsOf(logits []float32, token, n int) (Logprobs, error) {
	best, err := check(logits)
	if err != nil {
		return Logprobs{}, err
	}
	top, sum := float64(logits[best]), 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	lse := top + math.Log(sum)
	all := Logprobs{Logprob: Logprob{token, float64(logits[token]) - lse}}
	for _, i := range most(logits, n) {
		all.Top = append(all.Top, Logprob{i, float64(logits[i]) - lse})
	}
	return all, nil
}

// LogprobsOfParts computes them of what a kernel has left of a row's logits: the scores of package draw, in float64.
// The probabilities' sums within a part are float32's. A +inf among the logits, or nothing but -inf or NaN, is an
// error.
func LogprobsOfParts(words []uint32, token, n int) (Logprobs, error) {
	top, sum := math.Inf(-1), 0.0
	at := func(part, word int) float64 {
		return float64(math.Float32frombits(words[part*draw.ScoreWords+word]))
	}
	parts := len(words) / draw.ScoreWords
	for p := range parts {
		top = max(top, at(p, draw.ScoreTop))
	}
	for p := range parts {
		if x := at(p, draw.ScoreTop); x > math.Inf(-1) {
			sum += at(p, draw.ScoreSum) * math.Exp(x-top)
		}
	}
	lse := top + math.Log(sum)
	if math.IsNaN(lse) || math.IsInf(lse, 0) {
		return Logprobs{}, fmt.Errorf("the logarithm of the sum of all exponentiated logits is %v, want a finite number", lse)
	}
	all := Logprobs{Logprob: Logprob{token, at(0, draw.ScoreChosen) - lse}}
	all.Top = mergeTops(words, n, func(p, i int) Logprob {
		pair := p*draw.ScoreWords + draw.ScoreTops + 2*i
		return Logprob{int(words[pair+1]), float64(math.Float32frombits(words[pair])) - lse}
	})
	return all, nil
}

// mergeTops are the n most probable tokens of all parts, each of whose own are in order; of is a part's i-th, or
// draw.NoToken. There are none for n of 0.
func mergeTops(words []uint32, n int, of func(part, i int) Logprob) []Logprob {
	if n == 0 {
		return nil
	}
	type head struct { // the most probable one of a part that is left
		Logprob
		part, i int
	}
	before := func(a, b head) bool { return likelier(a.Logprob, b.Logprob) < 0 }
	parts := len(words) / draw.ScoreWords
	heads := make([]head, 0, parts)
	for p := range parts {
		if first := of(p, 0); first.Token != draw.NoToken {
			heads = append(heads, head{first, p, 0})
		}
	}
	heapify(heads, before)
	top := make([]Logprob, 0, n)
	for len(top) < n && len(heads) > 0 {
		h := &heads[0]
		top = append(top, h.Logprob)
		if h.i++; h.i < n {
			h.Logprob = of(h.part, h.i)
		}
		if h.i == n || h.Token == draw.NoToken {
			*h = heads[len(heads)-1]
			heads = heads[:len(heads)-1]
		}
		sift(heads, 0, before)
	}
	return top
}

// likelier orders the more probable token first, of equals the lower id.
func likelier(a, b Logprob) int {
	return cmp.Or(cmp.Compare(b.Logprob, a.Logprob), cmp.Compare(a.Token, b.Token))
}

// most are the n highest logits' tokens, highest first, of equals the lower id.
func most(logits []float32, n int) []int {
	if n = min(n, len(logits)); n == 0 {
		return nil
	}
	before := func(a, b int) int {
		return cmp.Or(cmp.Compare(logits[b], logits[a]), cmp.Compare(a, b))
	}
	after := func(a, b int) bool { return before(a, b) > 0 }
	kept := make([]int, n) // a heap with the last of them at its root
	for i := range kept {
		kept[i] = i
	}
	heapify(kept, after)
	for i := n; i < len(logits); i++ {
		if before(i, kept[0]) < 0 {
			kept[0] = i
			sift(kept, 0, after)
		}
	}
	slices.SortFunc(kept, before)
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
