package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Replayer runs what a Runner timed again, in launches of one step, and looks at what launches leave behind. Not safe
// for concurrent use.
type Replayer interface {
	// Renew brings the pages of n tokens of every sequence, from cached on, back to what FillKV wrote there.
	Renew(cached, n int) error
	// Step launches one step at a position: a token of every sequence. It returns the tokens chosen. In the launch that
	// was timed, left steps follow.
	Step(ctx context.Context, position, left int, tokens []int) (chosen []int, err error)
	// Left reads what the last launch left: its last step's logits of every row, and the pages of n tokens from cached
	// on.
	Left(cached, n int) (*Left, error)
}

// Left is what a launch left on the device.
type Left struct {
	Logits [][]float32
	Pages  []PageSum
}

// PageSum identifies the bytes of a page of one layer of one sequence.
type PageSum struct {
	Layer, Sequence, Token int // Token is the page's first
	Sum                    [32]byte
}

// replay shows that the launches which were timed compute what single steps do, which the gate judges. chosen is what
// every round chose, step after step; first are the tokens of the first step. A round is run again on a cache that has
// no rows of earlier rounds, then its tokens are fed to single steps on such a cache. Tokens, the last step's logits
// and the new rows of the cache must be the same, bit for bit; so must the logits that the rounds left. An error names
// the first difference. The result is how many tokens were replayed.
func replay(ctx context.Context, r Replayer, cached int, first, chosen []int,
	again func() (Round, error)) (int, error) {
	n := len(chosen) / len(first)
	if err := repeat(r, cached, n, chosen, again); err != nil {
		return 0, err
	}
	want, err := r.Left(cached, n)
	if err != nil {
		return 0, err
	}
	if err := r.Renew(cached, n); err != nil {
		return 0, err
	}
	tokens := first
	for i := range n {
		got, err := r.Step(ctx, cached+i, n-1-i, tokens)
		if err != nil {
			return 0, err
		}
		tokens = chosen[i*len(first) : (i+1)*len(first)]
		if err := sameTokens(got, tokens, cached+i); err != nil {
			return 0, fmt.Errorf("replayed in single steps: %w", err)
		}
	}
	got, err := r.Left(cached, n)
	if err != nil {
		return 0, err
	}
	if err := want.differs(got, cached+n-1); err != nil {
		return 0, fmt.Errorf("replayed in single steps: %w", err)
	}
	return len(chosen), nil
}

// repeat runs a round again on a cache that has no rows of earlier rounds, and compares tokens and logits with theirs.
// n is how many tokens a round appends to a sequence.
func repeat(r Replayer, cached, n int, chosen []int, again func() (Round, error)) error {
	timed, err := r.Left(cached, n)
	if err != nil {
		return err
	}
	if err := r.Renew(cached, n); err != nil {
		return err
	}
	round, err := again()
	if err != nil {
		return err
	}
	got, err := r.Left(cached, n)
	if err != nil {
		return err
	}
	if !slices.Equal(round.Chosen, chosen) {
		i := 0
		for i < len(chosen) && i < len(round.Chosen) && chosen[i] == round.Chosen[i] {
			i++
		}
		return fmt.Errorf("run again without earlier rounds' rows in the cache: token %d of the round is another; the kernel reads rows before they are written", i)
	}
	if err := timed.differs(got, cached+n-1); err != nil {
		return fmt.Errorf("run again without earlier rounds' rows in the cache: %w", err)
	}
	return nil
}

// sameTokens compares what the steps at a position chose.
func sameTokens(got, want []int, position int) error {
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			return fmt.Errorf("position %d: tokens %v, the timed rounds chose %v", position, got, want)
		}
	}
	return nil
}

// differs is nil when other is the same, bit for bit; position is the last step's.
func (l *Left) differs(other *Left, position int) error {
	for row, logits := range l.Logits {
		for i, x := range logits {
			if y := other.Logits[row][i]; math.Float32bits(x) != math.Float32bits(y) {
				return fmt.Errorf("position %d: logit %d of row %d is %v, that of the timed rounds %v", position, i, row, y, x)
			}
		}
	}
	for i, page := range l.Pages {
		if other.Pages[i] != page {
			return fmt.Errorf("the keys and values of layer %d, sequence %d, in the page of token %d on are other ones than the timed rounds left", page.Layer, page.Sequence, page.Token)
		}
	}
	return nil
}
