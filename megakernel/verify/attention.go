package verify

import (
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks/attention"
)

// headScales are factors of query heads that are none of them the same, where a
// kernel's attention has some.
func headScales(mk *megakernel.Kernel) (scales []float32) {
	if !mk.HasHeadScales() {
		return nil
	}
	for h := range mk.Config.Heads {
		scales = append(scales, 0.5+float32(h)/float32(mk.Config.Heads))
	}
	return scales
}

// withAttention makes the reference's attention what the kernel's layers have. Of a
// sequence that decodes a token a step the query is the first new one.
func withAttention(h reference.Hooks, mk *megakernel.Kernel, t *Trial) reference.Hooks {
	if mk.Options.Attention == "" {
		return h
	}
	h.Unrotated = mk.Unrotated
	h.Attend = func(layer int, q []float64, keys, values [][]float64) []float64 {
		at := attention.Place{Position: len(keys) - 1, First: len(keys) - 1}
		return attend(mk, mk.LayerAttention(layer, megakernel.Tables{HeadScales: t.heads}), at, q, places(len(keys)), keys,
			values, nil)
	}
	return h
}

// visible is what a layer's window leaves of the chunks of n cached tokens.
func (t *Trial) visible(layer, cached int) kv.Visible {
	class := kv.Class{}
	if v := t.mk.LayerAttention(layer, megakernel.Tables{}); v != nil {
		class.Window, class.Sinks = v.Window, v.Sinks
	}
	return class.Visible(t.mk.ChunkTokens(), cached, 0, cached)
}

// read is how many of n cached tokens a layer reads of a KV head.
func (t *Trial) read(layer, cached int) int {
	return cached - t.visible(layer, cached).Skip*t.mk.ChunkTokens()
}

// splits is how many parts of the cache have tokens in the last layer that every head
// sees, in the first step or, if that is fewer, in the last.
func (t *Trial) splits() int {
	layer, chunk := t.mk.Config.Layers-1, t.mk.ChunkTokens()
	v := t.mk.LayerAttention(layer, megakernel.Tables{})
	at := func(cached int) int {
		return seenSplits(v, t.visible(layer, cached), t.mk.Options.Splits, chunk, cached, t.mk.Config.Heads)
	}
	return min(at(cachedTokens(t.mk)), at(cachedTokens(t.mk)+t.steps-1))
}

// seenSplits is how many of the parts into which the visible chunks of n cached
// tokens are cut have a token that v's mask shows to every head of the next query: the
// last part always has that query's own.
func seenSplits(v *attention.Variant, seen kv.Visible, splits, chunk, cached, heads int) (n int) {
	shows := func(head, from, to int) bool {
		for i := from; i < min(to, cached); i++ {
			q, k := attention.Place{Head: head, Heads: heads, Position: cached, First: cached},
				attention.Place{Index: i, Position: i}
			if v == nil || v.Means.Mask == nil || v.Means.Mask(q, k) {
				return true
			}
		}
		return false
	}
	for s := range splits {
		full := true
		for head := range heads {
			some := s == splits-1
			for c := s * seen.C / splits; c < (s+1)*seen.C/splits; c++ {
				at := c
				if c >= seen.Sinks {
					at += seen.Skip
				}
				some = some || shows(head, at*chunk, (at+1)*chunk)
			}
			full = full && some
		}
		if full {
			n++
		}
	}
	return n
}

// places are those of the tokens of a sequence.
func places(n int) []attention.Place {
	out := make([]attention.Place, n)
	for i := range out {
		out[i] = attention.Place{Index: i, Position: i}
	}
	return out
}

// attend is the attention of all heads of a query, nil being plain attention, with the model's
// own scale of scores. at is the query's place and keysAt those of the keys, but for the heads;
// sees, unless nil, is whether a KV head reads the page of a key at all.
func attend(mk *megakernel.Kernel, v *attention.Variant, at attention.Place, q []float64, keysAt []attention.Place,
	keys,
	values [][]float64, sees func(head int, k attention.Place) bool) []float64 {
	c, d := &mk.Config, mk.Config.HeadDim
	at.Heads = c.Heads
	arch := c.Arch()
	scale := arch.Layer(0).Attn.Scale / models.PlainScale(d) // the same in all layers; Variant.Attend's is plain
	scaled := make([]float64, len(q))
	for i, x := range q {
		scaled[i] = scale * x
	}
	out := make([]float64, 0, len(q))
	for h := range c.Heads {
		head := h / (c.Heads / c.KVHeads)
		var places []attention.Place
		var ks, vs [][]float64
		for i, place := range keysAt {
			if place.Head = head; sees == nil || sees(head, place) {
				places, ks, vs = append(places, place), append(ks, keys[i][head*d:(head+1)*d]),
					append(vs, values[i][head*d:(head+1)*d])
			}
		}
		at.Head = h
		one, _ := v.Attend(at, scaled[h*d:(h+1)*d], places, ks, vs)
		out = append(out, one...)
	}
	return out
}
