package megakernel

import (
	"cmp"
	"fmt"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// Prefill is the kernel of a prefill step: up to thousands of consecutive tokens of one sequence or of several, whose
// keys and values it appends to the cache, and the token that follows the last one of each, where that is wanted.
// Packed weights, norm gains, embedding and KV cache are those of the decode kernel it is made for.
type Prefill struct {
	Of      *Kernel // the decode kernel
	Options PrefillOptions
	Stages  int // of the ring of tiles
	// Rows of a tile of each matrix, by index (MatrixQKV, …), of the LM head behind the layer's: 0 where that has
	// codes, which are multiplied without tiles.
	Columns [prefillMatrices]int
	Depth   [prefillMatrices]int // columns of a stage of each
	// Parts of the columns of each in which tiles are multiplied side by side (split-K), whose sums are added behind a
	// sync: 1 but of the down projection.
	KParts [prefillMatrices]int
	IR     *ir.Kernel
	Sites  []pipeline.Site // the waits that a launch can be given up at

	stageBytes int
	image      *pipeline.Plan // of a layer in bf16, which the kernel makes of codes; nil where weights are bf16
}

// PrefillOptions are the choices of a Prefill; the zero value of a field means: choose.
type PrefillOptions struct {
	Tokens int // of a step at most; default 512. There is room for a multiple of Padded
	Groups int // consumer warpgroups, of 64 tokens each: 1 or 2; default 2
	// CTAs of a cluster, which share weights, or tokens: 1 or 2; default 2 where CTAs come in pairs and pages have 8
	// tokens
	Cluster int
	// Sequences that a step's tokens are of at most, 1 to 16; default 1. There are logits of the last token of each.
	Sequences int
	// Activations is the format of the inputs of the layers' products: bf16, which "" stands for, or e4m3 with a scale a
	// token, beside weights of e4m3.
	Activations pipeline.Format
	// DownParts is how many parts of its columns the down projection is multiplied in, side by side, and added behind a
	// sync (prefill.GEMM.Parts): a number that divides them into whole stages; default: chosen, 1, 2 or 4.
	DownParts int
}

// coded is whether the inputs of the layers' products are e4m3.
func (o *PrefillOptions) coded() bool { return o.Activations == pipeline.FormatE4M3 }

// of is whose tokens a step has.
func (o *PrefillOptions) of() string {
	if o.several() {
		return fmt.Sprintf("%d sequences", o.Sequences)
	}
	return "one sequence"
}

// apart is whether a cluster's CTAs share tokens: where a step has no second tile of them.
func (o *PrefillOptions) apart() bool {
	return o.Cluster == 2 && o.Tokens <= prefill.Tokens(o.Groups)
}

// Padded is the number of tokens that the kernel works on at once: a step has room for a multiple of it.
func (o *PrefillOptions) Padded() int {
	if o.apart() {
		return prefill.Tokens(o.Groups)
	}
	return prefill.Tokens(o.Groups) * o.Cluster
}

// Names of a prefill kernel's own buffers; BufferPrompt are the step's tokens, BufferPrefillTable the sequence's
// pages in order, BufferChosen the token that follows, BufferLayer the matrices of a layer in bf16 where weights
// have another format.
const (
	BufferPrompt       = "prompt"
	BufferPrefillTable = "page_table"
	BufferChosen       = "chosen"
	BufferLayer        = "layer_bf16"
)

// The matrices of a prefill kernel: those of a layer and the LM head.
const (
	prefillMatrices = layerMatrices + 1
	prefillHead     = layerMatrices
)

// BuildPrefill makes the prefill kernel beside a decode kernel. It refuses what it cannot do yet, by name: attention
// with masks, selected pages or keys that are rotated as they are read.
func BuildPrefill(mk *Kernel, o PrefillOptions) (*Prefill, error) {
	c := &mk.Config
	if o.Tokens == 0 {
		o.Tokens = mediumPrefill
	}
	if o.Groups == 0 {
		o.Groups = 2
	}
	o.Sequences = max(o.Sequences, 1)
	if o.Cluster == 0 {
		o.Cluster = 1
		if mk.Options.SMs%2 == 0 && mk.Options.Page >= attention.PrefillPage {
			o.Cluster = 2
		}
	}
	refuse := func(format string, args ...any) (*Prefill, error) {
		return nil, fmt.Errorf("prefill kernel of %s: %s", c.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Tokens < 1 || o.Tokens > MaxPrefillTokens:
		return refuse("steps of %d tokens, want 1 to %d", o.Tokens, MaxPrefillTokens)
	case o.Groups < 1 || o.Groups > 2 || o.Cluster < 1 || o.Cluster > 2 || mk.Options.SMs%o.Cluster != 0:
		return refuse("%d consumer warpgroups and clusters of %d in a grid of %d CTAs, want 1 or 2 of both, and a multiple",
			o.Groups, o.Cluster, mk.Options.SMs)
	case o.Sequences > MaxPrefillSequences:
		return refuse("steps of %d sequences, want 1 to %d", o.Sequences, MaxPrefillSequences)
	case o.several() && mk.Options.otherHead() != "":
		return refuse("steps of %d sequences with an LM head of %q, want bf16", o.Sequences, mk.Options.otherHead())
	case mk.prefillAttentionLacks() != "":
		return refuse("%s", mk.prefillAttentionLacks())
	case !mk.Options.PackedByRows():
		return refuse("an MLP of %q, want weights packed by rows", mk.Options.MLP)
	case mk.Options.graph():
		return refuse("a graph of kernels, want one kernel")
	case o.Cluster > 1 && mk.Options.Page < attention.PrefillPage:
		return refuse("pages of %d tokens and clusters of %d, want at least %d tokens for clusters", mk.Options.Page,
			o.Cluster, attention.PrefillPage)
	case o.Activations != "" && o.Activations != pipeline.FormatBF16 && !o.coded():
		return refuse("activations in %q, want bf16 or e4m3", o.Activations)
	case o.coded() && mk.Options.otherWeights() != string(pipeline.FormatE4M3):
		return refuse("activations in e4m3 beside weights in %q, want e4m3", cmp.Or(mk.Options.otherWeights(), "bf16"))
	case mk.Options.Fault == FaultTokenScale && !o.coded():
		return refuse("fault %q with activations in bf16, want e4m3", mk.Options.Fault)
	case c.Hidden%32 != 0 || c.Intermediate%32 != 0 || c.Heads*c.HeadDim%32 != 0:
		return refuse("inputs of %d, %d and %d columns, want multiples of 32", c.Hidden, c.Heads*c.HeadDim, c.Intermediate)
	}
	p := &Prefill{Of: mk, Options: o}
	if mk.Options.otherWeights() != "" && !o.coded() {
		p.image = mk.Plan.InBF16()
	}
	if !p.splits(max(o.DownParts, 1)) {
		return refuse("a down projection of %d columns in %d parts, want a multiple of %d", p.matrix(MatrixDown).KPadded,
			o.DownParts, p.DownColumns()*o.DownParts)
	}
	p.choose()
	if p.Stages < 2 {
		return refuse("%d bytes of shared memory hold %d stages of %d, want at least 2", mk.Options.SharedLimit, p.Stages,
			p.stageBytes)
	}
	f := newPrefillFlow(p)
	f.assemble()
	var err error
	p.IR, err = f.k.Finish()
	p.Sites = f.watch.Sites
	return p, err
}

// byHead is whether every head of q and k has a norm of its own.
func (p *Prefill) byHead() bool {
	a := &p.Of.kind().Attn
	return a.QKNorm.Kind != models.NoNorm && !a.QKNormWide
}

// Tokens a step of the kernels beside that of long prompts: smallPrefill, a CTA's tile, is for short prompts, and
// mediumPrefill for prompts beside sequences that decode, whose launches are to be short.
const (
	smallPrefill  = 128
	mediumPrefill = 512
)

// BuildPrefills makes the kernel of steps of tokens tokens, 0 for the default, and beside it those of 512 and of 128
// that have half as many or fewer: their tiles have fewer rows, so that all SMs have some. Steps have as many
// sequences as one of mk, but one where the LM head has codes. activations is of PrefillOptions.
func BuildPrefills(mk *Kernel, tokens int, activations pipeline.Format) (all []*Prefill, err error) {
	tokens = cmp.Or(tokens, mediumPrefill)
	sizes := []int{tokens}
	for _, n := range []int{mediumPrefill, smallPrefill} {
		if tokens >= 2*n {
			sizes = append(sizes, n)
		}
	}
	for _, n := range sizes {
		p, err := BuildPrefill(mk, PrefillOptions{Tokens: n, Sequences: mk.PrefillSequences(), Activations: activations})
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// MaxPrefillSequences is the most sequences of a step: a warp's rows of a tile.
const MaxPrefillSequences = 16

// PrefillSequences is how many sequences a step of BuildPrefills' kernels has at most.
func (mk *Kernel) PrefillSequences() int {
	if mk.Options.otherHead() != "" {
		return 1
	}
	return min(max(mk.Options.Tokens, 1), MaxPrefillSequences)
}

// MaxPrefillTokens bounds the tokens of a step: their rows of every vector lie in device memory.
const MaxPrefillTokens = 4096

// prefillReserve is the shared memory beside the ring of tiles: scratch, mbarriers, and what alignment may take.
const prefillReserve = 2560

// Room is the number of tokens that the step's buffers have rows for.
func (p *Prefill) Room() int {
	return pipeline.CeilDiv(p.Options.Tokens, p.Options.Padded()) * p.Options.Padded()
}

// plan has the places of matrix i as the tensor maps read it.
func (p *Prefill) plan(i int) *pipeline.Plan {
	if p.image != nil && i != prefillHead {
		return p.image
	}
	return p.Of.Plan
}

// matrix is matrix i of plan: of a layer, or the LM head.
func (p *Prefill) matrix(i int) *pipeline.MatrixPlan {
	if i == prefillHead {
		return &p.Of.Plan.Final[0]
	}
	return &p.plan(i).Layer[i]
}

// Scratch is the number of bytes of the image of a layer in bf16 that a step makes of codes; 0 where weights are
// bf16.
func (p *Prefill) Scratch() int64 {
	if p.image == nil {
		return 0
	}
	return p.image.LayerBytes
}

// gemm is the product of matrix i, without its maps.
func (p *Prefill) gemm(i int) *prefill.GEMM {
	m := p.matrix(i)
	var input *prefill.Codes
	if p.coded(i) {
		input = &prefill.Codes{K: m.KPadded, T: p.Room()}
	}
	return &prefill.GEMM{Name: m.Name, Input: input, M: m, Plan: p.plan(i), Final: i == prefillHead,
		Late:    p.plan(i) == p.image,
		Columns: p.Columns[i], Depth: p.Depth[i], Parts: p.KParts[i],
		Groups: p.Options.Groups, Cluster: p.Options.Cluster, Apart: p.Options.apart()}
}
