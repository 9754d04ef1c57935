package megakernel

import "github.com/mkgen/mkgen/dsl"

// Beside DefaultConsumers consumer warps a producer warp is the third in one of an SM's four parts, which leaves
// every thread ampleRegisters. Kernels of several rows want more: a thread keeps the input of a chunk of columns and
// of the next one, and sums of several tiles. There three idle warps make the producer's a warpgroup, which leaves
// most of its registers to the two warpgroups of consumers.
const (
	consumerRegisters = 224
	producerRegisters = 56
)

// movesRegisters reports whether the producer's warp is one of a warpgroup whose registers the consumers get: in
// kernels of several rows with DefaultConsumers.
func (o *Options) movesRegisters() bool { return o.Tokens > 1 && o.Consumers == DefaultConsumers }

// warps is how many warps a CTA has: the consumers, and the producer's role.
func (o *Options) warps() int {
	if o.movesRegisters() {
		return o.Consumers + dsl.WarpsPerGroup
	}
	return o.Consumers + 1
}

// producers is the producer's role: the first of its warps streams.
func (b *builder) producers() {
	if !b.mk.Options.movesRegisters() {
		b.producer()
		return
	}
	b.k.FewerRegisters(producerRegisters)
	b.env.Producing(0, b.producer)
}
