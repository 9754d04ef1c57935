package attention

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
)

// key is what hooks see of token tok of a block.
func (st *state) key(b tokens, tok u32) *Key {
	it, s, w := st.it, st.step, st.t.Work
	k := &Key{Env: st.e, Step: s, Head: it.kvHead, First: s.Pos}
	if w == nil && b.fresh { // the query's own
		k.Index, k.Position = s.Pos, s.Pos
		dsl.Optional(tok)
		return k
	}
	tok = tok.Min(b.n.SubC(1))
	index := b.first.Add(tok)
	if w == nil {
		k.Index, k.Position = dsl.Optional(index), dsl.Optional(index)
		return k
	}
	k.Index = dsl.Optional(it.word(kv.ItemPosition).Add(index))
	row := func(i u32, word int) u32 { return w.Rows.Load(i.MulC(kv.RowWords).AddC(word)) }
	switch {
	case b.fresh:
		k.Position = dsl.Optional(row(it.word(kv.ItemTailRow).Add(tok), kv.RowPosition).Add(s.Index))
		if w.Selection { // the place of the first one is its position, also in a draft tree
			k.Index = dsl.Optional(row(it.word(kv.ItemTailRow), kv.RowPosition).Add(s.Index).Add(tok))
		}
	case w.Selection:
		k.Position = dsl.Optional(w.Positions.Load(it.entry(index)).Add(index.RemC(st.t.KV.Page)))
		k.Index = k.Position
	default:
		k.Position = k.Index
	}
	if st.t.Variant.Key != nil {
		k.First = dsl.Optional(row(row(it.row(st.e.K.U32(0)), kv.RowFirst), kv.RowPosition).Add(s.Index))
	}
	return k
}

// sight says which of a block's tokens each row sees, and what the variant makes
// of their scores.
type sight struct {
	st    *state
	b     tokens
	masks bool // whether a row may see none of them

	col  u32    // of this lane's first token
	bits []u32  // with Work, of new tokens: per row, bit i: token i is seen
	keys []*Key // of this lane's tokens, where hooks ask
}

func (st *state) sight(b tokens) *sight {
	v := st.t.Variant
	s := &sight{st: st, b: b, col: dsl.Optional(st.e.Lane.RemC(4).MulC(2)), masks: v != nil && v.Mask != nil,
		keys: make([]*Key, 4*b.slices)}
	if b.fresh && st.t.Work != nil {
		s.bits, s.masks = st.tailBits(), true
	}
	if v != nil && (v.Logits != nil || v.Mask != nil) {
		for i := range s.keys {
			s.keys[i] = st.key(b, s.col.AddC(8*(i/2)+i%2))
		}
	}
	return s
}

// logit is row h's score of the lane's token 8nt + col + j as softmax, or the
// sum, wants it: −inf, or 0, where the row does not see the token.
func (s *sight) logit(h, nt, j int, score f32) f32 {
	v, k := s.st.t.Variant, s.st.e.K
	if s.b.whole && v == nil && s.bits == nil {
		return score
	}
	col := s.col.AddC(8*nt + j)
	visible, hidden := col.Lt(s.b.n), k.F32(math.Inf(-1))
	if s.bits != nil {
		visible = visible.And(s.bits[h].Shr(col).AndC(1).NeC(0))
	}
	if v != nil {
		q, key := s.st.row[h].query, s.keys[2*nt+j]
		if v.Mask != nil {
			visible = visible.And(v.Mask(q, key))
		}
		if v.Logits != nil {
			score = v.Logits(q, key, score)
		}
		if v.Sum {
			hidden = k.F32(0)
		}
	}
	return dsl.Select(visible, score, hidden)
}

// transformQueries applies the variant's Query hook to the fragments.
func (st *state) transformQueries() {
	v, d := st.t.Variant, st.t.KV.D
	if v == nil || v.Query == nil {
		return
	}
	for h, row := range st.row {
		at := func(block int) *pair { return &st.q[block/2][h+block%2*2] }
		if st.t.KV.e4m3() {
			for b := range d / 8 {
				p := at(b)
				lo, hi := dsl.Unpack(*p)
				*p = dsl.Pack[dsl.BF16x2](v.Query(row.query, st.partnersDim(b), lo, hi))
			}
			continue
		}
		for b := range d / 16 {
			transformPair(st.dim(b), at(b), at(b+d/16),
				func(dim u32, lo, hi f32) (f32, f32) { return v.Query(row.query, dim, lo, hi) })
		}
	}
}

// dim is the first of the two dimensions this lane holds of block b of 8.
func (st *state) dim(b int) u32 { return st.e.Lane.RemC(4).MulC(2).AddC(8 * b) }

// partnersDim is, in an e4m3 cache, the dimension of which this lane has register
// b%2 of slice b/2: with that D/2 on, its partner, in the other half of the pair.
func (st *state) partnersDim(b int) u32 {
	return dsl.Optional(st.e.Lane.RemC(4).MulC(2).AddC(b/2*8 + b%2))
}

// transformPair applies a hook to two pairs of elements that are D/2 apart.
func transformPair(dim u32, lo, hi *pair, hook func(dim u32, lo, hi f32) (f32, f32)) {
	var l, h [2]f32
	l[0], l[1] = dsl.Unpack(*lo)
	h[0], h[1] = dsl.Unpack(*hi)
	for j := range l {
		l[j], h[j] = hook(dsl.Optional(dim.AddC(j)), l[j], h[j])
	}
	*lo, *hi = dsl.Pack[dsl.BF16x2](l[0], l[1]), dsl.Pack[dsl.BF16x2](h[0], h[1])
}

// eachKeyFragment calls use for every 16 dimensions of each slice of a block's keys,
// after the variant's Key hook.
func (st *state) eachKeyFragment(b tokens, use func(slice, i int, f [2][2]pair)) {
	l, d, at := st.t.KV, st.t.KV.D, st.keySpots(b)
	keys := make([][2]*Key, len(at))
	if st.t.hooksKeys() {
		for slice := range keys {
			for nt := range keys[slice] {
				keys[slice][nt] = st.key(b, st.e.Lane.DivC(4).AddC(slice*blockTokens+8*nt))
			}
		}
	}
	if !l.e4m3() && st.t.hooksKeys() {
		for slice := range at {
			st.eachHookedKey(at[slice], keys[slice], func(i int, f [2][2]pair) { use(slice, i, f) })
		}
		return
	}
	for i := 0; i < d/16; i += l.keySlices() {
		for slice := range at {
			for j, f := range st.keyFragments(at[slice], i) {
				if st.t.hooksKeys() {
					st.transformPartners(i+j, keys[slice], &f)
				}
				use(slice, i+j, f)
			}
		}
	}
}

// eachHookedKey is eachKeyFragment of a slice of bf16 keys with a Key hook. That
// wants dimensions D/2 apart together: so fragments come in pairs.
func (st *state) eachHookedKey(at spot, keys [2]*Key, use func(i int, f [2][2]pair)) {
	v, d := st.t.Variant, st.t.KV.D
	f, done := make([]*[2][2]pair, d/16), make([]int, d/16)
	for b := range d / 16 {
		for _, block := range []int{b, b + d/16} {
			if i := block / 2; f[i] == nil {
				f[i] = &st.keyFragments(at, i)[0]
			}
		}
		for nt, key := range keys {
			part := func(block int) *pair { return &f[block/2][nt][block%2] }
			transformPair(st.dim(b), part(b), part(b+d/16),
				func(dim u32, lo, hi f32) (f32, f32) { return v.Key(key, dim, lo, hi) })
		}
		for _, block := range []int{b, b + d/16} {
			if done[block/2]++; done[block/2] == 2 {
				use(block/2, *f[block/2])
			}
		}
	}
}

// transformPartners applies the Key hook to a slice of an e4m3 cache's keys, where
// the two dimensions that it wants together are a pair.
func (st *state) transformPartners(i int, keys [2]*Key, f *[2][2]pair) {
	l := st.t.KV
	for nt, key := range keys {
		for x := range 2 {
			lo, hi := l.unpack(f[nt][x])
			f[nt][x] = l.pack(st.t.Variant.Key(key, st.partnersDim(2*i+x), lo.Mul(st.keyScale), hi.Mul(st.keyScale)))
		}
	}
}

// valueTransform is the variant's Value hook on a tile of a slice's fragments.
func (st *state) valueTransform(b tokens) func(slice, tile int, f [2]pair) [2]pair {
	v, l := st.t.Variant, st.t.KV
	if !st.t.hooksValues() {
		return func(_, _ int, f [2]pair) [2]pair { return f }
	}
	col := st.e.Lane.RemC(4).MulC(2)
	all := make([]*Key, 4*b.slices)
	for i := range all {
		all[i] = st.key(b, col.AddC(8*(i/2)+i%2))
	}
	return func(slice, tile int, f [2]pair) [2]pair {
		keys := all[4*slice:]
		dim := dsl.Optional(l.tileDim(tile, st.e.Lane.DivC(4)))
		for r := range f {
			lo, hi := l.unpack(f[r])
			if l.e4m3() {
				lo, hi = lo.Mul(st.valueScale), hi.Mul(st.valueScale)
			}
			f[r] = l.pack(v.Value(keys[2*r], dim, lo), v.Value(keys[2*r+1], dim, hi))
		}
		return f
	}
}
