package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
)

// idleBytes is how many zeros a product of one row wants behind its input in shared memory, for lanes whose part of
// an operand nobody needs (product.GEMV.Idle): as many as a chunk's input has bytes, or of integers a run's.
func (mk *Kernel) idleBytes() int {
	if mk.Ragged() || mk.Options.graph() {
		return 0
	}
	most := 0
	for _, m := range append(mk.Plan.Layer[:len(mk.Plan.Layer):len(mk.Plan.Layer)], mk.Plan.Final...) {
		most = max(most, 2*min(m.ChunkK, m.KPadded))
		if m.Format.Integers() {
			most = max(most, 2*4*i4.Columns)
		}
	}
	return pipeline.CeilDiv(most, 16) * 16
}

// planIdle plans again with room for idleBytes, where that takes no stage.
func (mk *Kernel) planIdle() error {
	n := mk.idleBytes()
	if n == 0 || mk.Plan.SharedBytes+n+16 > mk.Plan.SharedLimit {
		return nil
	}
	mk.idle = n
	return mk.planRing()
}

// idleAt is where the zeros lie in the region of a product's input, in words; 0: nowhere.
func (mk *Kernel) idleAt() int {
	if mk.idle == 0 {
		return 0
	}
	return (mk.Plan.Region(regionInput).Bytes - mk.idle) / 4
}

// clearIdle writes the zeros. All threads of a CTA run it, and a barrier follows.
func (f *single) clearIdle() {
	k, zeros := f.k, dsl.View[dsl.U32](f.shared)
	n := f.mk.idle / 16
	if n == 0 {
		return
	}
	zero := k.U32(0)
	k.ForStep(f.env.Tid, k.U32(n), f.mk.Options.warps()*dsl.WarpSize, func(i dsl.Val[dsl.U32]) {
		zeros.StoreN(i.MulC(4).AddC(f.mk.idleAt()), []dsl.Val[dsl.U32]{zero, zero, zero, zero})
	}, dsl.Unroll(1))
}
