package megakernel

import (
	"slices"

	"github.com/mkgen/mkgen/pipeline"
)

// More copies in flight than the planner's are chosen where every product has many chunks on
// an SM (docs/RATIONALE.md, "When are there four copies in flight, and five chunks held?").
const (
	manyChunks = 8
	manyCopies = 4
)

// plan plans the ring of a single kernel, and the shares of its SMs. Copies in flight that
// were left open are chosen here, whatever the leads.
func (mk *Kernel) plan() (err error) {
	r := mk.request()
	if mk.Options.InFlight == 0 {
		open := r
		open.Leads = nil
		if mk.Plan, err = pipeline.New(open); err != nil {
			return err
		}
		if mk.suitsManyCopies() {
			r.InFlight = manyCopies
		}
	}
	mk.Plan, err = pipeline.New(r)
	return err
}

// suitsManyCopies is whether a kernel planned with the planner's copies is faster with more:
// one of one row, whose consumers have registers to hold chunks in. Attention's warps must
// still find a turn of their blocks in the ring, beside the copies that may be landing
// (pipeline.Consumer.Reach).
func (mk *Kernel) suitsManyCopies() bool {
	o, p := &mk.Options, mk.Plan
	turn := ceilDiv(o.Consumers*attentionBlock, kvTokensPerStage(p))
	if o.Tokens > 1 || threadRegisters(o.Consumers) < ampleRegisters || p.StageBytes != pipeline.DefaultStageBytes || p.Stages < max(2*manyCopies, turn+manyCopies) {
		return false
	}
	for i := range layerMatrices {
		if m := mk.matrix(i); slices.Max(m.Count)*m.ChunksPerTile < manyChunks {
			return false
		}
	}
	return true
}

// attentionBlock is how many tokens of one row a warp of attention takes at a time.
const attentionBlock = 16
