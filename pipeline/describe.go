package pipeline

import (
	"fmt"
	"strings"
)

// String describes the plan in lines for people and goldens: ring, shared-memory
// map, matrices, shares and evenness. The same plan always gives the same text.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ring: %d stages of %d B, %s", p.Stages, p.StageBytes, p.Copies())
	if p.KVTokensPerStage > 0 {
		fmt.Fprintf(&b, ", %d KV tokens of %d B a stage", p.KVTokensPerStage, p.KVTokenBytes)
	}
	fmt.Fprintf(&b, "\nshared memory: %d of %d B\n", p.SharedBytes, p.SharedLimit)
	for _, g := range p.Shared {
		fmt.Fprintf(&b, "  %7d %7d B  %s\n", g.Offset, g.Bytes, g.Name)
	}
	e := p.Efficiency()
	fmt.Fprintf(&b, "layer: %d B × %d, %s\n", p.LayerBytes, p.Layers, p.describeShares(0, e.Layer))
	describeMatrices(&b, p.Layer, e.LayerMatrix)
	if len(p.Final) > 0 {
		fmt.Fprintf(&b, "final: %d B, %s\n", p.FinalBytes, p.describeShares(FinalLayer, e.Final))
		describeMatrices(&b, p.Final, e.FinalMatrix)
	}
	fmt.Fprintf(&b, "packed: %d B, of them %d B padding; step evenness %.2f %%\n", p.PackedBytes,
		p.PackedBytes-p.WeightBytes(), 100*e.Step)
	return b.String()
}

func (p *Plan) describeShares(layer int, evenness float64) string {
	least, most := p.SMBytes(0, layer), int64(0)
	few, many := p.ChunkCount(0, layer), int64(0)
	for s := range p.SMs {
		least, most = min(least, p.SMBytes(s, layer)), max(most, p.SMBytes(s, layer))
		few, many = min(few, p.ChunkCount(s, layer)), max(many, p.ChunkCount(s, layer))
	}
	return fmt.Sprintf("%d to %d B and %d to %d chunks on each of %d SMs, evenness %.2f %%", least, most, few, many, p.SMs,
		100*evenness)
}

func describeMatrices(b *strings.Builder, ms []MatrixPlan, evenness []float64) {
	for i, m := range ms {
		least := m.Tiles
		for _, n := range m.Count {
			least = min(least, n)
		}
		fmt.Fprintf(b, "  %s %d×%d: %d tiles of %d×%d columns", m.Name, m.Rows, m.K, m.Tiles, m.ChunksPerTile, m.ChunkK)
		if m.TailK != m.ChunkK {
			fmt.Fprintf(b, " (last %d)", m.TailK)
		}
		if m.Batch > 0 {
			fmt.Fprintf(b, " in batches of %d", m.Batch)
		}
		fmt.Fprintf(b, ", %d to %d tiles an SM, evenness %.2f %%\n", least, m.MaxCount(), 100*evenness[i])
	}
}
