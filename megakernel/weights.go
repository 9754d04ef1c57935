package megakernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// Tensors delivers a model's weights by their Hugging Face names. Row fills
// dst, one row of the tensor (the whole of a vector), with bf16 bit patterns.
// It is called from several goroutines at a time.
type Tensors interface {
	Row(tensor string, row int, dst []half.BF16) error
}

// Source says which row of which tensor is a row of a packed matrix. The
// tensor's name has %d where the layer's number goes.
type Source struct {
	Tensor string
	Row    int
}

// Rounded returns tensors with the rows of the layers' matrices and of the LM head rounded to the kernel's formats of
// weights, as they are when they are packed. Those that are bf16 there, or have codes (Coded), are as they were: t
// itself where all are. Where embeddings are tied and the head is rounded, the tensor of models.RoleHead is the head.
func (mk *Kernel) Rounded(t Tensors) Tensors {
	coded, isCoded := t.(Coded)
	r := &rounded{Tensors: t, formats: map[string]pipeline.Format{}, blocks: mk.blocked(t)}
	if mk.OwnHead() {
		r.head, r.embedding = mk.headTensor(), mk.embedTensor()
	}
	if !isCoded && mk.Options.otherWeights() != "" {
		for i := range layerMatrices {
			for _, part := range mk.origin(i).parts {
				for layer := range mk.Config.Layers {
					r.formats[TensorName(part.tensor, layer)] = mk.matrix(i).Format
				}
			}
		}
	}
	if !headCoded(t) && mk.Options.otherHead() != "" {
		r.formats[mk.headTensor()] = mk.Options.Head
	}
	switch {
	case len(r.formats) == 0:
		return t
	case isCoded:
		return struct {
			*rounded
			Coded
		}{r, coded}
	}
	return r
}

type rounded struct {
	Tensors
	formats map[string]pipeline.Format // of tensors that are rounded
	// Where embeddings are tied and the head is rounded: the head's name, whose rows are the embedding's.
	head, embedding string

	blocks *blocked // for formats with blocks
}

func (r *rounded) Row(tensor string, row int, dst []half.BF16) error {
	format, ok := r.formats[tensor]
	if tensor == r.head && r.head != "" {
		tensor = r.embedding
	}
	if err := r.Tensors.Row(tensor, row, dst); err != nil || !ok {
		return err
	}
	if format.Blocks() {
		scales, err := r.blocks.of(tensor, row)
		if err == nil {
			pipeline.RoundBlockRow(dst, scales)
		}
		return err
	}
	format.RoundRow(dst)
	return nil
}

// RoundInput rounds the input of a matrix of the layers, "qkv", "o", "gate_up" or "down", as the kernel does, in place.
// Attention's output and the MLP's have been passed through memory, and with several rows a norm's.
func (mk *Kernel) RoundInput(matrix string, v []float64) {
	own := mk.Options.Weights.For(matrix)
	if mk.Ragged() {
		product.RoundColumns(mk.Options.Weights.For(""), own, v)
		return
	}
	product.RoundInput(own, v, matrix == "o" || matrix == "down")
}

// RoundHeadInput rounds the input of the LM head as the kernel does, in place: with several rows it has been passed
// through memory, in the type of the layers' products.
func (mk *Kernel) RoundHeadInput(v []float64) {
	if mk.Ragged() {
		product.RoundColumns(mk.Options.Weights.For(""), mk.Options.Head, v)
		return
	}
	product.RoundInput(mk.Options.Head, v, false)
}

// WeightBytes is what a step of one row must read of weights: all matrices and gains once, and one
// row of embeddings.
func (mk *Kernel) WeightBytes() int64 {
	n := mk.Config.WeightBytes()
	for i := range mk.Plan.Layer {
		m := &mk.Plan.Layer[i]
		n += int64(mk.Config.Layers) * (m.WeightBytes() - 2*int64(m.Rows)*int64(m.K))
	}
	head := &mk.Plan.Final[0]
	return n + head.WeightBytes() - 2*int64(head.Rows)*int64(head.K)
}

// The matrices of token embeddings and of the LM head; checkpoints with tied embeddings do not have the latter.
func (mk *Kernel) embedTensor() string { return mk.Config.TensorName(models.RoleEmbed) }
func (mk *Kernel) headTensor() string  { return mk.Config.TensorName(models.RoleHead) }

// origin says where the rows of a packed matrix come from: parts, one below the
// other, of which packed row r is row(r).
type origin struct {
	parts []part
	row   func(r int) int
}

// part is a number of rows of a tensor, of which row r is stored(r).
type part struct {
	tensor string // with %d for the layer's number
	rows   int
	stored func(r int) int
}

// part is the part of a role, whose rows are the same in all layers.
func (mk *Kernel) part(r models.Role) part {
	t, ok := mk.Config.TensorOf(r, 0)
	if !ok {
		panic("BUG: no tensor of " + r.String())
	}
	return part{mk.Config.TensorName(r), t.Rows, t.StoredRow}
}

// origin of matrix i of the plan table (MatrixQKV …, then the LM head).
func (mk *Kernel) origin(i int) origin {
	c := &mk.Config
	whole := func(r models.Role) origin {
		return origin{[]part{mk.part(r)}, func(r int) int { return r }}
	}
	switch i {
	case MatrixQKV:
		t := attention.QKV{Heads: c.Heads, KV: mk.KV}
		return origin{[]part{mk.part(models.RoleQ), mk.part(models.RoleK), mk.part(models.RoleV)}, t.SourceRow}
	case MatrixO:
		return whole(models.RoleO)
	case MatrixGateUp:
		return origin{[]part{mk.part(models.RoleGate), mk.part(models.RoleUp)}, product.GateUpSource(c.Intermediate)}
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
			return i, p.stored(row)
		}
		row -= p.rows
	}
	panic(fmt.Sprintf("BUG: row %d lies beyond the %d parts", r, len(o.parts)))
}

// Sources returns the origin of each row of matrix i of the plan table (MatrixQKV …, then the LM head).
func (mk *Kernel) Sources(i int) func(row int) Source {
	o := mk.origin(i)
	return func(row int) Source {
		which, row := o.find(row)
		return Source{o.parts[which].tensor, row}
	}
}

// GainTensors are the tensors of the buffer "gains", Hidden elements each: the norms of
// each layer in turn, in the order in which they come, then the final norm.
func (mk *Kernel) GainTensors() []string {
	var names []string
	for l := range mk.Config.Layers {
		for _, r := range mk.NormRoles() {
			names = append(names, TensorName(mk.Config.TensorName(r), l))
		}
	}
	return append(names, mk.Config.TensorName(models.RoleFinal))
}

// Gains is the content of the buffer "gains".
func (mk *Kernel) Gains(t Tensors) ([]byte, error) {
	row := make([]half.BF16, mk.Config.Hidden)
	var out []byte
	for _, name := range mk.GainTensors() {
		if err := t.Row(name, 0, row); err != nil {
			return nil, err
		}
		for _, v := range row {
			out = v.Append(out)
		}
	}
	return out, nil
}

// GainRow is the row of the buffer "gains" of a norm of a layer, or of the final norm.
func (mk *Kernel) GainRow(layer int, r models.Role) int {
	if r == models.RoleFinal {
		return mk.finalGain()
	}
	return layer*len(mk.NormRoles()) + slices.Index(mk.NormRoles(), r)
}

// VectorBuffer is a buffer of vectors that are made of a checkpoint's.
type VectorBuffer struct {
	Name    string
	Tensors []string // of which it is made
	Fill    string   // how, in words
	Bytes   int64
	Make    func(t Tensors) ([]byte, error)
}

// VectorBuffers are the buffers of gains and biases.
func (mk *Kernel) VectorBuffers() []VectorBuffer {
	c := &mk.Config
	last, roles := c.TensorName(models.RoleFinal), mk.NormRoles()
	var names []string
	for _, r := range roles {
		names = append(names, c.TensorName(r))
	}
	norms := fmt.Sprintf("%s of each layer %%d in turn, then %s; bf16", joined(names), last)
	list := []VectorBuffer{{"gains", mk.GainTensors(), norms, 2 * elements(len(roles)*c.Layers+1, c.Hidden), mk.Gains}}
	if n := mk.biasLen(layerMatrices); n > 0 {
		var from []rowsOf
		for i := range layerMatrices {
			if roles := mk.biasRoles(i); roles != nil {
				from = append(from, rowsOf{roles, mk.matrixRows(i), mk.origin(i).row})
			}
		}
		list = append(list, mk.rowVectors(BufferBiases, from))
	}
	if a := &mk.kind().Attn; a.QKNorm.Kind != models.NoNorm {
		qkv, d := mk.origin(MatrixQKV).row, c.HeadDim
		row := qkv
		if !a.QKNormWide { // every head has the same gains
			row = func(r int) int {
				r = qkv(r)
				if r < c.Heads*d {
					return r % d
				}
				return d + r%d
			}
		}
		list = append(list, mk.rowVectors(BufferQKGains,
			[]rowsOf{{[]models.Role{models.RoleQNorm, models.RoleKNorm}, (c.Heads + c.KVHeads) * d, row}}))
	}
	return list
}

// joined is "a, b and c".
func joined(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// rowsOf are n numbers of packed rows: row r's is element row(r) of the vectors of roles, one below the other.
type rowsOf struct {
	roles []models.Role
	n     int
	row   func(r int) int
}

// rowVectors is a buffer of the numbers of packed rows, layer by layer.
func (mk *Kernel) rowVectors(name string, from []rowsOf) VectorBuffer {
	c, n := &mk.Config, 0
	b := VectorBuffer{Name: name}
	for _, f := range from {
		n += f.n
	}
	var all []string
	for _, f := range from {
		for _, r := range f.roles {
			all = append(all, c.TensorName(r))
		}
	}
	b.Fill = fmt.Sprintf("of each layer %%d in turn, in the order of the packed rows: %s; bf16", joined(all))
	b.Bytes = 2 * elements(c.Layers, n)
	for l := range c.Layers {
		for _, name := range all {
			b.Tensors = append(b.Tensors, TensorName(name, l))
		}
	}
	b.Make = func(t Tensors) (out []byte, err error) {
		for l := range c.Layers {
			for _, f := range from {
				var all []half.BF16
				for _, r := range f.roles {
					at, ok := c.TensorOf(r, l)
					if !ok {
						panic("BUG: no tensor of " + r.String())
					}
					stored := make([]half.BF16, at.Stored)
					if err := t.Row(at.Name, 0, stored); err != nil {
						return nil, err
					}
					for i := range at.Rows {
						all = append(all, stored[at.StoredRow(i)])
					}
				}
				for r := range f.n {
					out = all[f.row(r)].Append(out)
				}
			}
		}
		return out, nil
	}
	return b
}
