package tune

import (
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/megakernel"
)

// Trial is a candidate that was measured beside an incumbent, or that failed.
type Trial struct {
	Dimension string `json:"dimension"`
	Options   Choice `json:"options"`
	Against   Choice `json:"against"` // the incumbent
	// Micros and AgainstMicros are medians of the launches, µs a token (of several rows a
	// step) at each context of the profile.
	Micros        []float64 `json:"us,omitempty"`
	AgainstMicros []float64 `json:"against_us,omitempty"`
	Launches      int       `json:"launches,omitempty"` // of each, at each context; 0: the file is older than this field
	Ratio         float64   `json:"ratio,omitempty"`    // Micros over AgainstMicros, the geometric mean over contexts
	Noise         float64   `json:"noise,omitempty"`    // what 1 − Ratio must be more than
	Better        bool      `json:"better,omitempty"`   // by more than the noise
	Error         string    `json:"error,omitempty"`    // why there are no figures: it did not compile, or not run
}

// leastGain is what a candidate must gain at least, as a part of the incumbent's time:
// two loads of one kernel differ by about as much.
const leastGain = 0.003

// judge fills in the figures: better is what is faster by more than 0.3 % and by more
// than the spread of the launches: half the distance of their quartiles over their median,
// the candidate's plus the incumbent's, at the context where that is greatest.
func (t *Trial) judge(candidate, incumbent []bench.Timing) {
	t.Micros, t.AgainstMicros = medians(candidate), medians(incumbent)
	sum := 0.0
	t.Noise = leastGain
	for i := range t.Micros {
		sum += math.Log(t.Micros[i] / t.AgainstMicros[i])
		t.Noise = max(t.Noise, halfWidth(candidate[i].Launches)+halfWidth(incumbent[i].Launches))
	}
	t.Ratio = math.Exp(sum / float64(len(t.Micros)))
	for _, v := range [][]float64{t.Micros, t.AgainstMicros} {
		for i := range v {
			v[i] = math.Round(v[i]*1e3) / 1e3
		}
	}
	t.Ratio, t.Noise = math.Round(t.Ratio*1e6)/1e6, math.Round(t.Noise*1e6)/1e6
	t.Better = 1-t.Ratio > t.Noise
}

func medians(all []bench.Timing) (m []float64) {
	for _, t := range all {
		m = append(m, quantile(t.Launches, 0.5))
	}
	return m
}

// halfWidth is half the distance of the quartiles over the median.
func halfWidth(v []float64) float64 {
	return (quantile(v, 0.75) - quantile(v, 0.25)) / 2 / quantile(v, 0.5)
}

// quantile interpolates between the two nearest of v, which is not empty.
func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// usable refuses timings that are not what was asked for.
func usable(all []bench.Timing, contexts []int) error {
	if len(all) != len(contexts) {
		return fmt.Errorf("%d contexts were timed, want %d", len(all), len(contexts))
	}
	for _, t := range all {
		if len(t.Launches) == 0 {
			return fmt.Errorf("context %d: no launch was timed", t.Context)
		}
		for _, x := range t.Launches {
			if !(x > 0) || math.IsInf(x, 0) {
				return fmt.Errorf("context %d: a launch took %v µs, want a positive time", t.Context, x)
			}
		}
	}
	return nil
}

func (t *Trial) check(contexts int) error {
	for _, c := range []Choice{t.Options, t.Against} {
		if err := c.checkMeasured(); err != nil {
			return err
		}
	}
	all := slices.Concat(Dimensions(1, megakernel.LaunchSingle), []string{DependentsOf, Resident, GraphSteps})
	if !slices.Contains(all, t.Dimension) {
		return fmt.Errorf("dimension is %q, want %s", t.Dimension, plural.Or(all))
	}
	if t.Error != "" {
		if t.Micros != nil || t.AgainstMicros != nil || t.Launches != 0 || t.Better {
			return fmt.Errorf("it failed and has figures")
		}
		return nil
	}
	if t.Launches < 0 {
		return fmt.Errorf("launches is %d, want at least 1, or 0 of an older file", t.Launches)
	}
	if len(t.Micros) != contexts || len(t.AgainstMicros) != contexts {
		return fmt.Errorf("it has figures of %d and %d contexts, want %d", len(t.Micros), len(t.AgainstMicros), contexts)
	}
	for _, x := range slices.Concat(t.Micros, t.AgainstMicros, []float64{t.Ratio}) {
		if !(x > 0) {
			return fmt.Errorf("a figure is %v, want all positive", x)
		}
	}
	if t.Better != (1-t.Ratio > t.Noise) {
		return fmt.Errorf("better is %t with a ratio of %v and a noise of %v", t.Better, t.Ratio, t.Noise)
	}
	return nil
}
