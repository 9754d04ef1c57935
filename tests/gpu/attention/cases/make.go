package cases

import (
	"math"
	"slices"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/models/synth"
)

// Constant is n sequences of one length.
func Constant(length, n int) []int { return slices.Repeat([]int{length}, n) }

// Uniform is n lengths from low to high, both included, as a seed has it.
func Uniform(low, high, n int, seed uint64) []int {
	out := synth.Tokens(seed, 0, n, high-low+1)
	for i := range out {
		out[i] += low
	}
	return out
}

// Zipf is n lengths in the proportions 1 : 1/2 : 1/3 …, with this mean, the longest
// first.
func Zipf(mean, n int) []int {
	sum := 0.0
	for i := range n {
		sum += 1 / float64(i+1)
	}
	out, total := make([]int, n), float64(mean*n)
	rest := mean * n
	for i := range out {
		out[i] = int(math.Round(total / sum / float64(i+1)))
		rest -= out[i]
	}
	out[0] += rest // what rounding left
	return out
}

// shuffled is the numbers 0 to n-1 in an order that a seed determines.
func shuffled(n int, seed uint64) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)
	}
	random := synth.Tokens(seed, 1, n, 1<<31-1)
	for i := n - 1; i > 0; i-- {
		j := random[i] % (i + 1)
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// pool hands out pages in shuffled order.
type pool []uint32

func (p *pool) take(n int) []uint32 {
	out := (*p)[:n:n]
	*p = (*p)[n:]
	return out
}

// spare is how many pages of the cache belong to nobody: reading one is a fault
// that shows.
const spare = 3

// Decode is a step that decodes one token of each sequence; lengths, at least 1,
// count it.
func Decode(name string, s Shape, lengths []int) *Case {
	c := Of(name, s)
	for _, n := range lengths {
		c.Sequences = append(c.Sequences, Sequence{Cached: n - 1, New: 1})
	}
	return c.place()
}

// Ragged is a step of any sequences.
func Ragged(name string, s Shape, sequences []Sequence) *Case {
	c := Of(name, s)
	c.Sequences = slices.Clone(sequences)
	return c.place()
}

// Contiguous is Decode whose pages lie one behind the other, as if there were none.
func Contiguous(name string, s Shape, lengths []int) *Case {
	c := Decode(name, s, lengths)
	for i := range c.Indices {
		c.Indices[i] = uint32(i)
	}
	return c
}

// place gives every sequence pages of its own.
func (c *Case) place() *Case {
	for _, s := range c.Sequences {
		c.Pages += ceilDiv(s.Tokens(), c.Page)
	}
	c.Pages += spare
	free := pool(shuffled(c.Pages, c.Seed))
	for _, s := range c.Sequences {
		c.row(free.take(ceilDiv(s.Tokens(), c.Page)), s.Tokens())
	}
	return c
}

// Shared is a decoding step of n sequences with a common prefix (a multiple of the
// page size) and suffixes of their own, the new token among them.
func Shared(name string, s Shape, prefix, suffix, n int) *Case {
	if prefix%s.Page != 0 {
		panic("BUG: a prefix that ends inside of a page")
	}
	c := Of(name, s)
	own := ceilDiv(suffix, c.Page)
	c.Pages = prefix/c.Page + n*own + spare
	free := pool(shuffled(c.Pages, c.Seed))
	common := free.take(prefix / c.Page)
	for range n {
		c.Sequences = append(c.Sequences, Sequence{Cached: prefix + suffix - 1, New: 1})
		c.row(slices.Concat(common, free.take(own)), prefix+suffix)
	}
	return c
}

// Levels is a decoding step of as many sequences as groups[0]: all share a prefix, and
// behind it every groups[1] of them another one, and so on, each prefix as long (a multiple
// of the page size), before suffixes of their own, the new token among them. Each number
// of groups divides the one before.
func Levels(name string, s Shape, groups []int, prefix, suffix int) *Case {
	if prefix%s.Page != 0 {
		panic("BUG: a prefix that ends inside of a page")
	}
	c := Of(name, s)
	n, own, each := groups[0], ceilDiv(suffix, s.Page), prefix/s.Page
	c.Pages = n*own + spare
	for _, g := range groups {
		c.Pages += n / g * each
	}
	free := pool(shuffled(c.Pages, c.Seed))
	lists := make([][]uint32, n)
	for _, g := range groups {
		var level []uint32
		for i := range lists {
			if i%g == 0 {
				level = free.take(each)
			}
			lists[i] = append(lists[i], level...)
		}
	}
	tokens := len(groups)*prefix + suffix
	for _, list := range lists {
		c.Sequences = append(c.Sequences, Sequence{Cached: tokens - 1, New: 1})
		c.row(append(list, free.take(own)...), tokens)
	}
	return c
}

// Selected is one decoding sequence of which every KV head attends to a budget of
// pages of its own choice, the last page always among them.
func Selected(name string, s Shape, length, budget int) *Case {
	c := Of(name, s)
	all := ceilDiv(length, c.Page)
	c.PerHead, c.Pages = true, all+spare
	table := shuffled(c.Pages, c.Seed)[:all]
	last := length - (all-1)*c.Page
	tokens := (budget-1)*c.Page + last
	c.Sequences = []Sequence{{Cached: tokens - 1, New: 1}}
	c.selected = &kv.Sequence{Pages: table, Cached: length - 1, New: 1}
	for h := range c.KVHeads {
		chosen := shuffled(all-1, c.Seed+uint64(h)+1)[:budget-1]
		slices.Sort(chosen)
		c.selected.Select = append(c.selected.Select, ints(chosen))
		var pages []uint32
		for _, i := range chosen {
			pages = append(pages, table[i])
		}
		c.row(append(pages, table[all-1]), tokens)
	}
	return c
}

// beyondL2 is how many bytes of keys and values all layers of a timed case hold at
// the least: 8 times an H200's L2 cache of 60 MiB.
const beyondL2 = 480 << 20

// timed makes PyTorch time a case, and gives it enough layers for that.
func timed(c *Case) *Case {
	c.Time = true
	return c.streamed()
}

// streamed sets the layers to a power of two, so that kernels are shared by cases.
func (c *Case) streamed() *Case {
	for c.Layers = 2; int64(c.Layers)*c.UniqueBytes() < beyondL2; {
		c.Layers *= 2
	}
	return c
}

func ints(list []uint32) []int {
	out := make([]int, len(list))
	for i, x := range list {
		out[i] = int(x)
	}
	return out
}
