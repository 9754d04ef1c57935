package pipeline_test

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/pipeline"
)

// checkPlan is the definition of a right plan for r, worked out apart from New: the
// ring's rules, the shared-memory map, even shares, and every weight byte of the
// packed buffer in exactly one chunk of exactly one SM.
func checkPlan(r pipeline.Request, p *pipeline.Plan) error {
	for _, check := range []func(pipeline.Request, *pipeline.Plan) error{
		checkRing, checkShared, checkCuts, checkShares, checkBatches, checkChunks,
	} {
		if err := check(r, p); err != nil {
			return err
		}
	}
	return nil
}

func checkRing(r pipeline.Request, p *pipeline.Plan) error {
	switch {
	case p.SMs != r.SMs || p.Layers != r.Layers || p.SharedLimit != r.SharedLimit:
		return fmt.Errorf("the plan is for another request")
	case p.StageBytes < 512 || p.StageBytes >= 1<<20 || p.StageBytes%128 != 0:
		return fmt.Errorf("StageBytes %d", p.StageBytes)
	case r.StageBytes != 0 && p.StageBytes != r.StageBytes:
		return fmt.Errorf("StageBytes %d, asked %d", p.StageBytes, r.StageBytes)
	case p.Stages < 1 || p.Stages > 32 || r.Stages != 0 && p.Stages != r.Stages:
		return fmt.Errorf("Stages %d, asked %d", p.Stages, r.Stages)
	case p.InFlight < 1 || p.InFlight > p.Stages || r.InFlight != 0 && p.InFlight != r.InFlight:
		return fmt.Errorf("InFlight %d of %d, asked %d", p.InFlight, p.Stages, r.InFlight)
	case (p.KVTokensPerStage > 0) != (r.KVTokenBytes > 0) || p.KVTokensPerStage%16 != 0:
		return fmt.Errorf("KVTokensPerStage %d", p.KVTokensPerStage)
	case p.KVTokensPerStage*r.KVTokenBytes > p.StageBytes:
		return fmt.Errorf("%d KV tokens do not fit a stage", p.KVTokensPerStage)
	}
	return nil
}

func checkShared(r pipeline.Request, p *pipeline.Plan) error {
	if len(p.Shared) != 3+len(r.Fixed) {
		return fmt.Errorf("%d regions", len(p.Shared))
	}
	if p.Shared[0].Bytes != p.Stages*p.StageBytes || p.Shared[0].Offset%128 != 0 || p.Shared[1].Bytes != 8*p.Stages ||
		p.Shared[2].Bytes != 8*p.Stages {
		return fmt.Errorf("ring or mbarriers: %v", p.Shared[:3])
	}
	end := 0
	for i, g := range p.Shared {
		if g.Offset < end || g.Align < 1 || g.Offset%g.Align != 0 {
			return fmt.Errorf("region %v overlaps the one before, or is misaligned", g)
		}
		if i < 3 && g.Align < 8 {
			return fmt.Errorf("region %v is not aligned for mbarriers", g)
		}
		if i >= 3 && (g.Name != r.Fixed[i-3].Name || g.Bytes != r.Fixed[i-3].Bytes || g.Align < r.Fixed[i-3].Align) {
			return fmt.Errorf("region %v is not what was asked: %v", g, r.Fixed[i-3])
		}
		end = g.Offset + g.Bytes
	}
	if end > p.SharedBytes || p.SharedBytes > p.SharedLimit {
		return fmt.Errorf("regions end at %d, SharedBytes %d, limit %d", end, p.SharedBytes, p.SharedLimit)
	}
	return nil
}

// phases pairs the request's matrices with the plan's.
func phases(r pipeline.Request, p *pipeline.Plan) []phase {
	return []phase{
		{0, r.Layer, p.Layer, 0, p.LayerBytes},
		{r.Layers - 1, r.Layer, p.Layer, int64(r.Layers-1) * p.LayerBytes, p.LayerBytes},
		{pipeline.FinalLayer, r.Final, p.Final, int64(r.Layers) * p.LayerBytes, p.FinalBytes},
	}
}

type phase struct {
	layer  int
	asked  []pipeline.Matrix
	got    []pipeline.MatrixPlan
	start  int64 // in the packed buffer
	length int64
}

// checkCuts: tiles and chunks cover rows and columns with less than a tile and less
// than a group of padding, which is all the padding there is.
func checkCuts(r pipeline.Request, p *pipeline.Plan) error {
	total, padding := int64(0), int64(0)
	for i, ph := range phases(r, p) {
		if len(ph.asked) != len(ph.got) {
			return fmt.Errorf("%d matrices planned of %d", len(ph.got), len(ph.asked))
		}
		for j, m := range ph.got {
			a := ph.asked[j]
			columns := (m.ChunksPerTile-1)*m.ChunkK + m.TailK
			step := 32
			if m.ChunkK >= 8*step { // as many groups of 32 columns for each of eight warps
				step *= 8
			}
			switch {
			case m.Matrix != a:
				return fmt.Errorf("matrix %v, asked %v", m.Matrix, a)
			case m.Tiles*8 < a.Rows || m.Tiles*8 >= a.Rows+8:
				return fmt.Errorf("%v: %d tiles", a, m.Tiles)
			case columns != m.KPadded || m.KPadded < a.K || m.KPadded >= a.K+32 || m.KPadded%32 != 0:
				return fmt.Errorf("%v: %d columns in chunks, %d padded", a, columns, m.KPadded)
			case m.ChunkK%32 != 0 || m.TailK%32 != 0 || m.TailK < 1 || m.TailK > m.ChunkK:
				return fmt.Errorf("%v: chunks of %d columns, the last %d", a, m.ChunkK, m.TailK)
			case m.ChunksPerTile > 1 && (m.ChunkK%step != 0 || (m.ChunkK+step)*16 <= p.StageBytes):
				return fmt.Errorf("%v: chunks of %d columns leave room for more in %d B", a, m.ChunkK, p.StageBytes)
			}
			bytes := int64(m.Tiles) * 8 * int64(m.KPadded) * 2
			pad := bytes - int64(a.Rows)*int64(a.K)*2
			switch i {
			case 0:
				total, padding = total+bytes*int64(r.Layers), padding+pad*int64(r.Layers)
			case 2:
				total, padding = total+bytes, padding+pad
			}
		}
	}
	if total != p.PackedBytes || total-padding != p.WeightBytes() {
		return fmt.Errorf("%d B packed and %d B of weights, want %d and %d", p.PackedBytes, p.WeightBytes(), total,
			total-padding)
	}
	return nil
}

// checkShares: contiguous, complete, and even to within a tile; and
// what lies heaviest on an SM is within one tile of each matrix of the mean.
func checkShares(r pipeline.Request, p *pipeline.Plan) error {
	for _, ph := range phases(r, p) {
		bound := float64(ph.length) / float64(r.SMs)
		for _, m := range ph.got {
			if len(m.First) != r.SMs || len(m.Count) != r.SMs {
				return fmt.Errorf("%s: not one share per SM", m.Name)
			}
			next, floor, ceil := 0, m.Tiles/r.SMs, (m.Tiles+r.SMs-1)/r.SMs
			for s := range r.SMs {
				if m.First[s] != next || m.Count[s] < floor || m.Count[s] > ceil {
					return fmt.Errorf("%s: SM %d owns %d tiles from %d, want %d to %d from %d", m.Name, s, m.Count[s], m.First[s],
						floor, ceil, next)
				}
				next += m.Count[s]
			}
			if next != m.Tiles {
				return fmt.Errorf("%s: %d of %d tiles owned", m.Name, next, m.Tiles)
			}
			bound += float64(m.TileBytes())
		}
		if most := p.MaxSMBytes(ph.layer); float64(most) > bound {
			return fmt.Errorf("layer %d: %d B on one SM, the mean and a tile of each are %.0f", ph.layer, most, bound)
		}
	}
	return nil
}

// inOrder is the chunks of a share of n tiles, as tile and part, in the order
// in which they lie: sorted by batch, part and tile, or by tile and part.
func inOrder(m *pipeline.MatrixPlan, tiles int) (chunks [][2]int) {
	for tile := range tiles {
		for part := range m.ChunksPerTile {
			chunks = append(chunks, [2]int{tile, part})
		}
	}
	batch := max(1, m.Batch)
	slices.SortFunc(chunks, func(a, b [2]int) int {
		return cmp.Or(a[0]/batch-b[0]/batch, a[1]-b[1], a[0]-b[0])
	})
	return chunks
}

// checkBatches: as few as there can be, and the largest share's as even as can be.
func checkBatches(r pipeline.Request, p *pipeline.Plan) error {
	for _, ph := range phases(r, p) {
		for _, m := range ph.got {
			most := r.BatchTiles
			switch batches := m.Batches(); {
			case most == 0 && m.Batch == 0 && batches == 0:
			case most == 0 || m.Batch < 1 || m.Batch > most:
				return fmt.Errorf("%s: batches of %d, asked at most %d", m.Name, m.Batch, most)
			case (batches-1)*most >= m.MaxCount() || batches*m.Batch < m.MaxCount() || batches*(m.Batch-1) >= m.MaxCount():
				return fmt.Errorf("%s: %d batches of %d of %d tiles", m.Name, batches, m.Batch, m.MaxCount())
			}
		}
	}
	return nil
}

// checkChunks walks the SMs' chunks: an SM's must come up in order, each once, and all SMs' together
// must be the phase's bytes without gap or overlap, matrix after matrix and tile after tile.
func checkChunks(r pipeline.Request, p *pipeline.Plan) error {
	for _, ph := range phases(r, p) {
		ends := map[int64]int64{} // of the chunks, by where they begin
		for s := range r.SMs {
			if err := checkShare(p, ph.got, ph.layer, s, ends); err != nil {
				return err
			}
		}
		at := p.Image(ph.layer)
		if at != ph.start {
			return fmt.Errorf("layer %d begins at %d, want %d", ph.layer, at, ph.start)
		}
		for i, m := range ph.got {
			if at != ph.start+m.Start || at%512 != 0 {
				return fmt.Errorf("%s (%d of layer %d) begins at %d, want %d", m.Name, i, ph.layer, ph.start+m.Start, at)
			}
			for at < ph.start+m.Start+m.Bytes() {
				end, ok := ends[at]
				if !ok {
					return fmt.Errorf("%s: no chunk begins at %d", m.Name, at)
				}
				delete(ends, at)
				at = end
			}
		}
		if at != ph.start+ph.length || len(ends) > 0 {
			return fmt.Errorf("layer %d: chunks end at %d, want %d; %d are beside them", ph.layer, at, ph.start+ph.length,
				len(ends))
		}
	}
	if end := int64(r.Layers)*p.LayerBytes + p.FinalBytes; end != p.PackedBytes {
		return fmt.Errorf("%d B packed, phases end at %d", p.PackedBytes, end)
	}
	return nil
}

// checkShare walks one SM's chunks and notes where each ends.
func checkShare(p *pipeline.Plan, ms []pipeline.MatrixPlan, layer, sm int, ends map[int64]int64) error {
	var order [][3]int // matrix, tile, part
	for i := range ms {
		for _, c := range inOrder(&ms[i], ms[i].Count[sm]) {
			order = append(order, [3]int{i, ms[i].First[sm] + c[0], c[1]})
		}
	}
	n, bytes := 0, int64(0)
	for c := range p.LayerChunks(sm, layer) {
		if n >= len(order) || [3]int{c.Matrix, c.Tile, c.Part} != order[n] {
			return fmt.Errorf("SM %d: %+v is chunk %d of %v", sm, c, n, order)
		}
		m := &ms[c.Matrix]
		at := p.Image(layer) + m.Start + int64(c.Tile)*int64(m.KPadded)*16 + int64(c.Part*m.ChunkK*16)
		if c.Offset != at || c.Layer != layer || c.K != c.Part*m.ChunkK || at != p.Image(layer)+m.ChunkStart(c.Tile, c.Part) {
			return fmt.Errorf("SM %d: %+v, want offset %d", sm, c, at)
		}
		if c.Bytes != 16*c.Columns || c.Bytes < 16 || c.Bytes%16 != 0 || c.Bytes > p.StageBytes {
			return fmt.Errorf("SM %d: %+v is no legal copy", sm, c)
		}
		if _, twice := ends[at]; twice {
			return fmt.Errorf("SM %d: %+v is streamed twice", sm, c)
		}
		ends[at] = at + int64(c.Bytes)
		n, bytes = n+1, bytes+int64(c.Bytes)
	}
	if n != len(order) || int64(n) != p.ChunkCount(sm, layer) || bytes != p.SMBytes(sm, layer) {
		return fmt.Errorf("SM %d: %d chunks of %d B, counted as %d of %d", sm, n, bytes, p.ChunkCount(sm, layer),
			p.SMBytes(sm, layer))
	}
	return nil
}
