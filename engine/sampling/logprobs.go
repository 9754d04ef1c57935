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

// LogprobsOfScores computes them of what a kernel has left of a row's logits, the scores of package draw, in float64.
// The probabilities' sums within a part are float32's. A +inf among the logits, or nothing but -inf or NaN, is an
// error.
func LogprobsOfScores(words []uint32, token, n int) (Logprobs, error) {
	at := func(word int) float64 { return float64(math.Float32frombits(words[word])) }
	top, sum := math.Inf(-1), 0.0
	for part := draw.ScoreParts; part+1 < len(words); part += 2 {
		if x := at(part); x > top { // a NaN becomes the sum's
			top = x
		}
	}
	for part := draw.ScoreParts; part+1 < len(words); part += 2 {
		if x := at(part); x != math.Inf(-1) {
			sum += at(part+1) * math.Exp(x-top)
		}
	}
	lse := top + math.Log(sum)
	if math.IsNaN(lse) || math.IsInf(lse, 0) {
		return Logprobs{}, fmt.Errorf("the logarithm of the sum of all exponentiated logits is %v, want a finite number", lse)
	}
	all := Logprobs{Logprob: Logprob{token, at(draw.ScoreChosen) - lse}}
	if n > 0 {
		all.Top = make([]Logprob, 0, n)
	}
	for pair := draw.ScoreTops; pair < draw.ScoreTops+2*n && words[pair+1] != draw.NoToken; pair += 2 {
		all.Top = append(all.Top, Logprob{int(words[pair+1]), at(pair) - lse})
	}
	return all, nil
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
