package cases

import (
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/tasks/attention"
)

// Case is a step's attention over a block-sparse KV cache: case.json.
type Case struct {
	Name    string `json:"name"`
	Seed    uint64 `json:"seed"`
	Heads   int    `json:"heads"`    // query heads
	KVHeads int    `json:"kv_heads"` // a divisor of Heads
	HeadDim int    `json:"head_dim"`
	Page    int    `json:"page"`  // tokens a page
	Pages   int    `json:"pages"` // of a layer of the cache
	KVType  string `json:"kv_dtype"`
	Layers  int    `json:"layers"`

	// ScoreScale times the product of query and key is the logit (base e).
	ScoreScale float64 `json:"score_scale"`
	KVStd      float64 `json:"kv_std"` // of bf16
	// KVScales are what e4m3 elements are multiplied by, [layer][KV head][K, V].
	KVScales []float32 `json:"kv_scales,omitempty"`
	QStd     float64   `json:"q_std"`
	// KeyRounding is how far, relatively, elements of keys and queries are rounded
	// after a transform at read time; 0 where they are used as they lie.
	KeyRounding float64 `json:"key_rounding,omitempty"`

	Sequences []Sequence `json:"sequences"`
	// Block-sparse rows: row s (PerHead: s·KVHeads + h) has the pages
	// Indices[Indptr[s]:Indptr[s+1]], of which the last holds LastPageLen[s] tokens.
	PerHead     bool     `json:"per_head,omitempty"`
	Indptr      []int    `json:"indptr"`
	Indices     []uint32 `json:"indices"`
	LastPageLen []int    `json:"last_page_len"`
	// Rows are the query rows where they are not simply the next tokens; else none.
	Rows []Row `json:"rows,omitempty"`
	// Variants are the layers': layer l has number l modulo how many there are.
	Variants []Variant `json:"variants"`

	Files   Files  `json:"files"`
	OutType string `json:"out_dtype"`
	Outs    []Out  `json:"outs"`
	// Time asks PyTorch for its times.
	Time bool `json:"time,omitempty"`

	selected *kv.Sequence // of Selected, as the planner is given it
}

// Sequence is a sequence of the batch: tokens in the cache, and new ones, whose
// keys and values lie behind them in the cache, and which are the query rows.
type Sequence struct {
	Cached int `json:"cached"`
	New    int `json:"new"`
}

// Tokens is the length with the new tokens.
func (s Sequence) Tokens() int { return s.Cached + s.New }

// Row is a query row: its position, the new tokens of its sequence that it attends
// to (bit i: the i-th), and the first word of its bits in the custom mask.
type Row struct {
	Position int    `json:"position"`
	Tail     uint32 `json:"tail"`
	Mask     int    `json:"mask"`
}

// Variant is what is done beside causal softmax attention.
type Variant struct {
	Name   string `json:"name"`
	Params Params `json:"params"`
}

// Params are a variant's mathematics; zero values are not done. The order is:
// rotation, scale, soft-cap, ALiBi, masks, softmax or sigmoid.
type Params struct {
	Window    int       `json:"window,omitempty"`     // keys at positions > q − Window are seen,
	Sinks     int       `json:"sinks,omitempty"`      // and those at positions < Sinks
	SoftCap   float64   `json:"softcap,omitempty"`    // c·tanh(logit/c)
	ALiBi     []float32 `json:"alibi,omitempty"`      // slope of each head: logit + slope·(k − q)
	Mask      bool      `json:"mask,omitempty"`       // Files.Mask: bit k of a row's bits: the key at position k is seen
	Sigmoid   *Sigmoid  `json:"sigmoid,omitempty"`    // weights are sigmoids of the logits, their sum is not 1
	Rope      *Rope     `json:"rope,omitempty"`       // keys and queries are rotated when read
	HeadScale []float32 `json:"head_scale,omitempty"` // of each query head, times ScoreScale
}

// Sigmoid attention's bias is added to the logit.
type Sigmoid struct {
	Bias float64 `json:"bias"`
}

// Rope is a rotary embedding at read time, of keys and queries: by their positions,
// or, with a window, by their places among the keys that it leaves when the step
// begins (StreamingLLM): sinks by their positions, others by theirs less max(0,
// cached + 1 − Window − Sinks).
type Rope struct {
	InvFreq []float32 `json:"inv_freq"` // [HeadDim/2]
}

// Files are beside case.json.
type Files struct {
	Q    string `json:"q"`
	KV   string `json:"kv,omitempty"` // all layers; absent: the generator's
	Mask string `json:"mask,omitempty"`
}

// Out is what a kernel made of a layer, [row][head][dimension].
type Out struct {
	Layer int    `json:"layer"`
	File  string `json:"file"`
}

// Shape is the model's side of a case.
type Shape struct {
	Heads, KVHeads, HeadDim int
	Page                    int
}

// Llama8B is the attention of Llama 3 8B in pages of 16 tokens.
func Llama8B() Shape { return Shape{Heads: 32, KVHeads: 8, HeadDim: 128, Page: 16} }

// spread is the standard deviation of the logits. With a sharper softmax few tokens
// have a weight that shows beside the rounding of the others; with a flatter one
// partial states are alike, and a wrong weight in their merge would not show.
const spread = 1

// Of is the case of a shape without sequences, decoding causally, its queries
// scaled beforehand so that the logit to the base 2 is their product with the key.
func Of(name string, s Shape) *Case {
	return &Case{Name: name, Seed: 1, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim, Page: s.Page, KVType: "bf16",
		Layers: 1, ScoreScale: math.Ln2, KVStd: 1, QStd: spread / math.Sqrt(float64(s.HeadDim)) * math.Log2E,
		Indptr: []int{0}, Variants: []Variant{{Name: "causal"}}, Files: Files{Q: "q.bf16"}, OutType: "f32", Outs: []Out{}}
}

// E4M3 stores keys and values in float8.
func (c *Case) E4M3() *Case {
	c.KVType = string(attention.KVE4M3)
	return c
}

// Scales are those of e4m3, [layer][KV head][K, V], all around different, from 0.5 to
// below 1; none in bf16.
func (c *Case) Scales() (all []float32) {
	if c.ElementBytes() != 1 {
		return nil
	}
	for l := range c.Layers {
		for h := range 2 * c.KVHeads {
			all = append(all, 0.5+float32((5*l+3*h)%8)/16)
		}
	}
	return all
}

// Unscaled leaves the queries as a model has them: the kernel scales them.
func (c *Case) Unscaled() *Case {
	c.QStd, c.ScoreScale = spread, 1/math.Sqrt(float64(c.HeadDim))
	return c
}

// Layout is that of the cache.
func (c *Case) Layout() attention.KVLayout {
	return attention.KVLayout{Layers: c.Layers, Heads: c.KVHeads, D: c.HeadDim, Page: c.Page,
		Type: attention.KVType(c.KVType)}
}

// T is the number of query rows.
func (c *Case) T() int {
	n := 0
	for _, s := range c.Sequences {
		n += s.New
	}
	return n
}

// LayerBytes is the size of a layer of the cache.
func (c *Case) LayerBytes() int64 { return int64(c.Pages) * int64(c.Layout().PageBytes()) }

// ElementBytes is the size of an element of the cache.
func (c *Case) ElementBytes() int64 { return int64(c.Layout().TokenBytes() / (2 * c.HeadDim)) }

// TokenBytes is what the keys and values of one token take in one layer.
func (c *Case) TokenBytes() int64 { return int64(c.KVHeads * c.Layout().TokenBytes()) }

// KVBytes is the valid keys and values of a layer, each once for every sequence
// that attends to it.
func (c *Case) KVBytes() int64 {
	n := int64(0)
	for _, s := range c.Sequences {
		n += int64(s.Tokens())
	}
	return n * c.TokenBytes()
}

// UniqueBytes is the valid keys and values of a layer, each once: what must be
// read at the least.
func (c *Case) UniqueBytes() int64 {
	heads := 1
	if c.PerHead {
		heads = c.KVHeads
	}
	total := int64(0)
	for h := range heads {
		most := map[uint32]int{} // tokens of a page that somebody attends to
		for r := h; r+1 < len(c.Indptr); r += heads {
			row := c.Indices[c.Indptr[r]:c.Indptr[r+1]]
			for i, page := range row {
				n := c.Page
				if i == len(row)-1 {
					n = c.LastPageLen[r]
				}
				most[page] = max(most[page], n)
			}
		}
		for _, n := range most {
			total += int64(n)
		}
	}
	return total * c.TokenBytes() / int64(heads)
}

// row appends a block-sparse row of tokens over these pages.
func (c *Case) row(pages []uint32, tokens int) {
	if want := ceilDiv(tokens, c.Page); len(pages) != want {
		panic(fmt.Sprintf("BUG: %d pages for %d tokens, want %d", len(pages), tokens, want))
	}
	c.Indices = append(c.Indices, pages...)
	c.Indptr = append(c.Indptr, len(c.Indices))
	c.LastPageLen = append(c.LastPageLen, tokens-(len(pages)-1)*c.Page)
}

// PagesOf is block-sparse row r.
func (c *Case) PagesOf(r int) []uint32 { return slices.Clone(c.Indices[c.Indptr[r]:c.Indptr[r+1]]) }

func ceilDiv(a, b int) int { return (a + b - 1) / b }
