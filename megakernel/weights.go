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

// Rounded are tensors with the rows of the layers' matrices rounded to the kernel's format of
// weights, as they are when they are packed; t itself where that is bf16.
func (mk *Kernel) Rounded(t Tensors) Tensors {
	if mk.Options.Weights == pipeline.FormatBF16 {
		return t
	}
	r := rounded{t, mk.Options.Weights, map[string]bool{}}
	for _, stored := range mk.Config.Stored() {
		r.inLayers[stored.Name] = stored.First.Layer >= 0 && !stored.First.Vector
	}
	return r
}

type rounded struct {
	Tensors
	format   pipeline.Format
	inLayers map[string]bool // tensors that are part of a layer's matrices
}

func (r rounded) Row(tensor string, row int, dst []uint16) error {
	if err := r.Tensors.Row(tensor, row, dst); err != nil || !r.inLayers[tensor] {
		return err
	}
	r.format.RoundRow(dst)
	return nil
}

// RoundInput rounds the input of a product of the layers' matrices as the kernel does, in place.
func (mk *Kernel) RoundInput(v []float64) { tasks.RoundInput(mk.Options.Weights, v) }

// WeightBytes is what a step of one row must read of weights: all matrices and gains once, and one
// row of embeddings.
func (mk *Kernel) WeightBytes() int64 {
	n := mk.Config.WeightBytes()
	for i := range mk.Plan.Layer {
		m := &mk.Plan.Layer[i]
		n += int64(mk.Config.Layers) * (m.WeightBytes() - 2*int64(m.Rows)*int64(m.K))
	}
	return n
}

// EmbedTensor is the matrix of token embeddings.
const EmbedTensor = "model.embed_tokens.weight"

// origin says where the rows of a packed matrix come from: parts, one below the
// other, of which packed row r is row(r).
type origin struct {
	parts []part
	row   func(r int) int
}

// part is so many rows of a tensor, from row first on.
type part struct {
	tensor      string // with %d for the layer's number
	first, rows int
}

// part is the part of a role, whose rows are the same in all layers.
func (mk *Kernel) part(r models.Role) part {
	t, ok := mk.Config.TensorOf(r, 0)
	if !ok {
		panic("BUG: no tensor of " + r.String())
	}
	return part{mk.Config.TensorName(r), t.First, t.Rows}
}

// origin of matrix i of the plan table (MatrixQKV …, then the LM head).
func (mk *Kernel) origin(i int) origin {
	c := &mk.Config
	whole := func(r models.Role) origin {
		return origin{[]part{mk.part(r)}, func(r int) int { return r }}
	}
	switch i {
	case MatrixQKV:
		t := tasks.QKV{Heads: c.Heads, KV: mk.KV}
		return origin{[]part{mk.part(models.RoleQ), mk.part(models.RoleK), mk.part(models.RoleV)}, t.SourceRow}
	case MatrixO:
		return whole(models.RoleO)
	case MatrixGateUp:
		return origin{[]part{mk.part(models.RoleGate), mk.part(models.RoleUp)}, tasks.GateUpSource(c.Intermediate)}
	case MatrixDown:
		return whole(models.RoleDown)
	case layerMatrices:
		if c.TieEmbeddings {
			return whole(models.RoleEmbed)
		}
		return whole(models.RoleHead)
	}
	panic(fmt.Sprintf("BUG: matrix %d", i))
}

// find is the part that holds packed row r, and the row of its tensor.
func (o *origin) find(r int) (which, row int) {
	row = o.row(r)
	for i, p := range o.parts {
		if row < p.rows {
			return i, p.first + row
		}
		row -= p.rows
	}
	panic(fmt.Sprintf("BUG: row %d lies beyond %v", r, o.parts))
}

// Source is the origin of a row of matrix i of the plan table (MatrixQKV …,
// then the LM head).
func (mk *Kernel) Source(i, row int) Source {
	o := mk.origin(i)
	which, row := o.find(row)
	return Source{o.parts[which].tensor, row}
}

// GainTensors are the tensors of the buffer "gains", Hidden elements each: attention
// and MLP norm of each layer in turn, then the final norm.
func (mk *Kernel) GainTensors() []string {
	var names []string
	for l := range mk.Config.Layers {
		names = append(names, TensorName(mk.Config.TensorName(models.RolePreAttn), l), TensorName(mk.Config.TensorName(models.RolePreMLP), l))
	}
	return append(names, mk.Config.TensorName(models.RoleFinal))
}

// Gains is the content of the buffer "gains".
func (mk *Kernel) Gains(t Tensors) ([]byte, error) {
	row := make([]uint16, mk.Config.Hidden)
	var out []byte
	for _, name := range mk.GainTensors() {
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
