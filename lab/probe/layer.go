package probe

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
)

// chunk is how many rows of a matrix a core takes at a time.
const chunk = 64

// model is a layer's float64 model, which rounds where the kernel does.
type model struct {
	*reference.Layer
	query []float64 // of the last Project, before it was rounded
	scale float64   // a query times this is what is rounded
}

// loadLayer reads a layer's weights and makes its model.
func loadLayer(mk *megakernel.Kernel, w megakernel.Tensors, layer int, scales []float64) (*model, error) {
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
	arch := mk.Config.Arch()
	m := &model{scale: arch.Layer(layer).Attn.Scale * math.Log2E}
	round := hooks.At
	hooks.At = func(l int, p reference.Point, v []float64) {
		if p == reference.Query {
			m.query = slices.Clone(v)
		}
		round(l, p, v)
	}
	var err error
	m.Layer, err = reference.NewLayer(mk.Config, layer, weights, hooks)
	return m, err
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
