package megakernel

import "github.com/mkgen/mkgen/pipeline"

// TraceSpans is how many spans (Options.Trace) a role has room for in so many steps that
// begin with cached tokens of each sequence in the cache: more than it notes, unless most
// waits at the ring are long ones (pipeline.ChunkWait), as on a GPU that is not its own.
func (mk *Kernel) TraceSpans(cached, steps int) int {
	o, p := &mk.Options, mk.Plan
	layer, final := 0, 0 // of the busiest SM
	for sm := range p.SMs {
		n := 0
		for i := range layerMatrices {
			n += mk.waitSpans(mk.chunksOf(i, sm))
		}
		layer, final = max(layer, n), max(final, mk.waitSpans(mk.chunksOf(layerMatrices, sm)))
	}
	perStage := kvTokensPerStage(p)
	kv := 2 * (o.Tokens*mk.KV.Heads*(cached+steps)/(perStage*o.SMs) + 1) // an SM has up to about twice the mean
	items := 1
	if mk.Ragged() {
		items = mk.Limits(0).ItemsPerCTA
	}
	// A warp that takes chunks in turns notes each that it takes. Beside that there are
	// a few parts of each phase and item.
	perLayer := layer + max(mk.waitSpans(kv), kv+items) + 8*items + 4*len(mk.Phases)
	return min(maxTrace, steps*(mk.Config.Layers*perLayer+final+32))
}

// waitSpans is how many spans a phase's waits for so many chunks are, or nearly: two sums
// once in SummedChunks chunks and at the end, and three spans where a wait is long. A few
// are, as behind hand-offs, at most all.
func (mk *Kernel) waitSpans(chunks int) int {
	if mk.Options.TraceEachWait {
		return 3*chunks + 2
	}
	sums, long := chunks/pipeline.SummedChunks+1, 2+chunks/32
	return min(2*sums+3*long, 3*chunks+2)
}

// chunksOf is the number of chunks that an SM reads of matrix i of the plan table.
func (mk *Kernel) chunksOf(i, sm int) int {
	m := mk.matrix(i)
	return m.Count[sm] * m.ChunksPerTile
}
