package megakernel

// TraceSpans is how many spans (Options.Trace) a role has room for in n steps that
// begin with cached tokens of each sequence in the cache: somewhat more than it notes.
func (mk *Kernel) TraceSpans(cached, steps int) int {
	o, p := &mk.Options, mk.Plan
	layer, final := 0, 0 // chunks of the busiest SM
	for sm := range p.SMs {
		n := 0
		for i := range layerMatrices {
			n += mk.chunksOf(i, sm)
		}
		layer, final = max(layer, n), max(final, mk.chunksOf(layerMatrices, sm))
	}
	perStage := kvTokensPerStage(p)
	kv := 2 * (o.Tokens*mk.KV.Heads*(cached+steps)/(perStage*o.SMs) + 1) // an SM has up to about twice the mean
	items := 1
	if mk.Ragged() {
		items = mk.Limits(0).ItemsPerCTA
	}
	// The producer notes three waits a chunk, and as many of each stage in the end. Beside that
	// there are a few parts of each phase and item.
	chunks := mk.Config.Layers*(layer+kv+items) + final
	parts := mk.Config.Layers*(8*items+4*len(mk.Phases)) + 32
	return min(maxTrace, steps*(3*chunks+parts)+3*p.Stages)
}

// chunksOf is the number of chunks that an SM reads of matrix i of the plan table.
func (mk *Kernel) chunksOf(i, sm int) int {
	m := mk.matrix(i)
	return m.Count[sm] * m.ChunksPerTile
}
