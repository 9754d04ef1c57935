package randomize

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
)

type (
	u32  = dsl.Val[dsl.U32]
	f32  = dsl.Val[dsl.F32]
	pair = dsl.Val[dsl.BF16x2]
)

// Kernel makes the weights of one megakernel. It has no scalars.
type Kernel struct {
	IR    *ir.Kernel
	shape *shape
}

// warps a CTA; one CTA writes the share of one SM.
const warps = 16

// unit is how many elements a thread makes at a time: 16 bytes.
const unit = 8

// New builds the kernel for mk. It refuses rows that are no multiple of 8 elements, and an LM head in another format
// than bf16 whose rows are no multiple of 8.
func New(mk *megakernel.Kernel) (*Kernel, error) {
	s := newShape(mk)
	k := dsl.New("mkgen_random", dsl.Options{Warps: warps, Grid: mk.Options.SMs, Doc: []string{
		fmt.Sprintf("Random weights of %s, packed.", mk.Config.Name)}})
	b := &builder{shape: s, k: k, first: k.CTA().MulC(32 * warps).Add(k.Tid())}
	b.weights = dsl.View[dsl.BF16x2](dsl.Global[dsl.B128](k, "weights", mk.Plan.PackedBytes/16,
		dsl.Doc("out: packed matrices")))
	b.rows = b.table(bufRows, len(s.rows), "of each packed row: its tensor in the layer, and its row there")
	b.tensors = b.table(bufTensors, tensorWords*len(s.names()), "[tensors] key, and scale as f32")
	for _, m := range s.matrices {
		k.Region(m.Name, func() { b.matrix(m) })
	}
	if s.embed {
		embed := b.vector(megakernel.BufferEmbed, mk.Config.Vocab*mk.Config.Hidden)
		k.Region("embedding", func() { b.plain(embed, mk.Config.Vocab*mk.Config.Hidden, s.embedTensor()) })
	}
	program, err := k.Finish()
	if err != nil {
		return nil, err
	}
	return &Kernel{IR: program, shape: s}, nil
}

// Tables are the kernel's input for a seed; the other buffers are the megakernel's.
func (r *Kernel) Tables(seed uint64) ([]Table, error) {
	tensors, err := r.shape.tensors(seed)
	return []Table{{bufRows, r.shape.rows}, {bufTensors, tensors}}, err
}

// Vectors are the buffers of gains and biases for a seed, which are small: the host makes them.
func (r *Kernel) Vectors(seed uint64) (map[string][]byte, error) {
	from, made := synth.NewWeights(seed, *r.shape.config), map[string][]byte{}
	for _, v := range r.shape.vectors {
		data, err := v.Make(from)
		if err != nil {
			return nil, err
		}
		made[v.Name] = data
	}
	return made, nil
}

// Bytes is how much the kernel and Vectors write.
func (r *Kernel) Bytes() int64 {
	c := r.shape.config
	n := r.shape.plan.PackedBytes
	for _, v := range r.shape.vectors {
		n += v.Bytes
	}
	if r.shape.embed {
		n += int64(c.Vocab) * int64(c.Hidden) * 2
	}
	return n
}

type builder struct {
	*shape
	k             *dsl.Kernel
	first         u32 // this thread in the grid
	weights       dsl.Buf[dsl.BF16x2]
	rows, tensors dsl.Buf[dsl.U32]
}

// vector is a row-major output of n elements.
func (b *builder) vector(name string, n int) dsl.Buf[dsl.BF16x2] {
	return dsl.View[dsl.BF16x2](dsl.Global[dsl.BF16](b.k, name, int64(n), dsl.Doc("out"), dsl.Align(16)))
}

func (b *builder) table(name string, n int, doc string) dsl.Buf[dsl.U32] {
	return dsl.Global[dsl.U32](b.k, name, int64(n), dsl.ReadOnly(), dsl.Align(16), dsl.Doc(doc))
}

// matrix writes one matrix in every layer. 16 bytes of the packed buffer are a quarter of a
// row's part of a tile group, see pipeline.TileOffset.
func (b *builder) matrix(m matrix) {
	k := b.k
	k.Require(m.K%unit == 0, "randomize: %s has %d columns, want a multiple of %d", m.Name, m.K, unit)
	k.Require(m.Rows%pipeline.TileRows == 0 || m.Format.Bits() == 16,
		"randomize: %s has %d rows, want a multiple of %d for %s", m.Name, m.Rows, pipeline.TileRows, m.Format)
	switch {
	case m.Across():
		b.across(m)
		return
	case m.Format == pipeline.FormatE4M3:
		b.e4m3(m)
		return
	case m.Format.Blocks():
		b.e4m3Blocks(m)
		return
	case m.Format.Integers():
		b.int4(m)
		return
	}
	k.For(k.U32(0), k.U32(b.layers(m)), func(l u32) {
		first := b.firstTensor(m, l)
		b.eachUnit(m, l, func(u u32, to func(v []pair)) {
			in := u.RemC(m.KPadded)
			r := in.RemC(pipeline.GroupK).DivC(4).Named("row_in_tile")
			row := u.DivC(m.KPadded).MulC(pipeline.TileRows).Add(r).Named("row")
			column := in.DivC(pipeline.GroupK).MulC(pipeline.GroupK).Add(in.RemC(4).Xor(r.ShrC(1)).MulC(unit)).Named("column")
			out := dsl.NewArray(dsl.Lit[dsl.BF16x2](k, 0), unit/2, "out")
			k.If(row.LtC(m.Rows).And(column.LtC(m.K)), func() {
				source := b.rows.Load(row.AddC(m.firstRow), dsl.CacheHint(dsl.NonCoherent))
				element := source.AndC(1<<rowBits - 1).MulC(m.K).Add(column)
				for j, p := range b.values(first.Add(source.ShrC(rowBits)), element) {
					out[j].Set(p)
				}
			})
			var v []pair
			for _, p := range out {
				v = append(v, p.Get())
			}
			to(v)
		})
	}, dsl.Unroll(1))
}

// layers is how often there is a matrix.
func (b *builder) layers(m matrix) int {
	if m.layer == pipeline.FinalLayer {
		return 1
	}
	return b.plan.Layers
}

// firstTensor is the number of the first tensor of those that matrix m of layer l is made of.
func (b *builder) firstTensor(m matrix, l u32) u32 {
	if m.layer == pipeline.FinalLayer {
		return b.k.U32(b.headTensor())
	}
	return l.MulC(len(b.perLayer))
}

// eachUnit calls body for this thread's units of 16 bytes of a matrix in layer l: with the
// unit's number in the matrix, and with what writes it.
func (b *builder) eachUnit(m matrix, l u32, body func(u u32, to func(v []pair))) {
	image := dsl.Cast[dsl.U64](l).MulC(int(b.plan.LayerBytes / 16)).AddC(int((b.plan.Image(m.layer) + m.Start) / 16)).
		Named("image")
	b.k.ForStep(b.first, b.k.U32(m.Tiles*m.KPadded), b.plan.SMs*32*warps, func(u u32) {
		body(u, func(v []pair) { b.weights.StoreN(image.Add(dsl.Cast[dsl.U64](u)).MulC(unit/2), v) })
	}, dsl.Unroll(1))
}

// plain writes a tensor of n elements; all CTAs share the work.
func (b *builder) plain(to dsl.Buf[dsl.BF16x2], elements, tensor int) {
	k := b.k
	k.Require(elements%unit == 0, "randomize: %d elements, want a multiple of %d", elements, unit)
	k.ForStep(b.first, k.U32(elements/unit), b.plan.SMs*32*warps, func(u u32) {
		v := b.values(k.U32(tensor), u.MulC(unit))
		to.StoreN(u.MulC(unit/2), v)
	}, dsl.Unroll(1))
}
