package attention

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// KVType is the format of a KV cache's elements; the zero value is bf16.
type KVType string

// The formats. In e4m3 (float8: 4 exponent bits, 3 of mantissa, at most 448)
// an element stands for itself times a scale of its layer and KV head, one for
// K and one for V (Step.Scales).
const (
	KVBF16 KVType = "bf16"
	KVE4M3 KVType = "e4m3"
)

// KVTypes lists the formats.
func KVTypes() []KVType { return []KVType{KVBF16, KVE4M3} }

// KVLayout is the paged KV cache: [layer][page][KV head][slot][K, V][head
// dimension], a page of one head contiguous, so that any run of tokens in a page
// is one bulk copy. Within a token the 16-byte units, K's and then V's, are
// permuted (unit u lies at u xor key, see Mask), so that the 8 rows ldmatrix
// reads at once fall into different shared-memory banks.
//
// In e4m3 the two elements a rotation mixes, i and i + D/2, are neighbours in K
// (see KeyOrder), because they are made together and two of them are the least
// that a store writes.
type KVLayout struct {
	Layers, Heads int    // KV heads
	D             int    // head dimension, a multiple of 16
	Page          int    // tokens a page, a power of two
	Type          KVType // of the elements
	Rotary        Rotary // which two elements of a head a rotation mixes
}

// Rotary says which elements of a head of D are rotated together. The zero value is i and i + D/2, for all of them.
//
// Scores do not depend on the order of a head's elements, as long as it is the same in q and k. So a kernel keeps them
// in the order in which any rotation is that of i and i + D/2: only QKV.SourceRow, which orders the matrix's rows, and
// KeyOrder know another. What is not rotated has a frequency of 0.
type Rotary struct {
	Dims        int  // how many are rotated, from the first, an even number; 0 for all
	Interleaved bool // 2i and 2i + 1 are rotated together, and not i and i + Dims/2
}

// dim is the element of a head of d elements that is the lower (half = 0) or upper one of pair p.
func (r Rotary) dim(d, p, half int) int {
	n := r.Dims
	if n == 0 {
		n = d
	}
	switch {
	case r.Interleaved:
		return 2*p + half
	case p < n/2:
		return p + half*n/2
	}
	return n + p - n/2 + half*(d-n)/2
}

// pair is dim's inverse.
func (r Rotary) pair(d, i int) (p, half int) {
	n := r.Dims
	if n == 0 {
		n = d
	}
	switch {
	case r.Interleaved:
		return i / 2, i % 2
	case i < n:
		return i % (n / 2), i / (n / 2)
	}
	i -= n
	return n/2 + i%((d-n)/2), i / ((d - n) / 2)
}

// e4m3 says whether elements take one byte.
func (l KVLayout) e4m3() bool { return l.Type == KVE4M3 }

// elementBytes is the size of an element.
func (l KVLayout) elementBytes() int {
	if l.e4m3() {
		return 1
	}
	return 2
}

// unitDims is the number of elements of a 16-byte unit.
func (l KVLayout) unitDims() int { return 16 / l.elementBytes() }

// keyUnits is the number of units of K, or of V, of one token.
func (l KVLayout) keyUnits() int { return l.D / l.unitDims() }

// TokenUnits is the number of 16-byte units of one token of one head, K and V.
func (l KVLayout) TokenUnits() int { return 2 * l.keyUnits() }

// TokenBytes is the number of bytes of one token of one head, K and V.
func (l KVLayout) TokenBytes() int { return 2 * l.D * l.elementBytes() }

// PageBytes is the number of bytes of one page over all heads of one layer.
func (l KVLayout) PageBytes() int { return l.Heads * l.Page * l.TokenBytes() }

// ScalesLen is the length of Step.Scales, [Layers][Heads][K, V]: 0 where the
// format has no scales.
func (l KVLayout) ScalesLen() int {
	if l.e4m3() {
		return l.Layers * l.Heads * 2
	}
	return 0
}

// problem says why the templates cannot work on the layout, or nothing.
func (l KVLayout) problem() string {
	return rule.First(
		rule.Need(l.Type == "" || slices.Contains(KVTypes(), l.Type), "KV cache: elements in %q, want one of %q", l.Type,
			KVTypes()),
		rule.Need(l.Heads > 0, "KV cache: %d KV heads, want at least 1", l.Heads),
		rule.Need(l.D > 0 && l.D%16 == 0 && l.D <= 256, "KV cache: head dimension %d, want a multiple of 16 up to 256", l.D),
		rule.Need(l.Page > 0 && l.Page&(l.Page-1) == 0, "KV cache: page size %d is not a power of two", l.Page))
}

// stepProblem says why the layout's scales are not in s, or nothing.
func (l KVLayout) stepProblem(s Step) string {
	return rule.First(rule.Need(int(s.Scales.Len()) == l.ScalesLen(), "KV cache: %d scales, want %d", s.Scales.Len(),
		l.ScalesLen()))
}

// A row of 128 bytes in shared memory, all banks once, has bankUnits units.
const bankUnits = 8

// permutation is what the units of a token are permuted by: key = slot/every mod
// m. m is the largest power of two up to 8 that divides the token's units: m of
// them take m columns of the banks, and only every (8/m)-th token begins at the
// same column, so that is how often the key changes. The key depends on the slot
// alone, so small pages permit fewer.
func (l KVLayout) permutation() (every, m int) {
	every, m = l.fullPermutation()
	return every, max(1, min(m, l.Page/every))
}

// fullPermutation is that of pages of 8 tokens or more.
func (l KVLayout) fullPermutation() (every, m int) {
	m = 1
	for m < bankUnits && l.TokenUnits()%(2*m) == 0 {
		m *= 2
	}
	return bankUnits / m, m
}

// Mask is m−1, which bits of a unit's index the permutation changes.
func (l KVLayout) Mask() int {
	_, m := l.permutation()
	return m - 1
}

// KeyOrder is where dimension d of a key lies in its row, before the units are
// permuted, and of a query in QKV.Q and Attention.Q.
func (l KVLayout) KeyOrder(d int) int {
	p, half := l.Rotary.pair(l.D, d)
	if !l.e4m3() {
		return p + half*l.D/2
	}
	return 2*p + half
}

// Index is the element of dimension d of K (v = 0) or V (v = 1) of a slot, in a
// cache of pages pages a layer. It is the layout's definition; the device code
// computes the same.
func (l KVLayout) Index(pages, layer, page, head, slot, v, d int) int {
	if v == 0 {
		d = l.KeyOrder(d)
	}
	every, m := l.permutation()
	row := ((layer*pages+page)*l.Heads+head)*l.Page + slot
	unit := (v*l.keyUnits() + d/l.unitDims()) ^ (slot / every % m)
	return row*l.D*2 + unit*l.unitDims() + d%l.unitDims()
}

// rowBase is the first 16-byte unit of a slot's token.
func (l KVLayout) rowBase(layer, pages, page, head, slot u32) dsl.Val[dsl.U64] {
	row := dsl.Cast[dsl.U64](layer).Mul(dsl.Cast[dsl.U64](pages)).Add(dsl.Cast[dsl.U64](page))
	row = row.MulC(l.Heads).Add(dsl.Cast[dsl.U64](head)).MulC(l.Page).Add(dsl.Cast[dsl.U64](slot))
	return row.MulC(l.TokenUnits())
}

// unit is where unit u of K (v = 0) or V (v = 1) lies in the token at position t
// (its slot is t mod Page, and the key depends on no more of t).
func (l KVLayout) unit(v int, u, t u32) u32 {
	every, m := l.permutation()
	if m == 1 {
		return u.AddC(v * l.keyUnits())
	}
	key := t.DivC(every).AndC(m - 1)
	if l.keyUnits()%m == 0 {
		return u.Xor(key).AddC(v * l.keyUnits())
	}
	return u.AddC(v * l.keyUnits()).Xor(key)
}

// element is where element i of a row of K or V lies in the token at position t; per is
// the number of elements a unit.
func (l KVLayout) element(v int, i u32, per int, t u32) u32 {
	return l.unit(v, i.DivC(per), t).MulC(per).Add(i.RemC(per))
}

// Step is what is known of the running step, the same for every thread.
type Step struct {
	Pos    u32 // position of the query token; a plan's query rows have their own
	Cached u32 // tokens in the cache that it attends to beside itself: 0 … Cached−1; a plan's items have their own
	Pages  u32 // pages a layer in the cache
	Layer  u32
	Index  u32               // steps of the launch before this one; only a plan's work needs it
	Table  dsl.Buf[dsl.U32]  // page of tokens i·Page … in order; with a plan, all units' page entries
	Cache  dsl.Buf[dsl.B128] // the KV cache
	// [Layers][KV heads][K, V] what e4m3 elements are to be multiplied by, positive; no buffer in bf16
	Scales dsl.Buf[dsl.F32]
}

// scale is the scale of K (v = 0) or V (v = 1) of a KV head in the running layer.
func (l KVLayout) scale(s Step, head u32, v int) f32 {
	return s.Scales.Load(s.Layer.MulC(l.Heads).Add(head).MulC(2).AddC(v))
}
