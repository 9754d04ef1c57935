package randomize

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
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

// New builds the kernel for mk. It refuses rows that are no multiple of 8 elements.
func New(mk *megakernel.Kernel) (*Kernel, error) {
	s := newShape(mk)
	k := dsl.New("mkgen_random", dsl.Options{Warps: warps, Grid: mk.Options.SMs, Doc: []string{
		fmt.Sprintf("Random weights of %s, packed for %d SMs.", mk.Config.Name, mk.Options.SMs)}})
	b := &builder{shape: s, k: k, first: k.CTA().MulC(32 * warps).Add(k.Tid())}
	b.weights = dsl.View[dsl.BF16x2](dsl.Global[dsl.B128](k, "weights", mk.Plan.PackedBytes/16, dsl.Doc("out: packed matrices")))
	b.gains = b.vector("gains", len(s.gains)*mk.Config.Hidden)
	b.shares = b.table(bufShares, len(s.shares()), "[SMs][matrices] first tile, tiles, and where they begin in 16 bytes")
	b.rows = b.table(bufRows, len(s.rows), "of each packed row: its tensor in the layer, and its row there")
	b.tensors = b.table(bufTensors, tensorWords*len(s.names()), "[tensors] key, and scale as f32")
	for i, m := range s.matrices {
		k.Region(m.Name, func() { b.matrix(i, m) })
	}
	k.Region("gains", func() { b.plain(b.gains, len(s.gains), mk.Config.Hidden, s.firstGain(), gain) })
	if s.embed {
		embed := b.vector(megakernel.BufferEmbed, mk.Config.Vocab*mk.Config.Hidden)
		k.Region("embedding", func() { b.plain(embed, 1, mk.Config.Vocab*mk.Config.Hidden, s.embedTensor(), normal) })
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
	return []Table{{bufShares, r.shape.shares()}, {bufRows, r.shape.rows}, {bufTensors, tensors}}, err
}

// Bytes is how much the kernel writes.
func (r *Kernel) Bytes() int64 {
	c := r.shape.config
	n := r.shape.plan.PackedBytes + int64(len(r.shape.gains))*int64(c.Hidden)*2
	if r.shape.embed {
		n += int64(c.Vocab) * int64(c.Hidden) * 2
	}
	return n
}

type builder struct {
	*shape
	k                     *dsl.Kernel
	first                 u32 // this thread in the grid
	weights, gains        dsl.Buf[dsl.BF16x2]
	shares, rows, tensors dsl.Buf[dsl.U32]
}

// vector is a row-major output of n elements.
func (b *builder) vector(name string, n int) dsl.Buf[dsl.BF16x2] {
	return dsl.View[dsl.BF16x2](dsl.Global[dsl.BF16](b.k, name, int64(n), dsl.Doc("out"), dsl.Align(16)))
}

func (b *builder) table(name string, n int, doc string) dsl.Buf[dsl.U32] {
	return dsl.Global[dsl.U32](b.k, name, int64(n), dsl.ReadOnly(), dsl.Align(16), dsl.Doc(doc))
}

// matrix writes this CTA's share of one matrix in every layer. 16 bytes of the
// packed buffer are a quarter of a row's part of a tile group.
func (b *builder) matrix(i int, m matrix) {
	k := b.k
	k.Require(m.K%unit == 0, "randomize: %s has %d columns, want a multiple of %d", m.Name, m.K, unit)
	share := b.shares.LoadN(k.CTA().MulC(len(b.matrices)).AddC(i).MulC(shareWords), shareWords, dsl.CacheHint(dsl.NonCoherent))
	if m.Across() {
		b.across(m, share)
		return
	}
	units := share[1].MulC(m.KPadded)
	start := dsl.Cast[dsl.U64](share[2]).Or(dsl.Cast[dsl.U64](share[3]).ShlC(32))
	layers, stride, tensors, tensor := b.plan.Layers, int(b.plan.LayerBytes/16), len(b.perLayer), 0
	if m.layer == pipeline.FinalLayer {
		layers, stride, tensors, tensor = 1, 0, 0, b.headTensor()
	}
	k.For(k.U32(0), k.U32(layers), func(l u32) {
		image := dsl.Cast[dsl.U64](l).MulC(stride).Add(start).Named("image")
		first := l.MulC(tensors).AddC(tensor)
		k.ForStep(k.Tid(), units, 32*warps, func(u u32) {
			tile, in, from := place(k, m.MatrixPlan, share[1], u)
			row := share[0].Add(tile).MulC(pipeline.TileRows).Add(in.RemC(pipeline.GroupK).DivC(4)).Named("row")
			column := from.Add(in.DivC(pipeline.GroupK).MulC(pipeline.GroupK)).Add(in.RemC(4).MulC(unit)).Named("column")
			out := dsl.NewArray(dsl.Lit[dsl.BF16x2](k, 0), unit/2, "out")
			k.If(row.LtC(m.Rows).And(column.LtC(m.K)), func() {
				source := b.rows.Load(row.AddC(m.firstRow), dsl.CacheHint(dsl.NonCoherent))
				element := source.AndC(1<<rowBits - 1).MulC(m.K).Add(column)
				for j, p := range b.values(first.Add(source.ShrC(rowBits)), element, normal) {
					out[j].Set(p)
				}
			})
			var v []pair
			for _, p := range out {
				v = append(v, p.Get())
			}
			b.weights.StoreN(image.Add(dsl.Cast[dsl.U64](u)).MulC(unit/2), v)
		}, dsl.Unroll(1))
	}, dsl.Unroll(1))
}

// place says where unit u of a share of so many tiles lies: in which of them, at
// which unit of it, or of its chunk that begins with column first. See
// MatrixPlan.ChunkStart, whose inverse it is.
func place(k *dsl.Kernel, m *pipeline.MatrixPlan, tiles, u u32) (tile, in, first u32) {
	if m.Batch == 0 {
		return u.DivC(m.KPadded), u.RemC(m.KPadded), k.U32(0)
	}
	batch := u.DivC(m.Batch * m.KPadded)
	in = u.RemC(m.Batch * m.KPadded)
	side := tiles.Sub(batch.MulC(m.Batch)).MinC(m.Batch).Named("side")
	part := in.Div(side.MulC(m.ChunkK))
	in = in.Rem(side.MulC(m.ChunkK))
	columns := dsl.Select(part.EqC(m.ChunksPerTile-1), k.U32(m.TailK), k.U32(m.ChunkK)).Named("columns")
	return batch.MulC(m.Batch).Add(in.Div(columns)), in.Rem(columns), part.MulC(m.ChunkK)
}

// plain writes n tensors of so many elements each, one after another; all CTAs
// share the work.
func (b *builder) plain(to dsl.Buf[dsl.BF16x2], n, elements, tensor int, kind kind) {
	k, each := b.k, elements/unit
	k.Require(elements%unit == 0, "randomize: %d elements, want a multiple of %d", elements, unit)
	k.ForStep(b.first, k.U32(n*each), b.plan.SMs*32*warps, func(u u32) {
		v := b.values(u.DivC(each).AddC(tensor), u.RemC(each).MulC(unit), kind)
		to.StoreN(u.MulC(unit/2), v)
	}, dsl.Unroll(1))
}
