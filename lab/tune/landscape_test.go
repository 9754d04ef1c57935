package tune_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// land is a Measurer whose times are a function of the options.
type land struct {
	micros   func(tune.Choice) float64
	noise    float64                 // launches are up to so much slower or faster, as a part
	drift    float64                 // each measurement is so much slower than the one before, as a part
	broken   func(tune.Choice) error // what does not run
	refused  func(tune.Choice) error // what does not compile
	before   func(measured int)      // hears before each measurement
	measured []tune.Choice

	mu       sync.Mutex
	compiled []tune.Choice
}

func (l *land) Compile(_ context.Context, mk *megakernel.Kernel) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compiled = append(l.compiled, tune.ChoiceOf(mk))
	if l.refused != nil {
		return "fake 1.0", l.refused(tune.ChoiceOf(mk))
	}
	return "fake 1.0", nil
}

func (l *land) Measure(ctx context.Context, mk *megakernel.Kernel, launches int) ([]bench.Timing, error) {
	if l.before != nil {
		l.before(len(l.measured))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := tune.ChoiceOf(mk)
	random := rand.New(rand.NewPCG(3, uint64(len(l.measured))))
	l.measured = append(l.measured, c)
	if l.broken != nil {
		if err := l.broken(c); err != nil {
			return nil, err
		}
	}
	var all []bench.Timing
	for i, n := range contexts {
		t := bench.Timing{Context: n}
		for range launches {
			t.Launches = append(t.Launches,
				l.micros(c)*float64(i+1)*(1+l.drift*float64(len(l.measured)))*(1+l.noise*(2*random.Float64()-1)))
		}
		all = append(all, t)
	}
	return all, nil
}

var contexts = []int{16, 128}

// bowl is a landscape whose lowest point has 2 copies in flight, 10 consumer warps and
// the merge in a phase.
func bowl(c tune.Choice) float64 {
	us := 1000.0 + 20*float64((c.InFlight-2)*(c.InFlight-2)) + 5*float64((c.Consumers-10)*(c.Consumers-10))
	if c.Merge != megakernel.MergePhase {
		us += 30
	}
	return us
}

func flat(tune.Choice) float64 { return 1000 }

func kernel(t *testing.T, o megakernel.Options) *megakernel.Kernel {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	if o.SMs == 0 {
		o.SMs = 4
	}
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	return mk
}

// search is a search of four dimensions of a landscape; saved are copies of what it saved.
func search(t *testing.T, l tune.Measurer) (s *tune.Search, saved *[]tune.Profile) {
	saved = &[]tune.Profile{}
	return &tune.Search{Start: kernel(t, megakernel.Options{}),
		Dimensions: []string{tune.InFlight, tune.Leads, tune.Consumers, tune.Merge}, Measurer: l,
		Setup: tune.Setup{GPU: "fake GPU", Commit: "abc", Arch: "sm_90a", Contexts: contexts, Weights: "random, seed 1",
			Tokens: 32, Launches: 9}, Save: func(p *tune.Profile) error {
			require.NoError(t, p.Check())
			c := *p
			c.Trials = slices.Clone(p.Trials)
			*saved = append(*saved, c)
			return nil
		}}, saved
}

func requireLowest(t *testing.T, p *tune.Profile) {
	t.Helper()
	require.True(t, p.Finished)
	require.Equal(t, 2, p.Chosen.InFlight)
	require.Equal(t, 10, p.Chosen.Consumers)
	require.Equal(t, megakernel.MergePhase, p.Chosen.Merge)
}
