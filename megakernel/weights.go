package megakernel

import (
	"encoding/binary"
	"fmt"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
)

// Tensors delivers a model's weights by their Hugging Face names. Row fills
// dst, one row of the tensor (the whole of a vector), with bf16 bit patterns.
// It is called from several goroutines at a time.
type Tensors interface {
	Row(tensor string, row int, dst []uint16) error
}

// Source says which row of which tensor is a row of a packed matrix. The
// tensor's name has %d where the layer's number goes.
type Source struct {
	Tensor string
	Row    int
}

// Names of the tensors that are not matrices of a layer.
const (
	tensorEmbed    = "model.embed_tokens.weight"
	tensorHead     = "lm_head.weight"
	tensorNorm     = "model.norm.weight"
	tensorAttnNorm = "model.layers.%d.input_layernorm.weight"
	tensorMLPNorm  = "model.layers.%d.post_attention_layernorm.weight"
)

// Source is the origin of a row of matrix i of the plan table (MatrixQKV …,
// then the LM head).
func (mk *Kernel) Source(i, row int) Source {
	c := &mk.Config
	switch i {
	case MatrixQKV:
		t := tasks.QKV{Heads: c.Heads, KV: mk.KV}
		return split("model.layers.%%d.self_attn.%s_proj.weight", t.SourceRow(row),
			part{"q", c.Heads * c.HeadDim}, part{"k", c.KVHeads * c.HeadDim}, part{"v", c.KVHeads * c.HeadDim})
	case MatrixO:
		return Source{"model.layers.%d.self_attn.o_proj.weight", row}
	case MatrixGateUp:
		return split("model.layers.%%d.mlp.%s_proj.weight", tasks.GateUpSource(c.Intermediate)(row),
			part{"gate", c.Intermediate}, part{"up", c.Intermediate})
	case MatrixDown:
		return Source{"model.layers.%d.mlp.down_proj.weight", row}
	case layerMatrices:
		if c.TieEmbeddings {
			return Source{tensorEmbed, row}
		}
		return Source{tensorHead, row}
	}
	panic(fmt.Sprintf("BUG: matrix %d", i))
}

type part struct {
	name string
	rows int
}

// split finds row of the concatenation of parts.
func split(format string, row int, parts ...part) Source {
	for _, p := range parts {
		if row < p.rows {
			return Source{fmt.Sprintf(format, p.name), row}
		}
		row -= p.rows
	}
	panic(fmt.Sprintf("BUG: row %d lies beyond %v", row, parts))
}

// PackLayer writes one layer's image (Plan.LayerBytes long) of the buffer
// "weights"; layer pipeline.FinalLayer is the LM head's (FinalBytes long).
func (mk *Kernel) PackLayer(dst []byte, layer int, t Tensors) error {
	matrices, first := layerMatrices, 0
	if layer == pipeline.FinalLayer {
		matrices, first = 1, layerMatrices
	}
	for i := range matrices {
		rows := func(row int, scratch []uint16) ([]uint16, error) {
			s := mk.Source(first+i, row)
			return scratch, t.Row(tensorName(s.Tensor, layer), s.Row, scratch)
		}
		if err := mk.Plan.Pack(dst, layer, i, rows); err != nil {
			return err
		}
	}
	return nil
}

func tensorName(format string, layer int) string {
	if layer == pipeline.FinalLayer {
		return format
	}
	return fmt.Sprintf(format, layer)
}

// Embed reads row of the token embeddings, Hidden elements.
func (mk *Kernel) Embed(row int, dst []uint16, t Tensors) error { return t.Row(tensorEmbed, row, dst) }

// Gains is the content of the buffer "gains": attention and MLP norm of each
// layer in turn, then the final norm.
func (mk *Kernel) Gains(t Tensors) ([]byte, error) {
	c := &mk.Config
	row := make([]uint16, c.Hidden)
	out := make([]byte, 0, (2*c.Layers+1)*c.Hidden*2)
	for i := range 2*c.Layers + 1 {
		name := tensorNorm
		if i < 2*c.Layers {
			name = fmt.Sprintf([]string{tensorAttnNorm, tensorMLPNorm}[i%2], i/2)
		}
		if err := t.Row(name, 0, row); err != nil {
			return nil, err
		}
		for _, v := range row {
			out = binary.LittleEndian.AppendUint16(out, v)
		}
	}
	return out, nil
}

// InvFreq is the content of the buffer "inv_freq".
func (mk *Kernel) InvFreq() []float32 { return models.RopeInvFreq(mk.Config) }
