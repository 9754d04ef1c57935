package quant

import (
	"fmt"

	"github.com/mkgen/mkgen/models"
)

// Coded is a Model whose layers' matrices all have integer codes of 4 bits, or all of 8, or all e4m3 with a scale a
// row or all with one a block of 128 rows and columns, or all e2m1, which it delivers in one form as they are beside
// the numbers: (code − zero point) · scale, none of it rounded. What has fewer scales than others has them several
// times.
type Coded struct {
	*Model
	Bits  int  // of a code, 4 or 8
	Float bool // codes are e4m3, or of 4 bits e2m1, and not integers
	// Group is the columns of a scale group, 32, 64 or 128, 0 for all of a row; of e4m3 128 where there are blocks. Of
	// e2m1 it is 32, with powers of two for scales, or 16, with e4m3 and a factor of the matrix behind a row's scales.
	Group int
	Zeros bool // some matrices have zero points
	F16   bool // scales are binary16, else bfloat16

	Head *Coded // the LM head in a form of its own, where its codes are wanted, too; nil: it is widened

	tensors map[string]*Coded // those of matrices that have forms of their own: see Mixed
}

// blockSize is the rows, and the columns, of blocks that Coded delivers.
const blockSize = 128

// Coded returns the model in that form; otherwise why it has none.
func (m *Model) Coded() (c *Coded, why string) {
	var names []string
	for _, stored := range m.config.Stored() {
		if stored.First.Layer >= 0 && !stored.First.Vector {
			names = append(names, stored.Name)
		}
	}
	if c, why = m.codedForm(names); c == nil && why == "" {
		why = "no matrix of a layer is quantised"
	}
	return c, why
}

// Matrices are the matrices of a layer that a kernel multiplies, of one tensor or of several below each other.
var Matrices = []string{"qkv", "o", "gate_up", "down"}

// MatrixOf returns which of Matrices has the rows of a tensor with this role; "" for others.
func MatrixOf(role models.Role) string {
	switch role {
	case models.RoleQ, models.RoleK, models.RoleV:
		return "qkv"
	case models.RoleO:
		return "o"
	case models.RoleGate, models.RoleUp:
		return "gate_up"
	case models.RoleDown:
		return "down"
	}
	return ""
}

// matrices are the names of the tensors of each in all layers, in the order of the layers.
func (m *Model) matrices() map[string][]string {
	all := map[string][]string{}
	for _, stored := range m.config.Stored() {
		if matrix := MatrixOf(stored.First.Role); matrix != "" {
			all[matrix] = append(all[matrix], stored.Name)
		}
	}
	return all
}

// Mixed returns the form of each of Matrices that has one in all layers; of the others why they have none.
func (m *Model) Mixed() (forms map[string]*Coded, why map[string]string) {
	forms, why = map[string]*Coded{}, map[string]string{}
	for matrix, names := range m.matrices() {
		if c, reason := m.codedForm(names); c != nil {
			forms[matrix] = c
		} else {
			why[matrix] = reason
		}
	}
	return forms, why
}

// Join returns the model with the codes of some of its matrices, of which forms are Mixed's; the others are widened.
func (m *Model) Join(forms map[string]*Coded) *Coded {
	c := &Coded{Model: m, tensors: map[string]*Coded{}}
	for matrix, names := range m.matrices() {
		for _, name := range names {
			if forms[matrix] != nil {
				c.tensors[name] = forms[matrix]
			}
		}
	}
	return c
}

// CodedHead returns the LM head in such a form, for Coded.Head; otherwise why it has none, "" where it is not
// quantised, or tied to the embedding.
func (m *Model) CodedHead() (c *Coded, why string) {
	headName := m.config.TensorName(models.RoleHead)
	if w := m.found[headName]; m.config.TieEmbeddings || w == nil || !w.Format.Quantised() {
		return nil, ""
	}
	return m.codedForm([]string{headName})
}

// HeadFormat says what the LM head's weights are in the checkpoint, such as "i8 a row with bf16 scales".
func (m *Model) HeadFormat() string {
	return m.found[m.config.TensorName(models.RoleHead)].Format.String()
}

// HeadCoded reports whether Int4Row has the LM head, too.
func (c *Coded) HeadCoded() bool { return c.Head != nil }

// codedForm is the form that the matrices of these names share; nil and why: they have none.
func (m *Model) codedForm(names []string) (c *Coded, why string) {
	f32 := "" // a matrix whose scales have no room in 16 bits
	for _, name := range names {
		w := m.found[name]
		f := w.Format
		blocks := f.Code == E4M3 && f.Rows == blockSize && f.Cols == blockSize
		f16 := f.Scale == ScaleF16 && !blocks // a block's is an f32, whatever it was
		e2m1 := f.Code == E2M1 && f.Rows == 1 && (f.Cols == 32 && f.Scale == ScaleE8M0 && f.Global == NoGlobal ||
			f.Cols == 16 && f.Scale == ScaleE4M3 && f.Global != NoGlobal)
		switch {
		case e2m1 && (c == nil || c.Float && c.Bits == 4 && c.Group == f.Cols):
			c = &Coded{Model: m, Bits: 4, Float: true, Group: f.Cols}
			continue
		case e2m1:
			return nil, fmt.Sprintf("%s is %s, and others are not", name, f)
		case f.Code != I4 && f.Code != I8 && f.Code != E4M3 || f.Rows > 1 && !blocks || f.Global != NoGlobal,
			(f.Scale == ScaleF32 || f.Code == E4M3) && f.Cols != 0 && !blocks,
			f.Scale != ScaleF16 && f.Scale != ScaleF32 && f.Scale != ScaleBF16 && !(blocks && f.Scale == ScaleE8M0):
			return nil, fmt.Sprintf("%s is %s", name, f)
		case w.groups != nil:
			return nil, name + " has its columns' groups in any order (act-order)"
		case f.Cols != 0 && f.Cols != 32 && f.Cols != 64 && f.Cols != 128:
			return nil, fmt.Sprintf("%s has groups of %d columns, want 32, 64, 128 or a whole row", name, f.Cols)
		case c != nil && (c.F16 != f16 || c.Bits != f.Code.bits() || c.Float != (f.Code == E4M3) || c.Float &&
			(c.Group > 0) != blocks):
			return nil, fmt.Sprintf("%s is %s, and others are not", name, f)
		case c == nil:
			c = &Coded{Model: m, Bits: f.Code.bits(), Float: f.Code == E4M3, F16: f16}
		}
		if f.Scale == ScaleF32 && !blocks {
			f32 = fmt.Sprintf("%s is %s, and others have groups", name, f)
		}
		c.Zeros = c.Zeros || f.Zeros
		if f.Cols > 0 && (c.Group == 0 || f.Cols < c.Group) {
			c.Group = f.Cols
		}
	}
	if c == nil {
		return nil, ""
	}
	if c.Zeros && c.Group == 0 {
		c.Group = 128
	}
	if c.Group > 0 && f32 != "" {
		return nil, f32
	}
	return c, ""
}

// Int4Row fills codes, of each column, e4m3 as bits and e2m1 as four with their sign, and scales and zeros, of each of
// Group columns, with those of a row; behind those of 16 columns is the factor, one over it where the checkpoint
// divides.
func (c *Coded) Int4Row(tensor string, row int, codes []int8, scales []float32, zeros []int8) error {
	if c.Head != nil && tensor == c.config.TensorName(models.RoleHead) {
		return c.Head.Int4Row(tensor, row, codes, scales, zeros)
	}
	if own := c.tensors[tensor]; own != nil {
		return own.Int4Row(tensor, row, codes, scales, zeros)
	}
	w := c.found[tensor]
	if w == nil {
		return fmt.Errorf("quant: found no tensor %s", tensor)
	}
	if err := w.fits(row, len(codes), w.Cols, true); err != nil {
		return err
	}
	want := 1
	if c.Group > 0 {
		want = (w.Cols + c.Group - 1) / c.Group
	}
	if c.factors() {
		want++
	}
	if len(scales) != want || len(zeros) != want {
		return fmt.Errorf("quant: %s: found room for %d scales and %d zero points of a row, want %d", tensor, len(scales),
			len(zeros), want)
	}
	r := readers.Get().(*reader)
	defer readers.Put(r)
	return c.files.Reading(func(data func(string) []byte) error {
		copy(codes, r.codesOf(w, data(w.codes.tensor), row))
		r.factors, r.zeros = sized(r.factors, w.Blocks()), sized(r.zeros, w.Blocks())
		w.readScales(data(w.scales.tensor), row, r.factors)
		w.readZeros(data, row, r.zeros)
		if w.Format.Code == E2M1 {
			for i, code := range codes {
				codes[i] = code << 4 >> 4
			}
		}
		if c.factors() {
			want--
			scales[want], zeros[want] = w.factor, 0
			if w.Format.Global == Divides {
				scales[want] = 1 / w.factor
			}
		}
		for g := range scales[:want] {
			of := g * c.Group / w.scales.columns
			scales[g], zeros[g] = r.factors[of], r.zeros[of]
		}
		return nil
	})
}

// factors reports whether each row's scales have the factor of their matrix behind them.
func (c *Coded) factors() bool { return c.Float && c.Group == 16 }

// Integers is whether a matrix has integer codes.
func (m *Model) Integers() bool {
	for _, w := range m.found {
		if w.Format.Code == I4 || w.Format.Code == I8 {
			return true
		}
	}
	return false
}
