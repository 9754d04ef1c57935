package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks"
)

// Fault names a mistake planted in the kernel.
type Fault string

// The faults a kernel can be built with; others are planted by the host, in the
// weights or the page table.
const (
	NoFault         Fault = ""
	FaultDropToken  Fault = "drop-token"  // attention leaves out the last cached token
	FaultRope       Fault = "rope"        // queries are rotated for the next position
	FaultMergeShare Fault = "merge-share" // the last split's merge weight is doubled

	// FaultLostArrival hangs: the last CTA does not arrive at the hand-off after
	// the output projection. It is no wrong value, hence not among Faults.
	FaultLostArrival Fault = "lost-arrival"
)

// Faults lists the faults a kernel can be built with.
func Faults() []Fault { return []Fault{FaultDropToken, FaultRope, FaultMergeShare} }

// lost is the CTA, plus 1, that does not arrive at the hand-off after a phase.
func (b *builder) lost(phase string) int {
	if b.mk.Options.Fault == FaultLostArrival && phase == "o" {
		return b.mk.Options.SMs
	}
	return 0
}

// plant puts the fault into the templates it concerns.
func (b *builder) plant(qkv *tasks.QKV, merge *tasks.Merge) {
	switch b.mk.Options.Fault {
	case FaultRope:
		qkv.QueryShift = 1
	case FaultMergeShare:
		merge.LastBias = 1
	}
}

// cached is the number of cached tokens that the query at pos attends to.
func (b *builder) cached(pos dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
	if b.mk.Options.Fault == FaultDropToken {
		return pos.MaxC(1).SubC(1)
	}
	return pos
}
