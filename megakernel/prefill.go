package megakernel

import (
	"fmt"
	"reflect"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
)

// Prefill is the kernel of a prefill step: up to hundreds of consecutive tokens of one sequence, whose keys and values it appends to the
// cache. It makes no logits: a prompt's last token goes through a decode kernel. Packed weights, norm gains, embedding and KV cache are
// those of the decode kernel it is made for.
type Prefill struct {
	Of      *Kernel // the decode kernel
	Options PrefillOptions
	Stages  int    // of the ring of tiles
	Columns [4]int // rows of a tile of each matrix, by index (MatrixQKV, …)
	IR      *ir.Kernel
	Sites   []pipeline.Site // the waits that a launch can be given up at

	stageBytes int
}

// PrefillOptions are the choices of a Prefill; the zero value of a field means: choose.
type PrefillOptions struct {
	Tokens  int // of a step at most; default 512. There is room for a multiple of Padded
	Groups  int // consumer warpgroups, of 64 tokens each: 1 or 2; default 2
	Cluster int // CTAs of a cluster, which share weights: 1 or 2; default 2 where there are tiles for both and CTAs come in pairs
}

// Padded is the number of tokens that the kernel works on at once: a step has room for a multiple of it.
func (o *PrefillOptions) Padded() int { return tasks.PrefillTokens(o.Groups) * o.Cluster }

// Names of a prefill kernel's own buffers; BufferPrompt are the step's tokens, BufferPrefillTable the sequence's pages in order.
const (
	BufferPrompt       = "prompt"
	BufferPrefillTable = "page_table"
)

// BuildPrefill makes the prefill kernel beside a decode kernel. It refuses what it cannot do yet: other models than those of Llama's
// mathematics, weights and caches in other formats than bf16, attention that is not plain.
func BuildPrefill(mk *Kernel, o PrefillOptions) (*Prefill, error) {
	c := &mk.Config
	if o.Tokens == 0 {
		o.Tokens = 512
	}
	if o.Groups == 0 {
		o.Groups = 2
	}
	if o.Cluster == 0 {
		o.Cluster = 1
		if mk.Options.SMs%2 == 0 && o.Tokens > tasks.PrefillTokens(o.Groups) {
			o.Cluster = 2
		}
	}
	refuse := func(format string, args ...any) (*Prefill, error) {
		return nil, fmt.Errorf("prefill kernel of %s: %s", c.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Tokens < 1 || o.Tokens > maxPrefill:
		return refuse("steps of %d tokens, want 1 to %d", o.Tokens, maxPrefill)
	case o.Groups < 1 || o.Groups > 2 || o.Cluster < 1 || o.Cluster > 2 || mk.Options.SMs%o.Cluster != 0:
		return refuse("%d consumer warpgroups and clusters of %d in a grid of %d CTAs, want 1 or 2 of both, and a multiple", o.Groups, o.Cluster, mk.Options.SMs)
	case !reflect.DeepEqual(c.Traits, models.Traits{}) || c.Rope.Scaling != nil && c.Rope.Scaling.Type != models.ScalingLlama3:
		return refuse("the model is of family %q, want the mathematics of Llama", c.Family)
	case mk.Options.otherWeights() != "" || mk.Options.MLP == MLPFused:
		return refuse("weights of format %q, want bf16, packed by rows", mk.Options.Weights)
	case mk.KV.ScalesLen() > 0 || len(mk.classes) != 1 || mk.classes[0] != nil || mk.Options.graph():
		return refuse("a cache of %q and attention %q, want bf16 and plain, in one kernel", mk.Options.KV, mk.Options.Attention)
	case c.Hidden%32 != 0 || c.Intermediate%32 != 0 || c.Heads*c.HeadDim%32 != 0:
		return refuse("inputs of %d, %d and %d columns, want multiples of 32", c.Hidden, c.Heads*c.HeadDim, c.Intermediate)
	}
	p := &Prefill{Of: mk, Options: o}
	p.choose()
	if p.Stages < 2 {
		return refuse("%d bytes of shared memory hold %d stages of %d, want at least 2", mk.Options.SharedLimit, p.Stages, p.stageBytes)
	}
	f := newPrefillFlow(p)
	f.assemble()
	var err error
	p.IR, err = f.k.Finish()
	p.Sites = f.watch.Sites
	return p, err
}

// maxPrefill bounds the tokens of a step: their rows of every vector lie in device memory.
const maxPrefill = 4096

// prefillReserve is the shared memory beside the ring of tiles: scratch, mbarriers, and what alignment may take.
const prefillReserve = 2560

// Room is the number of tokens that the step's buffers have rows for.
func (p *Prefill) Room() int {
	return ceilDiv(p.Options.Tokens, p.Options.Padded()) * p.Options.Padded()
}

// choose plans the tiles: for each matrix the rows of a tile with which the grid is done first, as many as can be; and
// as many stages as fit, 6 at most.
func (p *Prefill) choose() {
	clusters := p.Of.Options.SMs / p.Options.Cluster
	together := p.Room() / p.Options.Padded()
	for i := range layerMatrices {
		rows, best := p.Of.Plan.Layer[i].Rows, 0
		for n := 16; n <= 256; n += 16 {
			if n > 16 && n-16 >= rows {
				break
			}
			// A wave takes as long as the products of a tile, which cost what reading its operands costs at least, and its rest.
			waves := ceilDiv(ceilDiv(rows, n)*together, clusters)
			cost := waves * (max(n, 96) + 16)
			if best == 0 || cost <= best { // larger tiles read less
				best, p.Columns[i] = cost, n
			}
		}
		p.stageBytes = max(p.stageBytes, p.gemm(i).StageBytes())
	}
	p.Stages = min(6, (p.Of.Options.SharedLimit-prefillReserve)/p.stageBytes)
}

// gemm is the product of matrix i, without its maps.
func (p *Prefill) gemm(i int) *tasks.PrefillGEMM {
	m := &p.Of.Plan.Layer[i]
	return &tasks.PrefillGEMM{Name: m.Name, M: m, Plan: p.Of.Plan, Columns: p.Columns[i], Groups: p.Options.Groups, Cluster: p.Options.Cluster}
}
