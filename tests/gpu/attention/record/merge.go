package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/internal/jsonfile"
)

// Torch is what tests/gpu/attention.py writes.
type Torch struct {
	Torch  string             `json:"torch"`
	Device string             `json:"device"`
	Rules  map[string]float64 `json:"rules"`
	Cases  []TorchCase        `json:"cases"`
}

// TorchCase is its verdict on a case, and its times.
type TorchCase struct {
	Name  string `json:"name"`
	Check struct {
		Passed bool      `json:"passed"`
		Layers []Verdict `json:"layers"`
	} `json:"check"`
	PyTorch *Beside `json:"pytorch"`
}

// Verdict is of one layer.
type Verdict struct {
	Layer        int     `json:"layer"`
	Finite       bool    `json:"finite"`
	MaxError     float64 `json:"max_error"`
	WorstElement float64 `json:"worst_element"`
	WorstRMS     float64 `json:"worst_rms"`
	Where        string  `json:"where"`
	Passed       bool    `json:"passed"`
}

// ReadTorch reads it strictly.
func ReadTorch(path string) (*Torch, error) {
	t := &Torch{}
	return t, jsonfile.Read(path, t, torchKind)
}

// Merge puts the verdicts and PyTorch's times beside the cases of the same names.
// Cases of the record without a verdict, and verdicts on no case, are errors.
func (r *Record) Merge(t *Torch) error {
	r.PyTorch = PyTorch{Version: t.Torch, Device: t.Device}
	used := map[string]bool{}
	for i := range r.Cases {
		c := &r.Cases[i]
		at := slices.IndexFunc(t.Cases, func(v TorchCase) bool { return v.Name == c.Name })
		if at < 0 {
			return fmt.Errorf("case %s: attention.py has not judged it", c.Name)
		}
		used[c.Name] = true
		c.judged(&t.Cases[at])
	}
	for _, v := range t.Cases {
		if !used[v.Name] {
			return fmt.Errorf("attention.py judged a case %s that was not run", v.Name)
		}
	}
	return nil
}

func (c *Case) judged(v *TorchCase) {
	g := &c.Gate
	g.Passed = v.Check.Passed && len(v.Check.Layers) > 0
	for _, l := range v.Check.Layers {
		g.Passed = g.Passed && l.Passed && l.Finite
		g.MaxError = max(g.MaxError, l.MaxError)
		g.WorstElement = max(g.WorstElement, l.WorstElement)
		if l.WorstRMS > g.WorstRMS {
			g.WorstRMS, g.Where = l.WorstRMS, fmt.Sprintf("layer %d, %s", l.Layer, l.Where)
		}
	}
	if v.PyTorch == nil {
		return
	}
	beside := *v.PyTorch
	best := 0.0
	for _, us := range []float64{beside.SDPA.Micros, beside.Flex.Micros} {
		if us > 0 && (best == 0 || us < best) {
			best = us
		}
	}
	if c.Micros > 0 {
		beside.Speedup = best / c.Micros
	}
	c.PyTorch = &beside
}

// MedianShare is the median share of the ceiling of the timed cases whose names begin so,
// and how many there are; NaN of none.
func (r *Record) MedianShare(begin string) (share float64, n int) {
	var all []float64
	for i := range r.Cases {
		if c := &r.Cases[i]; c.Timed() && strings.HasPrefix(c.Name, begin) {
			all = append(all, c.Share)
		}
	}
	return median(all), len(all)
}

// Prefixes is, for every timed case that was run in the single format too, how many
// times as long that took.
func (r *Record) Prefixes() map[string]float64 {
	times := map[string]float64{}
	for _, single := range r.Cases {
		for _, c := range r.Cases {
			if single.Single && single.Name == c.Name+"-single" && c.Micros > 0 {
				times[c.Name] = single.Micros / c.Micros
			}
		}
	}
	return times
}
