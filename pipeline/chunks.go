package pipeline

import "iter"

// FinalLayer stands for the final phase where a layer's number is wanted.
const FinalLayer = -1

// Chunk is one bulk copy from the packed weight buffer into a stage.
type Chunk struct {
	Layer   int   // 0 to Layers-1, or FinalLayer
	Matrix  int   // index into Plan.Layer, or Plan.Final
	Tile    int   // row tile of the matrix: rows Tile*TileRows and on
	Part    int   // which chunk of the tile, 0 to ChunksPerTile-1
	K       int   // first column, Part*ChunkK
	Columns int   // columns, a multiple of a tile group's
	Offset  int64 // first byte in the packed buffer
	Bytes   int   // at most StageBytes
}

// Matrices are the matrices of a layer, or of the final phase for FinalLayer.
func (p *Plan) Matrices(layer int) []MatrixPlan {
	if layer == FinalLayer {
		return p.Final
	}
	return p.Layer
}

// Image is the first byte of layer's image (or FinalLayer's) in the packed buffer.
func (p *Plan) Image(layer int) int64 {
	if layer == FinalLayer {
		layer = p.Layers
	}
	return int64(layer) * p.LayerBytes
}

// LayerChunks yields SM sm's chunks of one layer (or FinalLayer) in the order in
// which they are copied and consumed.
func (p *Plan) LayerChunks(sm, layer int) iter.Seq[Chunk] {
	return func(yield func(Chunk) bool) {
		c := Chunk{Layer: layer}
		ms := p.Matrices(layer)
		for i := range ms {
			m := &ms[i]
			c.Matrix = i
			for tile, part := range m.order(m.Count[sm]) {
				c.Tile, c.Part = m.First[sm]+tile, part
				c.K = c.Part * m.ChunkK
				c.Columns = m.ChunkColumns(c.Part)
				c.Bytes = m.ChunkBytes(c.Part)
				c.Offset = p.Image(layer) + m.ChunkStart(c.Tile, c.Part)
				if !yield(c) {
					return
				}
			}
		}
	}
}

// order yields the chunks of a share of tiles tiles, as tile and part, in order:
// batch by batch, in a batch part by part, and of a part tile by tile. Without
// batches every tile is one.
func (m *MatrixPlan) order(tiles int) iter.Seq2[int, int] {
	return func(yield func(tile, part int) bool) {
		for first := 0; first < tiles; first += max(1, m.Batch) {
			for part := range m.ChunksPerTile {
				for tile := first; tile < min(first+max(1, m.Batch), tiles); tile++ {
					if !yield(tile, part) {
						return
					}
				}
			}
		}
	}
}

// Chunks yields all of SM sm's weight chunks of a step, in order: every layer, then
// the final phase.
func (p *Plan) Chunks(sm int) iter.Seq[Chunk] {
	return func(yield func(Chunk) bool) {
		for layer := range p.Layers + 1 {
			if layer == p.Layers {
				layer = FinalLayer
			}
			for c := range p.LayerChunks(sm, layer) {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// ChunkCount is the number of chunks of SM sm in one layer (or FinalLayer).
func (p *Plan) ChunkCount(sm, layer int) int64 {
	n := int64(0)
	for _, m := range p.Matrices(layer) {
		n += int64(m.Count[sm]) * int64(m.ChunksPerTile)
	}
	return n
}

// Slot says where the n-th copy (from 0, over the life of the kernel, weights and KV
// alike) of a CTA goes: its stage, and the parity of the phase in which that stage's
// full barrier completes for it. The producer, before it issues copy n, waits until
// copy n-Stages has been drained (empty barrier of the same stage, the same parity
// as that copy's) and until copy n-InFlight has landed.
func (p *Plan) Slot(n int64) (stage int, parity uint32) {
	return int(n % int64(p.Stages)), uint32(n / int64(p.Stages) & 1)
}
