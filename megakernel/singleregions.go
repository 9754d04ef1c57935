package megakernel

import (
	"slices"

	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// singleRegions are the regions a kernel of one query row a step has of its own.
func (mk *Kernel) singleRegions() []pipeline.Region {
	c, o := &mk.Config, &mk.Options
	widest := max(c.Hidden, c.Heads*c.HeadDim, o.mlp().staged(c))
	widest = pipeline.CeilDiv(widest, o.inputColumns()) * o.inputColumns()
	att := attention.Attention{Heads: c.Heads, KV: mk.KV}
	if o.Queries == SyncWords {
		att.Packets = &attention.QKVPackets{}
	}
	input := max(2*widest, 4*att.ScratchLen(o.Consumers), mk.drawScratch())
	if mk.kept() {
		input = max(input, mk.addedAt()+4*c.Hidden)
	}
	input = pipeline.CeilDiv(input, 16)*16 + mk.idle
	regions := []pipeline.Region{
		{Name: regionInput, Bytes: input, Align: 16},
		{Name: regionPartials, Bytes: 4 * product.PartialsLen(o.Consumers), Align: 16},
		{Name: regionTail, Bytes: mk.KV.TokenBytes(), Align: 16},
	}
	if mk.fixed() {
		_, units, sums := product.FixedLen(widest)
		regions = append(regions, pipeline.Region{Name: regionUnits, Bytes: 4 * units, Align: 16})
		if mk.zeros() {
			regions = append(regions, pipeline.Region{Name: regionInputSums, Bytes: 4 * sums, Align: 16})
		}
	}
	if mk.kept() {
		regions = append(regions, pipeline.Region{Name: regionResidual, Bytes: 4 * c.Hidden, Align: 16})
	}
	return slices.Concat(regions, o.mlp().regions(mk), mk.drawRegions())
}

// OwnGroups returns how many groups of 128 columns side by side a warp stages for itself of matrix i's input, in the
// order of the plan table; 0 where the warps wait for each other's, and in kernels of several rows.
func (mk *Kernel) OwnGroups(i int) int {
	if mk.Ragged() {
		return 0
	}
	if o := product.OwnOrder(mk.Options.Consumers, mk.matrix(i)); o != nil {
		return o.Stride
	}
	return 0
}

// zeros is whether groups of weights, the layers' or the LM head's, have zero points.
func (mk *Kernel) zeros() bool {
	return zerosOf(mk.Options.Weights) || zerosOf(mk.Options.Head)
}

func zerosOf(f pipeline.Format) bool {
	shape, ok := f.Int4(pipeline.GroupK)
	return ok && shape.Zeros
}

// fixed is whether products, the layers' or the LM head's, have their input in fixed point.
func (mk *Kernel) fixed() bool { return mk.Options.Weights.Integers() || mk.Options.Head.Integers() }
