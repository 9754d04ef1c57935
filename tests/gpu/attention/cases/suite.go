package cases

import (
	"fmt"
	"math"
)

// mostLayers bounds the cache of a page budget: a layer of it is the whole
// sequence's. What a step reads still exceeds the L2 cache.
const mostLayers = 32

// Batch is how many sequences the batches of the benchmark have.
const Batch = 16

// budgetLengths are the lengths of the sequences of which a budget of pages is selected:
// a step's time should follow the budget, not them.
var budgetLengths = []int{32768, 8192}

// UniformDraws is how many draws of uniform lengths there are, of the seeds from 1 on: how
// well a draw can be balanced differs, so what is claimed is the median.
const UniformDraws = 5

// Speed are the cases whose speed the project claims: batches of 16 sequences, one
// long sequence, page sizes, pages in ascending order, shared prefixes, page budgets.
func Speed() []*Case {
	s := Llama8B()
	all := []*Case{
		timed(Decode("constant-1024", s, Constant(1024, Batch))),
		timed(Decode("uniform-512-1024", s, Uniform(512, 1024, Batch, 1))),
		timed(Decode("zipf-1024", s, Zipf(1024, Batch))),
		timed(Decode("one-32768", s, Constant(32768, 1))),
		timed(Decode("one-131072", s, Constant(131072, 1))),
		timed(Shared("prefix-8192", s, 8192, 128, Batch)),
		Levels("prefix-4096-4096", s, []int{Batch, 4}, 4096, 128).streamed(),
		Contiguous("contiguous-1024", s, Constant(1024, Batch)).streamed(),
	}
	for seed := uint64(2); seed <= UniformDraws; seed++ {
		all = append(all, Decode(fmt.Sprintf("uniform-512-1024-%d", seed), s, Uniform(512, 1024, Batch, seed)).streamed())
	}
	for _, page := range []int{1, 8, 32, 64, 128} {
		s.Page = page
		all = append(all, Decode(fmt.Sprintf("page-%d", page), s, Constant(1024, Batch)).streamed())
	}
	s.Page = 16
	for _, n := range []int{1024, 131072} {
		lengths := Constant(n, max(1, Batch*1024/n))
		all = append(all, Decode(fmt.Sprintf("e4m3-%d", n), s, lengths).E4M3().streamed())
	}
	for _, length := range budgetLengths {
		for _, budget := range []int{64, 128, 256, 512} {
			name := fmt.Sprintf("budget-%d", budget)
			if length != budgetLengths[0] {
				name += fmt.Sprintf("-of-%d", length)
			}
			c := Selected(name, s, length, budget).streamed()
			c.Layers = min(c.Layers, mostLayers)
			all = append(all, c)
		}
	}
	return all
}

// edges are sequences of all lengths at which a page or a block begins or ends;
// 16 rows.
func edges(page int) []Sequence {
	return []Sequence{{0, 1}, {1, 1}, {page - 1, 1}, {page, 2}, {page + 1, 3}, {5*page - 2, 4}, {333, 1}, {1000, 3}}
}

// Variants are small ragged cases, one of each variant, for a model's shape.
func Variants(s Shape) []*Case {
	with := func(name string, change func(c *Case)) *Case {
		c := Ragged(name, s, edges(max(2, s.Page)))
		c.Variants[0].Name, c.Layers = name, 2
		change(c)
		return c
	}
	return []*Case{
		with("causal", func(*Case) {}),
		with("window", func(c *Case) { c.Variants[0].Params.Window = 100 }),
		with("window-sinks", func(c *Case) { c.Variants[0].Params = Params{Window: 100, Sinks: 4} }),
		with("softcap", func(c *Case) { c.Variants[0].Params.SoftCap = 5 }),
		with("alibi", func(c *Case) { c.Variants[0].Params.ALiBi = Slopes(c.Heads) }),
		with("mask", func(c *Case) { c.Variants[0].Params.Mask, c.Files.Mask = true, "mask.u32"; c.maskRows() }),
		with("tree", func(c *Case) { c.Rows = c.nextTokens(); c.branch() }),
		with("sigmoid", func(c *Case) { c.Variants[0].Params.Sigmoid = &Sigmoid{Bias: -5} }),
		with("rope", func(c *Case) { c.Variants[0].Params.Rope, c.KeyRounding = frequencies(c.HeadDim), bf16Rounding }),
		with("streaming", func(c *Case) {
			c.Variants[0].Params, c.KeyRounding = Params{Window: 100, Sinks: 4, Rope: frequencies(c.HeadDim)}, bf16Rounding
		}),
		with("head-scale", func(c *Case) { c.Variants[0].Params.HeadScale, c.KeyRounding = scales(c.Heads), bf16Rounding }),
		with("e4m3", func(c *Case) { c.E4M3() }),
		with("e4m3-streaming", func(c *Case) {
			c.E4M3().Variants[0].Params, c.KeyRounding = Params{Window: 100, Sinks: 4, Rope: frequencies(c.HeadDim)},
				bf16Rounding
		}),
		with("alternating-window", func(c *Case) { c.alternate("window", Params{Window: 100}) }),
		with("alternating-full", func(c *Case) {
			c.alternate("window", Params{Window: 100})
			c.Layers = 3 // of which the last has no window
		}),
	}
}

// bf16Rounding is the largest relative error of rounding to bf16.
const bf16Rounding = 1.0 / 256

// frequencies are those of a rotary embedding with base 10000.
func frequencies(dim int) *Rope {
	r := &Rope{}
	for i := range dim / 2 {
		r.InvFreq = append(r.InvFreq, float32(math.Pow(10000, -2*float64(i)/float64(dim))))
	}
	return r
}

// alternate gives every second layer another variant.
func (c *Case) alternate(name string, p Params) {
	c.Variants[0].Name = "causal"
	c.Variants = append(c.Variants, Variant{name, p})
}

// Slopes are ALiBi's for n heads: 2^(−8·(h+1)/heads) (Press et al. 2022).
func Slopes(heads int) []float32 {
	out := make([]float32, heads)
	for h := range out {
		out[h] = float32(math.Exp2(-8 * float64(h+1) / float64(heads)))
	}
	return out
}

// scales are different for every head, from 0.5 to below 1.5.
func scales(heads int) []float32 {
	out := make([]float32, heads)
	for h := range out {
		out[h] = 0.5 + float32(h)/float32(heads)
	}
	return out
}

// nextTokens are the rows of a step whose new tokens follow their sequences.
func (c *Case) nextTokens() (rows []Row) {
	for _, s := range c.Sequences {
		for i := range s.New {
			rows = append(rows, Row{Position: s.Cached + i, Tail: 2<<i - 1})
		}
	}
	return rows
}

// branch makes draft trees of the new tokens: the first is the root, the parent of
// token i is (i−1)/2; a token attends to its ancestors and itself.
func (c *Case) branch() {
	t := 0
	for _, s := range c.Sequences {
		for i := range s.New {
			depth, tail := 0, uint32(1)<<i
			for p := i; p > 0; p = (p - 1) / 2 {
				depth++
				tail |= 1 << ((p - 1) / 2)
			}
			c.Rows[t] = Row{Position: s.Cached + depth, Tail: tail}
			t++
		}
	}
}

// maskRows gives every row as many words of the custom mask as its sequence needs.
func (c *Case) maskRows() {
	c.Rows = c.nextTokens()
	t, word := 0, 0
	for _, s := range c.Sequences {
		for range s.New {
			c.Rows[t].Mask = word
			word += ceilDiv(s.Tokens(), 32)
			t++
		}
	}
}

// MaskWords is the length of the custom mask, 0 without one.
func (c *Case) MaskWords() int {
	if c.Files.Mask == "" {
		return 0
	}
	n := 0
	for _, s := range c.Sequences {
		n += s.New * ceilDiv(s.Tokens(), 32)
	}
	return n
}
