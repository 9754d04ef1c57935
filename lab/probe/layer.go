package probe

import (
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
)

// chunk is how many rows of a matrix a core takes at a time.
const chunk = 64

// loadLayer reads a layer's weights and makes its float64 model, which rounds where the kernel
// does.
func loadLayer(mk *megakernel.Kernel, w megakernel.Tensors, layer int, scales []float64) (*reference.Layer, error) {
	s := reference.ShapeOf(mk.Config)
	weights := reference.Weights{}
	own := s.LayerTensors(0)
	for i, t := range s.LayerTensors(layer) {
		data := make([]uint16, t.Rows*t.Columns)
		failures := make([]error, (t.Rows+chunk-1)/chunk)
		each(len(failures), func(c int) {
			for r := c * chunk; r < min(t.Rows, (c+1)*chunk) && failures[c] == nil; r++ {
				failures[c] = w.Row(t.Name, r, data[r*t.Columns:(r+1)*t.Columns])
			}
		})
		if err := errors.Join(failures...); err != nil {
			return nil, fmt.Errorf("probe: %w", err)
		}
		weights[own[i].Name] = data
	}
	hooks := reference.AsKernelWith(s, mk.RoundInput)
	if mk.KV.ScalesLen() > 0 {
		var own []float32
		for _, x := range scales {
			own = append(own, float32(x))
		}
		hooks = reference.WithE4M3Cache(hooks, s, own)
	}
	hooks.Product = product
	hooks.Unrotated = func(int) bool { return mk.Unrotated(layer) }
	return reference.NewLayer(s, weights, hooks)
}

// product is reference.MatVec on all cores.
func product(w []uint16, x []float64) []float64 {
	rows := len(w) / len(x)
	out := make([]float64, rows)
	each((rows+chunk-1)/chunk, func(c int) {
		end := min(rows, (c+1)*chunk)
		copy(out[c*chunk:], reference.MatVec(w[c*chunk*len(x):end*len(x)], x))
	})
	return out
}
