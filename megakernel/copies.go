package megakernel

import (
	"slices"

	"github.com/mkgen/mkgen/pipeline"
)

// More copies in flight than the planner's are chosen where every product has on an SM more chunks than are held then
// (docs/RATIONALE.md, "When are there four copies in flight, and five chunks held?").
const (
	manyCopies = 4
	manyChunks = defaultHeld + 2
)

// plan plans the ring of a single kernel, the shares of its SMs, and what else is in shared memory.
func (mk *Kernel) plan() error {
	if err := mk.planRing(); err != nil {
		return err
	}
	return mk.planIdle()
}

// planRing is plan but for zeros. Copies in flight that were left open are chosen here, whatever the leads. With
// several rows and 4 bits leads that were left open are none: such consumers are behind at all times, so that they are
// says nothing of a sync (docs/RATIONALE.md, "Why does a producer that leads keep fewer copies in flight?").
func (mk *Kernel) planRing() (err error) {
	r := mk.request()
	if mk.Options.InFlight == 0 && !mk.Ragged() {
		open := r
		open.Throttles = nil
		if mk.Plan, err = pipeline.New(open); err != nil {
			return err
		}
		if mk.suitsManyCopies() {
			r.InFlight = manyCopies
		}
	}
	dense := 16 / mk.Options.Weights.Bits()
	if dense == 4 { // several tiles share a stage
		dense = 1
		if mk.Ragged() && r.Throttles == nil {
			r.Throttles = []pipeline.Throttle{}
		}
	}
	if mk.Ragged() && dense > 1 && r.InFlight == 0 && r.Stages == 0 {
		few := r
		r.InFlight = rowsCopies * dense / r.BatchWide // chunks are so much shorter
		if mk.Plan, err = pipeline.New(r); err == nil {
			return nil
		}
		if mk.Plan, err = pipeline.New(few); err != nil {
			return err
		}
		r.InFlight = mk.Plan.Stages // there is no room for as many
	}
	mk.Plan, err = pipeline.New(r)
	return err
}

// rowsCopies is how many copies of whole stages a kernel of several rows has in flight.
const rowsCopies = 3

// suitsManyCopies is whether a kernel of one row, planned with the planner's copies, is faster
// with more: its consumers have registers to hold chunks in. Attention's warps must still come
// from block to block in the ring, beside the copies that may be landing.
func (mk *Kernel) suitsManyCopies() bool {
	o, p := &mk.Options, mk.Plan
	if threadRegisters(o.Consumers) < ampleRegisters || !mk.usualStages() ||
		p.Stages < manyCopies+max(manyCopies, mk.BlocksApart()) {
		return false
	}
	for i := range layerMatrices {
		if m := mk.matrix(i); slices.Max(m.Count)*m.ChunksPerTile < manyChunks {
			return false
		}
	}
	return true
}

// usualStages is whether a stage has DefaultStageBytes of codes; of e4m3 in blocks their scales lie behind them.
func (mk *Kernel) usualStages() bool {
	const usual = pipeline.DefaultStageBytes
	if mk.Options.Weights.Blocks() {
		return mk.Plan.StageBytes > usual && mk.Plan.StageBytes <= usual+usual/pipeline.BlockSize
	}
	return mk.Plan.StageBytes == usual
}

// BlocksApart is how many chunks lie at most between two blocks of KV that a warp of attention
// takes: where copies in flight leave enough stages (pipeline.Consumer.Reach) it waits for none
// of those between.
func (mk *Kernel) BlocksApart() int {
	block := 16
	if mk.Ragged() {
		block = 32
	}
	return pipeline.CeilDiv(mk.Options.Consumers*block, mk.ChunkTokens())
}
