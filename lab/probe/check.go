package probe

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/tasks/product"
)

// Sample is what a kernel with Options.Probe left of a step.
type Sample struct {
	Position, Token int
	residual        []byte // [Layers][2][Hidden] f32
	output          []byte // [Layers][Heads][HeadDim], as o's input has it: product.InputValue
}

// Take reads what the last step left, which fed this token.
func Take(mk *megakernel.Kernel, read Read, position, token int) (*Sample, error) {
	bytes := mk.ProbeBytes()
	s := &Sample{position, token, make([]byte, bytes[megakernel.BufferProbeResidual]),
		make([]byte, bytes[megakernel.BufferProbeAttention])}
	if err := read(megakernel.BufferProbeResidual, 0, s.residual); err != nil {
		return nil, err
	}
	return s, read(megakernel.BufferProbeAttention, 0, s.output)
}

// Checker checks layers of one model. Not safe for concurrent use.
type Checker struct {
	Kernel  *megakernel.Kernel
	Weights megakernel.Tensors

	kept map[int]*model
}

// Keep makes the checker keep the weights of these layers, for checks to come.
func (c *Checker) Keep(layers []int) {
	c.kept = map[int]*model{}
	for _, l := range layers {
		c.kept[l] = nil
	}
}

// Check compares layers of steps of one sequence, whose cache is in store, with float64.
func (c *Checker) Check(layers []int, samples []*Sample, store *Store) (Figures, error) {
	var f Figures
	last := 0
	for _, s := range samples {
		last = max(last, s.Position)
	}
	for _, l := range layers {
		scales, err := store.scales(l)
		if err != nil {
			return nil, err
		}
		layer, err := c.layer(l, scales)
		if err != nil {
			return nil, err
		}
		rows, err := store.Layer(l, 0, last+1)
		if err != nil {
			return nil, err
		}
		for _, s := range samples {
			if err := c.step(&f, l, layer, s, rows); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// layer is a layer's model, new or kept.
func (c *Checker) layer(l int, scales []float64) (*model, error) {
	kept, keep := c.kept[l]
	if kept != nil {
		return kept, nil
	}
	made, err := loadLayer(c.Kernel, c.Weights, l, scales)
	if keep && err == nil {
		c.kept[l] = made
	}
	return made, err
}

// step compares one layer of one step: each part of it from the kernel's own input.
func (c *Checker) step(f *Figures, l int, layer *model, s *Sample, rows *Rows) error {
	mk := c.Kernel
	before, err := c.before(l, s)
	if err != nil {
		return err
	}
	where := func(format string, args ...any) func() string {
		return func() string {
			return fmt.Sprintf("layer %d, position %d", l, s.Position) + fmt.Sprintf(format, args...)
		}
	}
	q, k, v := layer.Project(before, s.Position)
	for head := range rows.Heads {
		own := func(x []float64) []float64 { return x[head*rows.D : (head+1)*rows.D] }
		f.note(KeyRow, relative(floats(rows.Row(0, s.Position, head)), own(k)), where(", KV head %d", head))
		f.note(ValueRow, relative(floats(rows.Row(1, s.Position, head)), own(v)), where(", KV head %d", head))
	}
	got := s.outputOf(mk, l)
	c.attention(f, l, layer, &view{rows, s.Position, mk.Options.Page, k, v}, q, got, where)
	middle, after := s.residualOf(mk, l, 0), s.residualOf(mk, l, 1)
	input := slices.Clone(got) // of o: 4-bit weights' is fixed point of what was stored
	mk.RoundInput("o", input)
	f.note(AttnResidual, c.added(middle, before, layer.AfterAttention(before, input)), where(""))
	f.note(MLPResidual, c.added(after, middle, layer.AfterMLP(middle)), where(""))
	return nil
}

// added compares what was added to the residual vector before to make got with what makes want of it. What passing the
// vector on rounds off counts for nothing: it may be large beside what is added.
func (c *Checker) added(got, before, want []float64) float64 {
	moved := slices.Clone(got)
	for i, x := range want {
		most := c.Kernel.ResidualError(before[i], x)
		moved[i] = min(max(x, got[i]-most), got[i]+most)
	}
	return relative(less(moved, before), less(want, before))
}

// attention compares all query heads' outputs. For plain attention it also looks for pages that
// are left out, by all heads together: each counts by what it can say beside its rounding. An output beyond the
// limit is compared with that of a query whose ties are rounded the other way, too.
func (c *Checker) attention(f *Figures, l int, layer *model, w *view, q, got []float64,
	where func(string, ...any) func() string) {
	cfg := &c.Kernel.Config
	d, group := cfg.HeadDim, cfg.Heads/cfg.KVHeads
	variant := c.Kernel.LayerAttention(l, megakernel.Tables{})
	heads := make([]headOutput, cfg.Heads)
	each(cfg.Heads, func(h int) {
		own := q[h*d : (h+1)*d]
		if variant != nil {
			heads[h] = w.variant(variant, own, h, cfg.Heads, group)
		} else {
			out := got[h*d : (h+1)*d]
			if heads[h] = w.plain(own, h/group, out); relative(out, heads[h].out) > limits[Attention] {
				heads[h] = w.rounding(slices.Clone(own), h/group, out, ties(layer.query[h*d:(h+1)*d], own, layer.scale))
			}
		}
	})
	for h, x := range heads {
		f.note(Attention, relative(got[h*d:(h+1)*d], x.out), where(", head %d", h))
	}
	for p := range heads[0].explained {
		var all fit
		for _, x := range heads {
			noise := 0.0
			for _, o := range x.out {
				noise += o * o
			}
			noise *= outputNoise * outputNoise / float64(d)
			all.ed += x.explained[p].ed / noise
			all.dd += x.explained[p].dd / noise
		}
		if all.dd > pageVisible*pageVisible {
			f.note(Page, all.ed/all.dd, where(", page %d", p))
		}
	}
}

// outputNoise is more than what roundings do to an element of attention's output, relative to
// all: a bf16 has 2⁻⁹ of error at most, and so have the weights. A page counts as visible where
// leaving it out would change the outputs of all heads together by pageVisible times that. With
// scores of a standard deviation of 3.4 all pages of 16 tokens are visible up to 8192 tokens, and
// of 32768 tokens 19 in 20 at any one position of a layer.
const (
	outputNoise = 4e-3
	pageVisible = 10
)

// before is the residual vector that a layer begins with.
func (c *Checker) before(l int, s *Sample) ([]float64, error) {
	if l > 0 {
		return s.residualOf(c.Kernel, l-1, 1), nil
	}
	row := make([]half.BF16, c.Kernel.Config.Hidden)
	err := c.Weights.Row(c.Kernel.Config.TensorName(models.RoleEmbed), s.Token, row)
	return reference.FromBF16s(row), err
}

// residualOf is the residual vector behind a layer's attention (which = 0) or MLP (1).
func (s *Sample) residualOf(mk *megakernel.Kernel, l, which int) []float64 {
	n := mk.Config.Hidden
	out, raw := make([]float64, n), s.residual[4*n*(2*l+which):]
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
	}
	return out
}

// outputOf is attention's output of a layer.
func (s *Sample) outputOf(mk *megakernel.Kernel, l int) []float64 {
	n := mk.Config.Heads * mk.Config.HeadDim
	out, raw := make([]float64, n), s.output[2*n*l:]
	for i := range out {
		out[i] = product.InputValue(mk.Options.Weights.For("o"), binary.LittleEndian.Uint16(raw[2*i:]))
	}
	return out
}

func floats(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func less(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i, x := range a {
		out[i] = x - b[i]
	}
	return out
}
