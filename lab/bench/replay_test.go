package bench

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// decoding is a kernel whose next token depends on all rows of its cache, with a fault of launches of several steps.
type decoding struct {
	rows   []uint32 // of the cache
	logits []float32

	stale   bool // the logits of a launch's later steps are of the row before them as earlier launches left it
	drops   bool // the last row that a launch of several steps makes is not written
	rounded bool // the last logits of a launch of several steps are a bit off
	steps   []int
}

const junk = 99

func newDecoding() *decoding {
	d := &decoding{rows: make([]uint32, 300)}
	for i := range d.rows {
		d.rows[i] = junk + uint32(i)
	}
	return d
}

// launch runs n steps from cached on.
func (d *decoding) launch(cached, first, n int) (chosen []int) {
	old := slices.Clone(d.rows)
	next := first
	for i := range n {
		at := cached + i
		d.rows[at] = uint32(next)
		sum, seen := uint32(0), uint32(0)
		for j, row := range d.rows[:at+1] {
			sum = sum*31 + row
			if d.stale && i > 0 && j == at-1 {
				row = old[j]
			}
			seen = seen*31 + row
		}
		next = int(sum % 251)
		chosen = append(chosen, next)
		d.logits = []float32{float32(seen % 1009), 1}
	}
	if n > 1 && d.drops {
		d.rows[cached+n-1] = old[cached+n-1]
	}
	if n > 1 && d.rounded {
		d.logits[1] += 1e-7
	}
	return chosen
}

func (d *decoding) Tokens(_ context.Context, cached, n int) (r Round, err error) {
	d.steps = append(d.steps, n)
	r.Chosen = d.launch(cached, token(0, 320), n)
	r.Device, r.Wall = 1000, 1000
	for range n {
		r.Each = append(r.Each, 10)
	}
	return r, nil
}

func (d *decoding) Renew(cached, n int) error {
	for i := range n {
		d.rows[cached+i] = junk + uint32(cached+i)
	}
	return nil
}

func (d *decoding) Step(_ context.Context, position, _ int, tokens []int) ([]int, error) {
	d.steps = append(d.steps, 1)
	return d.launch(position, tokens[0], 1), nil
}

func (d *decoding) Left(cached, n int) (*Left, error) {
	l := &Left{Logits: [][]float32{slices.Clone(d.logits)}}
	for i := range n {
		l.Pages = append(l.Pages,
			PageSum{Layer: 3, Token: cached + i, Sum: [32]byte{byte(d.rows[cached+i]), byte(d.rows[cached+i] >> 8)}})
	}
	return l, nil
}

// measured measures a case of a kernel that may have a fault, with its replay or without.
func measured(t *testing.T, d *decoding, replayed bool) (Case, error) {
	b, _ := faked(t, nil)
	b.Ceiling = just(judgedCeiling)
	b.Runner = d
	if replayed {
		b.Replayer = d
	}
	return b.measure(t.Context(), Method{Rounds: 3, Tokens: 8, WarmUp: 4}, 100)
}

var judgedCeiling = sample().Cases[0].Ceiling

func TestATimedRoundIsReplayedInSingleSteps(t *testing.T) {
	d := newDecoding()
	c, err := measured(t, d, true)
	require.NoError(t, err)
	require.Equal(t, 8, c.Replayed)
	require.Equal(t, []int{4, 8, 8, 8, 8, 1, 1, 1, 1, 1, 1, 1, 1}, d.steps,
		"warm-up, three rounds, one more, single steps")
}

// Each of these faults shows only in launches of several steps, and all of these choose the right tokens.
func TestFaultsOfLongLaunchesAreCaughtByTheReplay(t *testing.T) {
	for want, fault := range map[string]func(*decoding){
		"run again without earlier rounds' rows in the cache: position 107: logit 0 of row 0 is ":               func(d *decoding) { d.stale = true },
		"replayed in single steps: the keys and values of layer 3, sequence 0, in the page of token 107 on are": func(d *decoding) { d.drops = true },
		"replayed in single steps: position 107: logit 1 of row 0 is 1, that of the timed rounds 1.0000001":     func(d *decoding) { d.rounded = true },
	} {
		d := newDecoding()
		fault(d)
		_, err := measured(t, d, true)
		require.ErrorContains(t, err, want)
	}
	for _, fault := range []func(*decoding){func(d *decoding) { d.stale = true }, func(d *decoding) { d.drops = true },
		func(d *decoding) { d.rounded = true }} {
		d := newDecoding()
		fault(d)
		_, err := measured(t, d, false)
		require.NoError(t, err, "without a replay nothing is seen")
	}
}

// forgetful is a kernel whose launches of several steps lose a token that single steps see.
type forgetful struct{ *decoding }

func (f forgetful) Step(_ context.Context, position, left int, tokens []int) ([]int, error) {
	chosen := f.launch(position, tokens[0], 1)
	if left == 2 {
		chosen[0]++
	}
	return chosen, nil
}

func TestATokenThatSingleStepsDoNotChooseIsNamed(t *testing.T) {
	b, _ := faked(t, nil)
	d := newDecoding()
	b.Runner, b.Replayer, b.Ceiling = d, forgetful{d}, just(judgedCeiling)
	_, err := b.Run(t.Context(), Method{Contexts: []int{100}, Rounds: 2, Tokens: 8})
	require.ErrorContains(t, err, "context 100: replayed in single steps: position 105: tokens [")
	require.ErrorContains(t, err, "], the timed rounds chose [")
}

// broken is a replayer of which one call fails.
type broken struct {
	*decoding
	renew, step, left error
}

func (b broken) Renew(cached, n int) error { return errors.Join(b.renew, b.decoding.Renew(cached, n)) }

func (b broken) Step(ctx context.Context, position, left int, tokens []int) ([]int, error) {
	chosen, err := b.decoding.Step(ctx, position, left, tokens)
	return chosen, errors.Join(b.step, err)
}

func (b broken) Left(cached, n int) (*Left, error) {
	l, err := b.decoding.Left(cached, n)
	return l, errors.Join(b.left, err)
}

func TestAReplayThatFailsVoidsTheCase(t *testing.T) {
	lost := errors.New("lost")
	for _, r := range []broken{{renew: lost}, {step: lost}, {left: lost}} {
		r.decoding = newDecoding()
		b, _ := faked(t, nil)
		b.Runner, b.Replayer, b.Ceiling = r.decoding, r, just(judgedCeiling)
		_, err := b.Run(t.Context(), Method{Contexts: []int{100}, Rounds: 2, Tokens: 8})
		require.ErrorIs(t, err, lost)
	}
}
