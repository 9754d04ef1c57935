package bench

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/internal/jsonfile"
)

// AttentionBeside is what bench/attention.py writes: attention of prompts alone by mkgen and by others in one run.
type AttentionBeside struct {
	AttentionHeader
	Torch string                `json:"torch"`
	Cases []AttentionBesideCase `json:"cases"`
}

// AttentionBesideWhat is the field what of an AttentionBeside.
const AttentionBesideWhat = "attention of prompts beside PyTorch"

// AttentionBesideCase is one system at one length. OfBest is over the largest rate of the systems that are not mkgen,
// with the same attention.
type AttentionBesideCase struct {
	System string `json:"system"`
	// Attention is what the case has beside being causal, as --attention spells it; "": nothing.
	Attention string    `json:"attention,omitempty"`
	Page      int       `json:"page,omitempty"` // of mkgen's
	Tokens    int       `json:"tokens"`
	FLOP      float64   `json:"flop"`
	Micros    float64   `json:"device_us"` // the rounds' median
	TFLOPS    float64   `json:"tflop_s"`
	OfBest    float64   `json:"of_best,omitempty"`
	Error     float64   `json:"error,omitempty"` // of mkgen's, see MaxAttentionError
	Apart     float64   `json:"apart,omitempty"` // of the others from mkgen's
	Rounds    []float64 `json:"rounds_us"`
}

// ParseAttentionBeside reads an AttentionBeside strictly; what Check finds is an error.
func ParseAttentionBeside(data []byte) (*AttentionBeside, error) {
	return jsonfile.ParseChecked[AttentionBeside](data, jsonfile.Kind{Name: "a file of bench/attention.py",
		What: AttentionBesideWhat})
}

// Check returns nil when the figures agree with each other and outputs are near enough to float64; else all that is
// wrong, joined.
func (f *AttentionBeside) Check() error {
	var errs []error
	type problem struct {
		attention string
		tokens    int
	}
	best := map[problem]float64{}
	for _, c := range f.Cases {
		if of := (problem{c.Attention, c.Tokens}); c.System != SystemMkgen {
			best[of] = max(best[of], c.TFLOPS)
		}
	}
	near := func(got, want float64) bool { return math.Abs(got-want) <= 1e-4*math.Abs(want) }
	for i, c := range f.Cases {
		best, window := best[problem{c.Attention, c.Tokens}], 0
		if w, ok := strings.CutPrefix(c.Attention, "window="); ok {
			window, _ = strconv.Atoi(w) // of another one flop is wrong
		}
		switch {
		case !near(c.FLOP, float64(f.Sequences)*seenPairs(c.Tokens, window)*4*float64(f.Heads*f.HeadDim)):
			errs = append(errs, fmt.Errorf("case %d: flop is %v for %d tokens", i, c.FLOP, c.Tokens))
		case len(c.Rounds) == 0 || !near(c.Micros, median(c.Rounds)) || !near(c.TFLOPS, c.FLOP/c.Micros/1e6):
			errs = append(errs, fmt.Errorf("case %d: device_us is %v, tflop_s %v, the rounds %v", i, c.Micros, c.TFLOPS,
				c.Rounds))
		case best > 0 && !near(c.OfBest, c.TFLOPS/best):
			errs = append(errs, fmt.Errorf("case %d: of_best is %v, from the rates %v", i, c.OfBest, c.TFLOPS/best))
		case c.System == SystemMkgen && !(c.Error > 0 && c.Error <= MaxAttentionError):
			errs = append(errs, fmt.Errorf("case %d: error is %v, want at most %v", i, c.Error, MaxAttentionError))
		}
	}
	if len(f.Cases) == 0 || f.GPU == "" {
		errs = append(errs, errors.New("no cases, or no GPU"))
	}
	return errors.Join(errs...)
}

// Plot is the picture: a curve for each system and page size.
func (f *AttentionBeside) Plot() *RatePlot {
	p := newRatePlot(fmt.Sprintf("Attention of %d prompts, %d heads of %d, %s", f.Sequences, f.Heads, f.HeadDim, f.GPU),
		"tokens of a prompt")
	for _, c := range f.Cases {
		name := "PyTorch, " + c.System
		if c.System == SystemMkgen {
			name = fmt.Sprintf("mkgen, pages of %d tokens", c.Page)
		}
		if c.Attention != "" {
			name += ", " + c.Attention
		}
		point(p.curve(name, "TFLOP/s"), c.Tokens, c.TFLOPS, c.FLOP, c.Rounds, fmt.Sprintf("%.0f", c.TFLOPS))
	}
	return p
}
