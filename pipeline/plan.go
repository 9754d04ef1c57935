package pipeline

import (
	"fmt"
	"slices"
)

// Plan says who owns which rows, where they lie in the packed buffer, and how one
// CTA's shared memory is laid out. It is read-only after New; slices indexed by SM
// have length SMs.
type Plan struct {
	SMs, Layers int

	StageBytes int // bytes of one stage
	Stages     int // ring depth
	InFlight   int // bulk copies outstanding at most

	// Throttles are lower bounds for a producer ahead of its consumers; nil: none.
	Throttles []Throttle

	Shared      []Region // ring, full and empty mbarriers, then the request's Fixed, with offsets
	SharedBytes int      // end of the last region, rounded up to 16
	SharedLimit int      // what the request allowed

	Layer, Final []MatrixPlan // in execution order

	LayerBytes  int64 // bytes of one layer in the packed buffer
	FinalBytes  int64 // bytes of the final phase in it
	PackedBytes int64 // Layers*LayerBytes + FinalBytes

	KVTokenBytes     int // of the request
	KVTokensPerStage int // a multiple of KVTokenMultiple; 0 when KVTokenBytes is 0
}

// MatrixPlan is one matrix cut into row tiles and chunks and dealt out to the SMs. Of one
// with From the tiles are of columns, see the package comment, and where columns of a tile
// are counted it is in 16 bytes.
type MatrixPlan struct {
	Matrix
	Tiles         int   // row tiles, ceil(Rows / TileRows)
	KPadded       int   // K rounded up to a tile group's columns
	ChunkK        int   // columns of every chunk of a tile but the last
	ChunksPerTile int   // ceil(KPadded / ChunkK)
	TailK         int   // columns of a tile's last chunk, 1 to ChunkK, a multiple of GroupK
	Batch         int   // row tiles whose chunks are streamed in turn; 0: one tile after the other
	Together      int   // tiles of a batch whose chunks of the same columns share a stage; 1: none
	First, Count  []int // per SM: its first tile and how many; in order of SMs, without gaps
	Start         int64 // first byte in the image of its layer (or of the final phase)

	leader int // index of the matrix that From names; -1: none
}

// TileBytes is the size of one row tile in the packed buffer, scales included.
func (m *MatrixPlan) TileBytes() int64 { return int64(m.Format.Of(m.KPadded) + m.Format.ScaleBytes()) }

// Bytes is the size of the whole matrix in the packed buffer, padding included.
func (m *MatrixPlan) Bytes() int64 { return m.TileBytes() * int64(m.Tiles) }

// StreamedBytes is what a step streams of the matrix, padding included.
func (m *MatrixPlan) StreamedBytes() int64 { return int64(m.Tiles) * int64(m.Format.Of(m.KPadded)) }

// ChunkColumns is the number of columns of chunk part (0 to ChunksPerTile-1) of any tile.
func (m *MatrixPlan) ChunkColumns(part int) int {
	if part == m.ChunksPerTile-1 {
		return m.TailK
	}
	return m.ChunkK
}

// ChunkStart is where a chunk lies in its layer's image (or the final phase's), in bytes:
// part (0 to ChunksPerTile-1) of tile.
func (m *MatrixPlan) ChunkStart(tile, part int) int64 {
	return m.Start + int64(tile)*m.TileBytes() + int64(part)*int64(m.Format.Of(m.ChunkK))
}

// ChunkBytes is the size of chunk part of any tile.
func (m *MatrixPlan) ChunkBytes(part int) int { return m.Format.Of(m.ChunkColumns(part)) }

// Batches is the largest number of batches of one SM's share; 0 without batches.
func (m *MatrixPlan) Batches() int {
	if m.Batch == 0 {
		return 0
	}
	return CeilDiv(m.MaxCount(), m.Batch)
}

// MaxCount is the largest number of tiles one SM owns.
func (m *MatrixPlan) MaxCount() int {
	most := 0
	for _, n := range m.Count {
		most = max(most, n)
	}
	return most
}

// New plans r. The error, if any, says what was asked, what there is and what would
// fit; nothing in r makes New panic.
//
// What it chooses when asked to:
//   - StageBytes: DefaultStageBytes, or KVTokenMultiple tokens of KV where that is
//     more; halved for small models, see chooseStageBytes.
//   - Stages: as many as fit into SharedLimit, at most MaxStages, and for small models
//     few enough that a step goes around the ring at least four times.
//   - InFlight: 3, at most Stages: 48 KiB an SM saturate the memory of an H200;
//     more copies in flight only make the small requests at a sync queue longer.
//   - Throttles: 2 copies from one chunk more than InFlight on, where that is 3 or 4 and there
//     are 8 stages.
func New(r Request) (*Plan, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	p := &Plan{SMs: r.SMs, Layers: r.Layers, StageBytes: r.StageBytes, SharedLimit: r.SharedLimit,
		KVTokenBytes: r.KVTokenBytes}
	if p.StageBytes == 0 {
		p.StageBytes = chooseStageBytes(&r)
	}
	if r.KVTokenBytes > 0 {
		p.KVTokensPerStage = p.StageBytes / r.KVTokenBytes / KVTokenMultiple * KVTokenMultiple
	}
	p.Layer, p.LayerBytes = place(r.Layer, p.StageBytes, &r)
	p.Final, p.FinalBytes = place(r.Final, p.StageBytes, &r)
	p.PackedBytes = int64(r.Layers)*p.LayerBytes + p.FinalBytes
	if err := p.chooseRing(&r); err != nil {
		return nil, err
	}
	return p, nil
}

// place cuts and deals out the matrices of a layer (or of the final phase) and lays
// them one after another.
func place(ms []Matrix, stageBytes int, r *Request) (plans []MatrixPlan, bytes int64) {
	for _, m := range ms {
		bytes := stageBytes
		if r.BatchTiles > 0 { // whose input a warp keeps in registers, by columns
			dense := 16 / m.Format.Bits()
			bytes = bytes * min(max(1, r.BatchWide), dense) / dense
		}
		plans = append(plans, cut(m, bytes))
	}
	follow(plans)
	balance(plans, r.SMs)
	for i := range plans {
		m := &plans[i]
		m.Batch = batch(m.MaxCount(), r.BatchTiles)
		m.Together = tilesOfStage(m, stageBytes)
		m.Start = bytes
		bytes += m.Bytes()
	}
	return plans, bytes
}

// batch evens the batches of the largest share, of count tiles: as few as there can
// be of at most `most` tiles each. 0 stays 0.
func batch(count, most int) int {
	if most == 0 {
		return 0
	}
	return CeilDiv(count, CeilDiv(count, most))
}

// tilesOfStage is how many tiles of a batch share a stage: of weights of 4 bits, whose chunks batches make shorter, as
// many as have room, and an even number.
func tilesOfStage(m *MatrixPlan, stageBytes int) int {
	if m.Batch == 0 || m.Format.Bits() != 4 {
		return 1
	}
	return max(1, min(stageBytes/m.ChunkBytes(0), m.Batch+m.Batch%2)/2*2)
}

// sharing is how many warps share a chunk as a rule.
const sharing = 8

// cut cuts a matrix into row tiles and chunks that fit into a stage: of n runs that warps have the
// same of each, where there are many.
func cut(m Matrix, stageBytes int) MatrixPlan {
	p := MatrixPlan{Matrix: m, Tiles: CeilDiv(m.Rows, TileRows), KPadded: roundUp(m.K, m.Format.Columns()), leader: -1}
	if p.Across() {
		p.Tiles, p.KPadded = CeilDiv(m.K, acrossColumns), roundUp(m.Rows, acrossRows)*acrossColumns/TileRows
	}
	run := m.Format.Run(m.K)
	runs := max(1, stageBytes/m.Format.Of(run))
	if runs > sharing && runs*run < p.KPadded {
		runs -= runs % sharing
	}
	p.ChunkK = min(p.KPadded, runs*run)
	p.ChunksPerTile = CeilDiv(p.KPadded, p.ChunkK)
	p.TailK = p.KPadded - (p.ChunksPerTile-1)*p.ChunkK
	return p
}

// chooseStageBytes picks the stage size of a request that left it open:
// DefaultStageBytes, or 16 tokens of KV where that is more. Small models get smaller
// stages: it is halved, not below 2048 bytes or 16 tokens of KV, while a stage would
// hold the widest row tile whole (so that tiles of several chunks occur in every
// model) or an SM would see fewer than 32 chunks a step on average (so that the ring
// goes around). Neither happens from Llama-3.2-1B up. Scales that are streamed with codes are added to it.
func chooseStageBytes(r *Request) int {
	least := max(2048, roundUp(KVTokenMultiple*r.KVTokenBytes, StageAlign))
	for _, m := range slices.Concat(r.Layer, r.Final) { // a run is in one stage
		least = max(least, TileRows*m.Format.Run(m.K)*m.Format.Bits()/8)
	}
	size := max(DefaultStageBytes, least)
	widest := 0
	for _, m := range r.Layer {
		c := cut(m, size)
		widest = max(widest, int(c.TileBytes()))
	}
	for size/2 >= least && size/2%StageAlign == 0 &&
		(size >= widest || chunksPerStep(r, withScales(r, size)) < 32*int64(r.SMs)) {
		size /= 2
	}
	return withScales(r, size)
}

// withScales is the size of a stage that has n bytes of codes, of any of the matrices.
func withScales(r *Request, size int) int {
	most := size
	for _, m := range slices.Concat(r.Layer, r.Final) {
		most = max(most, m.Format.StageOf(size))
	}
	return most
}

// chunksPerStep counts the chunks of a whole step over all SMs.
func chunksPerStep(r *Request, stageBytes int) (n int64) {
	for _, m := range r.Layer {
		c := cut(m, stageBytes)
		n += int64(r.Layers) * int64(c.Tiles) * int64(c.ChunksPerTile)
	}
	for _, m := range r.Final {
		c := cut(m, stageBytes)
		n += int64(c.Tiles) * int64(c.ChunksPerTile)
	}
	return n
}

// chooseRing sets InFlight, Stages and the shared-memory map, or says why there is none.
func (p *Plan) chooseRing(r *Request) error {
	fit := stagesThatFit(p.StageBytes, r.Fixed, r.SharedLimit)
	p.InFlight = r.InFlight
	if p.InFlight == 0 {
		p.InFlight = 3
	}
	p.Stages = r.Stages
	if p.Stages == 0 {
		wraps := int(min(chunksPerStep(r, p.StageBytes)/int64(4*r.SMs), MaxStages))
		p.Stages = max(1, min(fit, max(wraps, p.InFlight+1)))
	}
	if p.Stages > fit {
		return refuseStages(p.Stages, fit, p.StageBytes, r)
	}
	if r.InFlight > p.Stages {
		return fmt.Errorf("pipeline: %d copies in flight need %d stages, the ring has %d of %d B; at most %d in flight",
			r.InFlight, r.InFlight, p.Stages, p.StageBytes, p.Stages)
	}
	p.InFlight = min(p.InFlight, p.Stages)
	p.Shared, p.SharedBytes = layout(p.Stages, p.StageBytes, r.Fixed)
	p.Throttles = r.Throttles
	if r.Throttles == nil && (p.InFlight == 3 || p.InFlight == 4) && p.Stages >= 8 {
		p.Throttles = []Throttle{{p.InFlight + 1, 2}}
	}
	return checkThrottles(p.Throttles, p.Stages, p.InFlight)
}

// InBF16 is the image of one layer with this plan's tiles and columns in bf16. It has places and sizes, no shares.
func (p *Plan) InBF16() *Plan {
	image := &Plan{Layers: 1}
	for _, m := range p.Layer {
		m.Format, m.Start = FormatBF16, image.LayerBytes
		image.Layer = append(image.Layer, m)
		image.LayerBytes += m.Bytes()
	}
	image.PackedBytes = image.LayerBytes
	return image
}
