// Package attention holds the templates of attention: queries, keys and values behind their product, the KV cache, and
// attention itself, of one row, of several, and of prefill kernels.
//
// # Files
//
// In the order of a step:
//
//	qkv.go headnorm.go                            q, k and v: norms, RoPE, where the new token's key and value go into the cache
//	columnqkv.go normcolumns.go qkvpackets.go     the same of several rows, and in LL packets
//	kv.go                                         the cache's layout: a page's address, units and elements in it
//	rows.go work.go unsplit.go turns.go           which rows, items and classes of attention a CTA has
//	attention.go state.go fragments.go tail.go    items of KV through the ring, running softmax
//	hooks.go combine*.go operands.go
//	statepackets.go merge*.go attentionmerge.go   partial states, merged within the phase or behind it
//	output.go                                     where the output goes
//	variant*.go                                   windows, soft caps, masks, ALiBi and what else is not plain attention
//	planted.go meaning.go                         faults and float64 meanings, for checks
//
// For prompts:
//
//	prefill*.go                                   hundreds of tokens a step, on wgmma; gathers and copies of their keys and values
package attention

import "github.com/mkgen/mkgen/dsl"

// Short names for the device types this package uses most.
type (
	f32  = dsl.Val[dsl.F32]
	u32  = dsl.Val[dsl.U32]
	pair = dsl.Val[dsl.BF16x2]
)
