package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/product"
)

// idleBytes is how many bytes of zeros products of one row with weights of e4m3 want behind their input in shared
// memory, for lanes whose part of an operand nobody needs (product.GEMV.Idle): as many as the input of a chunk.
func (mk *Kernel) idleBytes() int {
	if mk.Ragged() || mk.Options.graph() {
		return 0
	}
	most := 0
	for _, m := range append(mk.Plan.Layer[:len(mk.Plan.Layer):len(mk.Plan.Layer)], mk.Plan.Final...) {
		if product.HasIdleLanes(m.Format) {
			most = max(most, 2*min(m.ChunkK, m.KPadded))
		}
	}
	return pipeline.CeilDiv(most, 16) * 16
}

// planIdle plans again with room for idleBytes, where that takes no stage. 16 bytes more align where the zeros begin.
func (mk *Kernel) planIdle() error {
	n := mk.idleBytes()
	if n == 0 || mk.Plan.SharedBytes+n+16 > mk.Plan.SharedLimit {
		return nil
	}
	mk.idle = n
	return mk.planRing()
}

// idleAt is where the zeros for products of matrix m lie in the region of their input, in words; 0: there are none.
func (mk *Kernel) idleAt(m *pipeline.MatrixPlan) int {
	if mk.idle == 0 || !product.HasIdleLanes(m.Format) {
		return 0
	}
	return mk.firstIdle()
}

// firstIdle is where the zeros begin in the region of a product's input, in words.
func (mk *Kernel) firstIdle() int {
	return (mk.Plan.Region(regionInput).Bytes - mk.idle) / 4
}

// clearIdle writes the zeros, once a launch: nothing else is written there. All threads of a CTA run it, and the
// prologue's barrier follows.
func (f *single) clearIdle() {
	k, zeros := f.k, dsl.View[dsl.U32](f.shared)
	n := f.mk.idle / 16
	if n == 0 {
		return
	}
	zero := k.U32(0)
	k.ForStep(f.env.Tid, k.U32(n), f.mk.Options.warps()*dsl.WarpSize, func(i dsl.Val[dsl.U32]) {
		zeros.StoreN(i.MulC(4).AddC(f.mk.firstIdle()), []dsl.Val[dsl.U32]{zero, zero, zero, zero})
	}, dsl.Unroll(1))
}
