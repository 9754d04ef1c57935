package probe

import (
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
)

// chunk is how many rows of a matrix a core takes at a time.
const chunk = 64

// loadLayer reads a layer's weights and makes its float64 model, which rounds where the kernel
// does.
func loadLayer(mk *megakernel.Kernel, w megakernel.Tensors, layer int, scales []float64) (*reference.Layer, error) {
	weights := reference.Weights{}
	for _, t := range mk.Config.Stored() {
		if t.First.Layer != layer {
			continue
		}
		rows, columns := 1, t.Shape[len(t.Shape)-1]
		if len(t.Shape) > 1 {
			rows = t.Shape[0]
		}
		data := make([]half.BF16, rows*columns)
		failures := make([]error, (rows+chunk-1)/chunk)
		each(len(failures), func(c int) {
			for r := c * chunk; r < min(rows, (c+1)*chunk) && failures[c] == nil; r++ {
				failures[c] = w.Row(t.Name, r, data[r*columns:(r+1)*columns])
			}
		})
		if err := errors.Join(failures...); err != nil {
			return nil, fmt.Errorf("probe: %w", err)
		}
		weights[t.Name] = data
	}
	hooks := reference.AsKernelWith(mk.Config, mk.RoundInput, mk.RoundHeadInput)
	if mk.KV.ScalesLen() > 0 {
		own := make([]float32, layer*2*mk.Config.KVHeads) // of the layers before it, which nothing reads
		for _, x := range scales {
			own = append(own, float32(x))
		}
		hooks = reference.WithE4M3Cache(hooks, mk.Config, own)
	}
	hooks.Product = onAllCores
	hooks.Unrotated = mk.Unrotated
	return reference.NewLayer(mk.Config, layer, weights, hooks)
}

// onAllCores is reference.MatVec on all cores.
func onAllCores(w []half.BF16, x []float64) []float64 {
	rows := len(w) / len(x)
	out := make([]float64, rows)
	each((rows+chunk-1)/chunk, func(c int) {
		end := min(rows, (c+1)*chunk)
		copy(out[c*chunk:], reference.MatVec(w[c*chunk*len(x):end*len(x)], x))
	})
	return out
}
