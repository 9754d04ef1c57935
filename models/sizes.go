package models

// GroupSize returns the number of query heads that share one KV head.
func (c Config) GroupSize() int { return c.Heads / c.KVHeads }

// QRows returns the rows of the query projection, which is also the length of
// the attention output: Heads*HeadDim.
func (c Config) QRows() int { return c.Heads * c.HeadDim }

// KVRows returns the rows of the key projection, and as many of the value
// projection: KVHeads*HeadDim.
func (c Config) KVRows() int { return c.KVHeads * c.HeadDim }

// LayerParams returns the number of weights in one decoder layer: the seven
// matrices and the two norm gains.
func (c Config) LayerParams() int64 {
	hidden := int64(c.Hidden)
	attention := 2*hidden*int64(c.QRows()) + 2*hidden*int64(c.KVRows())
	mlp := 3 * hidden * int64(c.Intermediate)
	return attention + mlp + 2*hidden
}

// ParamCount returns the number of distinct weights: a tied LM head counts once.
func (c Config) ParamCount() int64 {
	table := int64(c.Vocab) * int64(c.Hidden)
	tables := table
	if !c.TieEmbeddings {
		tables += table
	}
	return tables + int64(c.Layers)*c.LayerParams() + int64(c.Hidden)
}

// WeightBytes returns the bytes of weights that a step over one query token must
// read: every matrix and every norm gain once, the LM head whether tied or not,
// and one row of the embedding. A step over T tokens reads up to T-1 further
// embedding rows of Hidden elements.
func (c Config) WeightBytes() int64 {
	hidden := int64(c.Hidden)
	head := int64(c.Vocab) * hidden
	elements := int64(c.Layers)*c.LayerParams() + head + hidden + hidden
	return elements * int64(c.DType.Bytes())
}

// KVBytesPerToken returns the bytes of keys and values that one position of one
// sequence holds over all layers. The cache has the type of the weights.
func (c Config) KVBytesPerToken() int64 {
	return 2 * int64(c.Layers) * int64(c.KVRows()) * int64(c.DType.Bytes())
}
