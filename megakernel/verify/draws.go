package verify

import (
	"fmt"

	"github.com/mkgen/mkgen/engine/sampling"
)

// drawOf is how the n-th row draws its token: in turn not at all, plainly, with all that truncates, and so that what is drawn
// first rarely stays.
func drawOf(n, vocab int) sampling.Params {
	seed := uint64(n)<<32 | 5
	return []sampling.Params{
		{},
		{Temperature: 3, TopK: 1 + vocab/3, TopP: 0.4, MinP: 0.01, Seed: seed},
		{Temperature: 1.5, Seed: seed},
		{Temperature: 5, TopK: 3, Seed: seed},
		{Temperature: 2, TopP: 0.2, Seed: seed},
	}[n%5]
}

// drawn says what is wrong with the token that a kernel drew from logits at a position; "" for nothing.
func drawn(token int, logits []float32, p sampling.Params, position int) string {
	row := p.Row()
	if want := row.Choose(logits, uint32(position)); token != want {
		how := "drawn from"
		if p.Greedy() {
			how = "the largest of"
		}
		return fmt.Sprintf("the kernel chose %d, %s its own logits is %d", token, how, want)
	}
	return ""
}
