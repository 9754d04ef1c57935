package models

// GroupSize returns the number of query heads that share one KV head.
func (c Config) GroupSize() int { return c.Heads / c.KVHeads }

// QRows returns the rows of the query projection, which is also the length of
// the attention output: Heads*HeadDim.
func (c Config) QRows() int { return c.Heads * c.HeadDim }

// KVRows returns the rows of the key projection, and as many of the value
// projection: KVHeads*HeadDim.
func (c Config) KVRows() int { return c.KVHeads * c.HeadDim }

// ParamCount returns the number of distinct weights: a tied LM head counts once.
func (c Config) ParamCount() int64 {
	return c.elements(func(*Tensor) bool { return true })
}

// WeightBytes returns the bytes of weights that a step over one query token must
// read: every matrix, bias and norm gain once, the LM head whether tied or not,
// and one row of the embedding. A step over T tokens reads up to T-1 further
// embedding rows of Hidden elements.
func (c Config) WeightBytes() int64 {
	elements := c.elements(func(t *Tensor) bool { return t.Role != RoleEmbed || c.TieEmbeddings })
	return (elements + int64(c.Hidden)) * int64(c.DType.Bytes())
}

// elements adds up the tensors that count.
func (c *Config) elements(counts func(t *Tensor) bool) (n int64) {
	for _, t := range c.Tensors() {
		if counts(&t) {
			n += t.Elements()
		}
	}
	return n
}

// KVBytesPerToken returns the bytes of keys and values that one position of one
// sequence holds over all layers. The cache has the type of the weights.
func (c Config) KVBytesPerToken() int64 {
	return 2 * int64(c.Layers) * int64(c.KVRows()) * int64(c.DType.Bytes())
}
