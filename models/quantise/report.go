package quantise

import (
	"cmp"
	"math"
	"slices"

	"github.com/mkgen/mkgen/models/quant"
)

// Report says what quantising cost.
type Report struct {
	Format  string   `json:"format"`
	Bytes   int64    `json:"bytes"`              // of all tensors written
	Ignored []string `json:"ignored"`            // modules that stay as they were, embeddings aside
	LeftOut []string `json:"left_out,omitempty"` // files of old weights that were not copied
	Tensors []Cost   `json:"tensors"`            // in the order of the files, until Sort
}

// Cost is the error of one tensor.
type Cost struct {
	Tensor     string  `json:"tensor"`
	Rows       int     `json:"rows"`
	Columns    int     `json:"columns"`
	Relative   float64 `json:"relative_squared_error"` // Σ(w−ŵ)² / Σw²
	Decibels   float64 `json:"signal_to_noise_db"`     // the same as −10 log₁₀; 0 where nothing is lost
	Largest    float64 `json:"largest_error"`          // |w−ŵ|
	RootSquare float64 `json:"rms_weight"`             // √(Σw² / n), to compare the largest error with
	// Digest is of the weights that readers compute, little-endian, in the scales' type.
	Digest string `json:"weights_sha256,omitempty"`
}

func (r *Report) add(m *quant.Matrix, now *rounded, o Options) {
	e := now.err
	c := Cost{Tensor: m.Name, Rows: m.Rows, Columns: m.Cols, Relative: e.Relative(), Largest: e.Largest,
		RootSquare: math.Sqrt(e.Norm / float64(m.Rows*m.Cols))}
	if c.Relative > 0 {
		c.Decibels = -10 * math.Log10(c.Relative)
	}
	if o.Digests {
		c.Digest = now.digest(m, o.Format)
	}
	r.Tensors = append(r.Tensors, c)
}

// Sort orders the tensors, worst first.
func (r *Report) Sort() {
	slices.SortStableFunc(r.Tensors, func(a, b Cost) int { return cmp.Compare(b.Relative, a.Relative) })
}

// Lost returns the tensors whose squared error is half of their squares or more: little of them is left.
func (r *Report) Lost() (list []Cost) {
	for _, c := range r.Tensors {
		if c.Relative >= 0.5 {
			list = append(list, c)
		}
	}
	return list
}
