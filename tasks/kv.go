package tasks

import "github.com/mkgen/mkgen/dsl"

// KVLayout is the paged KV cache: [layer][page][KV head][slot][K, V][head
// dimension] in bf16, a page of one head contiguous, so that any run of tokens
// in a page is one bulk copy. Within a token the 16-byte units of K and of V
// are permuted (unit u lies at u xor (slot mod m), see Swizzle), so that the 8
// rows ldmatrix reads at once fall into different shared-memory banks.
type KVLayout struct {
	Layers, Heads int // KV heads
	D             int // head dimension, a multiple of 16
	Page          int // tokens a page, a power of two
}

// TokenUnits is the number of 16-byte units of one token of one head, K and V.
func (l KVLayout) TokenUnits() int { return l.D / 4 }

// TokenBytes is the number of bytes of one token of one head, K and V.
func (l KVLayout) TokenBytes() int { return 4 * l.D }

// PageBytes is the number of bytes of one page over all heads of one layer.
func (l KVLayout) PageBytes() int { return l.Heads * l.Page * l.TokenBytes() }

// problem says why the templates cannot work on the layout, or nothing.
func (l KVLayout) problem() string {
	return firstOf(
		need(l.Heads > 0, "KV cache: %d KV heads, want at least 1", l.Heads),
		need(l.D > 0 && l.D%16 == 0 && l.D <= 256, "KV cache: head dimension %d, want a multiple of 16 up to 256", l.D),
		need(l.Page > 0 && l.Page&(l.Page-1) == 0, "KV cache: page size %d is not a power of two", l.Page))
}

// Mask is m−1 for the unit permutation: m is the largest power of two up to 8
// that divides the units of K and is at most the page size.
func (l KVLayout) Mask() int {
	m := 1
	for m < 8 && (l.D/8)%(2*m) == 0 && 2*m <= l.Page {
		m *= 2
	}
	return m - 1
}

// Index is the element (in bf16) of dimension d of K (v = 0) or V (v = 1) of a
// slot, in a cache of pages pages a layer. It is the layout's definition; the
// device code computes the same.
func (l KVLayout) Index(pages, layer, page, head, slot, v, d int) int {
	row := ((layer*pages+page)*l.Heads+head)*l.Page + slot
	unit := (d / 8) ^ (slot & l.Mask())
	return row*l.D*2 + v*l.D + unit*8 + d%8
}

// rowBase is the first 16-byte unit of a slot's token.
func (l KVLayout) rowBase(layer, pages, page, head, slot u32) dsl.Val[dsl.U64] {
	row := dsl.Cast[dsl.U64](layer).Mul(dsl.Cast[dsl.U64](pages)).Add(dsl.Cast[dsl.U64](page))
	row = row.MulC(l.Heads).Add(dsl.Cast[dsl.U64](head)).MulC(l.Page).Add(dsl.Cast[dsl.U64](slot))
	return row.MulC(l.TokenUnits())
}

// swizzle permutes a unit of K or V for the token at position t (its slot is
// t mod Page, and Mask < Page).
func (l KVLayout) swizzle(unit, t u32) u32 { return unit.Xor(t.AndC(l.Mask())) }

// Step is what is known of the running step, the same for every thread.
type Step struct {
	Pos    u32 // position of the query token; a plan's query rows have their own
	Cached u32 // tokens in the cache that it attends to beside itself: 0 … Cached−1; a plan's items have their own
	Pages  u32 // pages a layer in the cache
	Layer  u32
	Index  u32               // steps of the launch before this one; only a plan's work needs it
	Table  dsl.Buf[dsl.U32]  // page of tokens i·Page … in order; with a plan, all units' page entries
	Cache  dsl.Buf[dsl.B128] // the KV cache
}
