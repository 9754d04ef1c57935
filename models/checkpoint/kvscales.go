package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// kvScaleNames are the tensors of a layer that say what elements of a float8 KV
// cache stand for a multiple of, as tools that quantise for vLLM write them: K,
// then V. Each is one number, or one a KV head.
var kvScaleNames = [2]string{"model.layers.%d.self_attn.k_scale", "model.layers.%d.self_attn.v_scale"}

// kvScalesOf is the set of their names; a checkpoint may lack them.
func kvScalesOf(c models.Config) map[string]bool {
	names := map[string]bool{}
	for layer := range c.Layers {
		for _, form := range kvScaleNames {
			names[fmt.Sprintf(form, layer)] = true
		}
	}
	return names
}

// matchScales takes over the scales of a KV cache: of every layer, or of none.
func (c *Checkpoint) matchScales(found map[string]*tensor, p *problems) {
	var names []string
	missing := ""
	for layer := range c.config.Layers {
		for _, form := range kvScaleNames {
			name := fmt.Sprintf(form, layer)
			t := found[name]
			if t == nil {
				missing = name
				continue
			}
			names = append(names, name)
			t.fitScale(c.config.KVHeads, p)
			c.scales = append(c.scales, t)
		}
	}
	if missing != "" && len(names) > 0 {
		p.add(Problem{Tensor: missing, Found: "nothing", Want: "it, as there is " + names[0]})
	}
}

// fitScale checks type and shape of a scale.
func (t *tensor) fitScale(heads int, p *problems) {
	if _, ok := dtypeOf(t.dtype); !ok {
		p.add(Problem{File: t.file.name, Tensor: t.name, Found: "dtype " + t.dtype, Want: wantDType})
	}
	n := int64(1)
	for _, d := range t.shape {
		n *= d
	}
	if n != 1 && n != int64(heads) {
		p.add(Problem{File: t.file.name, Tensor: t.name, Found: "shape " + showShape(t.shape),
			Want: fmt.Sprintf("one number, or %d, one a KV head", heads)})
	}
	t.rows, t.cols = 1, int(n)
}

// KVScales are the scales of a float8 KV cache, [layer][KV head][K, V], nil where
// the checkpoint has none. They are not checked; a scale must be positive.
//
// Errors: ErrClosed after Close, and a file that cannot be read any more.
func (c *Checkpoint) KVScales() ([]float32, error) {
	if len(c.scales) == 0 {
		return nil, nil
	}
	heads := c.config.KVHeads
	out := make([]float32, len(c.scales)*heads)
	for i, t := range c.scales {
		err := c.read(t, func() error {
			for head := range heads {
				out[(i/2*heads+head)*2+i%2] = number(t.row(0), min(head, t.cols-1), t.from)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// number is the i-th of a row, exactly.
func number(row []byte, i int, from models.DType) float32 {
	switch from {
	case models.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
	case models.BF16:
		return half.BF16At(row[2*i:]).Float32()
	}
	return half.F16At(row[2*i:]).Float32()
}
