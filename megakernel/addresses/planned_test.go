package addresses_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir/bounds"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/addresses"
	"github.com/stretchr/testify/require"
)

const planPositions = 600 // most tokens of a random sequence

// What the analysis is told of plans holds of plans: of random launches' every word.
func TestPlansAreAsTheAnalysisIsTold(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 20))
	launches := deep.Count(5000, 100)
	for _, o := range []megakernel.Options{{Tokens: 2}, {Tokens: 8, Page: 4},
		{Tokens: 16, Attention: "window=40+sinks=4/mask", Selection: true}} {
		mk := kernel(t, "tiny", o)
		var seen facts
		for range launches {
			seen.launch(t, rng, mk)
		}
		require.Greater(t, seen.items, launches)
		require.Greater(t, seen.split, launches/10)
		require.Greater(t, seen.rows, launches)
	}
}

// facts compares the words of plans with addresses.Facts, and counts what it has compared.
type facts struct{ items, split, rows int }

func (f *facts) launch(t *testing.T, rng *rand.Rand, mk *megakernel.Kernel) {
	l := mk.Limits(0)
	planner, err := kv.NewPlanner(l)
	require.NoError(t, err)
	request := randomRequest(rng, &l)
	request.Classes = mk.Classes()
	plan, err := planner.Plan(request)
	require.NoError(t, err)
	told := addresses.Facts(mk, planPositions)
	params := map[string]int64{megakernel.ScalarSteps: int64(plan.Steps), megakernel.ScalarPages: 1 << 20,
		addresses.ParamEntries: int64(len(plan.Entries)), addresses.ParamMask: 1 << 20}
	for i := range plan.Classes {
		c := &plan.Classes[i]
		for cta := range l.CTAs {
			if n := c.Count(cta); n > l.ItemsPerCTA {
				require.Fail(t, "too many items", "%d, want at most %d", n, l.ItemsPerCTA)
			}
			for j := range c.Count(cta) {
				w := c.Words(cta, j)
				requireAs(t, told.Content[megakernel.BufferWork], w, params, "item")
				f.items++
				if w[kv.ItemOf] > 1 {
					f.split++
				}
			}
		}
		for _, w := range c.Merge {
			requireAs(t, told.Content[megakernel.BufferMerges], []uint32{w}, params, "merges")
		}
	}
	for r := range plan.RowCount {
		w := plan.Rows[r*kv.RowWords:][:kv.RowWords]
		requireAs(t, told.Content[megakernel.BufferRows], w, params, "row")
		f.rows++
	}
	for _, w := range plan.Entries {
		requireAs(t, told.Content[megakernel.BufferEntries], []uint32{w}, params, "entries")
	}
	for _, w := range plan.Positions {
		requireAs(t, told.Content[megakernel.BufferPositions], []uint32{w}, params, "positions")
	}
}

// requireAs requires that a row of words is what a content says.
func requireAs(t *testing.T, c *bounds.Content, row []uint32, params map[string]int64, what string) {
	t.Helper()
	if wrong := contradiction(c, row, params); wrong != "" {
		require.Fail(t, wrong, "%s %v", what, row)
	}
}

// contradiction is what a content says of a row of words and is not so, "" for nothing. Millions of rows come here.
func contradiction(c *bounds.Content, row []uint32, params map[string]int64) string {
	value := func(l bounds.Linear) int64 {
		v := l.K
		for name, times := range l.Terms {
			v += times * params[name]
		}
		return v
	}
	for i, word := range c.Words {
		v := int64(row[i])
		if v < value(word.Lo) || (word.Hi.K != 0 || len(word.Hi.Terms) > 0) && v > value(word.Hi) {
			return fmt.Sprintf("word %d: %d, want %d to %d", i, v, value(word.Lo), value(word.Hi))
		}
		if word.Digits > 0 {
			for x := v; x > 0; x >>= word.Digits {
				if x&(1<<word.Digits-1) >= word.Below {
					return fmt.Sprintf("word %d: %#x, want digits below %d", i, v, word.Below)
				}
			}
		}
		if sum := v&(1<<word.Low-1) + v>>word.Low; word.Low > 0 && sum > word.Sum {
			return fmt.Sprintf("word %d: %#x, whose parts' sum is %d, want at most %d", i, v, sum, word.Sum)
		}
	}
	for n, r := range c.Relations {
		if r.Unless >= 0 && row[r.Unless] == 0 {
			continue
		}
		sum := value(r.Plus)
		for i, times := range r.Words {
			sum += times * int64(row[i])
		}
		for i, times := range r.Scaled {
			sum += value(times) * int64(row[i])
		}
		if sum > 0 {
			return fmt.Sprintf("relation %d: %d, want at most 0", n, sum)
		}
	}
	return ""
}

// randomRequest is a batch of sequences of up to planPositions tokens: some share pages, are
// draft trees, select pages, grow, or have parts of pinned lengths.
func randomRequest(rng *rand.Rand, l *kv.Limits) kv.Request {
	var q kv.Request
	if rng.IntN(3) == 0 {
		q.Steps = 1 + rng.IntN(5)
	}
	if rng.IntN(4) == 0 {
		q.PinTokens = 16 * (12 + rng.IntN(8))
	}
	next := uint32(0)
	take := func() uint32 { next++; return next }
	shared := []uint32{take(), take(), take()}
	for left := l.Rows; left > 0; {
		s := kv.Sequence{New: 1 + rng.IntN(left), Cached: rng.IntN(planPositions - 30)}
		if rng.IntN(3) == 0 {
			s.Cached = rng.IntN(2 * l.PageSize)
		}
		if q.Steps > 1 {
			s.New, s.Grow = 1, true
		}
		if n := min(len(shared), s.Cached/l.PageSize); n > 0 && rng.IntN(2) == 0 {
			s.Pages = append(s.Pages, shared[:1+rng.IntN(n)]...)
		}
		for len(s.Pages)*l.PageSize < s.Cached+s.New+q.Steps {
			s.Pages = append(s.Pages, take())
		}
		for i := 0; s.New > 1 && i < s.New && rng.IntN(3) > 0; i++ {
			s.Parents = append(s.Parents, rng.IntN(i+1)-1)
		}
		if len(s.Parents) < s.New {
			s.Parents = nil
		}
		if l.Selection && rng.IntN(2) == 0 {
			s.Select = make([][]int, l.KVHeads)
			for head := range s.Select {
				for p := range s.Cached / l.PageSize {
					if rng.IntN(2) == 0 {
						s.Select[head] = append(s.Select[head], p)
					}
				}
			}
		}
		q.Sequences = append(q.Sequences, s)
		if left -= s.New; rng.IntN(5) == 0 {
			break
		}
	}
	return q
}
