package megakernel

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/mkgen/mkgen/tasks/attention"
)

// KVType is a format of the KV cache's elements, for callers that know no templates.
type KVType = attention.KVType

// Options are the choices a kernel is generated for beside the model. The zero
// value of a field means: choose. What flags, records, profiles and the search say of a field is
// its row in OptionTable; its tag is its name in files, "-" in none.
type Options struct {
	SMs int `json:"sms,omitempty"` // CTAs of the grid, one an SM; default 132
	// query rows of a step at most, 1 to 16; default 1, which is one sequence, a token at a time
	Tokens int `json:"tokens,omitempty"`
	Page   int `json:"page,omitempty"` // tokens a KV page, a power of two; default 16
	// parts the KV cache is split into; default: as many as fill the SMs, but two thirds of what is above 16,
	// and 16 for short windows
	Splits     int `json:"splits,omitempty"`
	Stages     int `json:"stages,omitempty"`      // ring depth; default: as many as fit
	StageBytes int `json:"stage_bytes,omitempty"` // bytes a stage; default chosen by the planner
	// Unsplit is up to how many cached tokens one SM works on all of a KV head, so that no partial states meet; with one
	// row, LL packets for Merge and several splits only. Default two blocks of 16 tokens a consumer warp, 256 of 8 warps,
	// but at most 128 KiB of a KV head's K and V. UnsplitNone is never.
	Unsplit int `json:"unsplit,omitempty"`
	// bulk copies outstanding; default 3, or 4 of one row where every product is long
	InFlight int `json:"in_flight,omitempty"`

	// Leads is how many copies are outstanding at most while the consumers are that many
	// chunks behind their producer, as pipeline.ParseThrottles reads it: "4:2" is 2 from 4
	// chunks on. "none" is no bound but InFlight.
	Leads string `json:"leads,omitempty"`

	// Held is how many chunks of a product, up to 8, consumers take out of the ring into
	// registers while they wait for the product's input; with one row only. Default 4, or
	// 5 with 4 copies and leads; with large stages or few warps fewer, and none where a
	// thread has few registers. HeldNone is none.
	Held int `json:"held,omitempty"`

	Consumers int `json:"consumers,omitempty"` // consumer warps, 1 to 31; 0: see defaultConsumers

	// KV is the format of the KV cache's elements; default bf16. e4m3 takes half the
	// room and the time to read, and adds an error, see docs/numerics.md.
	KV attention.KVType `json:"kv,omitempty"`

	// Weights is the format of the layers' matrices; default bf16. Weights that come in more bits
	// are rounded to it, see docs/weight-formats.md. The embedding stays bf16.
	Weights pipeline.Format `json:"weight_format,omitempty"`
	// Head is the format of the LM head; default bf16. With tied embeddings the head has another image then than the
	// embedding, which stays bf16.
	Head pipeline.Format `json:"head_format,omitempty"`

	// Attention is the layers' attention; empty is plain causal attention. Terms with +
	// between them make one: window=N (the last N tokens), with sinks=N (and the first
	// N), streaming=N (such a window whose keys are rotated as they are read, by their
	// place in it), softcap=X, alibi, sigmoid=X (no softmax; X is added to logits),
	// head-scale (a factor for each query head, BufferHeadScales), mask (the host's bits,
	// BufferMask; with several rows only), causal (none of these). Several with / between
	// them are taken by the layers in turn: "window=1024/causal".
	Attention string `json:"attention,omitempty"`
	// Selection is whether sequences may select, for each KV head, the pages that they
	// attend to, in the layers without a window; with several rows only.
	Selection bool `json:"selection,omitempty"`
	// Draws is whether rows may draw their tokens, each as BufferDraws says; without, a row takes
	// its highest logit. Not with LaunchGraph.
	Draws bool `json:"draws,omitempty"`

	// SharedLimit is the shared memory a CTA may use; default 232448 bytes, what
	// sm_90 offers a block that opts in.
	SharedLimit int `json:"-"`

	// Watchdog is which waits the host can make the kernel give up.
	Watchdog Watchdog `json:"watchdog,omitempty"`

	// Queries is how queries reach attention, and the token's own key and value; with one
	// row only: behind a barrier with several. What Queries, Vectors and Merge leave open is
	// chosen by what it costs on an H200; ForMachine chooses for another GPU.
	Queries Sync `json:"queries,omitempty"`
	// Vectors is how the output vectors of attention, o and down reach the next phase, and
	// with VectorsAll that of gate_up: one of VectorWays, with several rows SyncBarrier only.
	// With MLPFused down has none.
	Vectors string `json:"vectors,omitempty"`
	// Merge is where the partial states of a step's attention are merged; with one row
	// only: where there are several, the plan of a launch says.
	Merge Merging `json:"merge,omitempty"`

	// MLP is how the MLP's down projection gets its input; default rows.
	MLP MLP `json:"mlp,omitempty"`

	// Launch is how a step is launched; default single. Resident is how many kernels of a
	// graph fit side by side on an SM, 1 to 4, by shared memory and registers: default 2.
	// Dependents is when one lets the next one start; default at once. GraphSteps is how
	// many steps a launch of the graph makes where that many are wanted, 1 to 64; default 1.
	Launch     Launching  `json:"launch,omitempty" absent:"single"`
	GraphSteps int        `json:"graph_steps,omitempty"`
	Resident   int        `json:"resident,omitempty"`
	Dependents Dependents `json:"dependents,omitempty"`

	// Trace is how many spans a role of a CTA can note of what it does, and when, in a
	// launch; 0, the default, generates a kernel that notes nothing.
	Trace int `json:"-"`

	// Probe generates a kernel that also stores, for every layer of its last step, the residual
	// vector behind attention and behind the MLP and attention's output (BufferProbeResidual,
	// BufferProbeAttention), so that a host can check each layer on its own. With one row only.
	Probe bool `json:"-"`

	// Fault plants a mistake, so that a check can show that it would catch one.
	Fault Fault `json:"-"`
}

// HeldNone is the Options.Held of a kernel that holds no chunks.
const HeldNone = -1

// The defaults of Options.
const (
	DefaultSMs         = 132
	DefaultPage        = 16
	DefaultConsumers   = 8
	DefaultSharedLimit = 232448
)

const (
	maxSMs       = 1024
	maxConsumers = 31 // warps; a CTA has a producer beside them
)

// With a producer beside them 8 to 11 consumer warps leave a thread 168
// registers (8 of several rows 224: registers.go), up to 7 leave it 255. Attention's
// fragments of wider heads (192 to 256, nvcc 13) spill in 168.
const widestHeadOf8Warps = 176

// Two kernels side by side leave a thread 128 registers with 7 consumer warps, as each
// of an SM's four parts has four warps then; with 8 one of them has five or six.
const graphConsumers = 7

// Codes of E2M1 take one row's products most of the time that an SM has. 12 warps, three beside each other in each of
// an SM's four parts, fill it best, though they leave a thread 128 registers and nothing is held in them.
const floatConsumers = 12

func (o *Options) defaultConsumers(c *models.Config) int {
	switch {
	case c.HeadDim > widestHeadOf8Warps:
		return DefaultConsumers - 1
	case o.Tokens == 1 && o.Weights.E2M1():
		return floatConsumers
	}
	return DefaultConsumers
}

// OptionError is an option that no kernel can have, whatever the model.
type OptionError struct {
	Option  string // name of the field of Options
	Problem string // what was found and what is wanted
}

func (e *OptionError) Error() string { return "options: " + e.Problem }

func refuse(option, format string, args ...any) error {
	return &OptionError{option, fmt.Sprintf(format, args...)}
}

// complete fills in what was left open and refuses what no kernel can have.
func (o Options) complete(c *models.Config) (Options, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.SMs, DefaultSMs)
	def(&o.Tokens, 1)
	def(&o.Page, DefaultPage)
	if o.graph() {
		def(&o.Consumers, graphConsumers)
	}
	def(&o.Consumers, o.defaultConsumers(c))
	def(&o.SharedLimit, DefaultSharedLimit)
	if o.SMs < 1 || o.SMs > maxSMs {
		return o, refuse("SMs", "%d SMs, want 1 to %d", o.SMs, maxSMs)
	}
	if o.Tokens < 1 || o.Tokens > kv.MaxRows {
		return o, refuse("Tokens", "%d tokens a step, want 1 to %d", o.Tokens, kv.MaxRows)
	}
	if o.Page < 1 || o.Page > 1024 || o.Page&(o.Page-1) != 0 {
		return o, refuse("Page", "page size %d, want a power of two from 1 to 1024", o.Page)
	}
	if o.Consumers < 1 || o.Consumers > maxConsumers {
		return o, refuse("Consumers", "%d consumer warps, want 1 to %d", o.Consumers, maxConsumers)
	}
	if o.KV == "" {
		o.KV = attention.KVBF16
	}
	if !slices.Contains(attention.KVTypes(), o.KV) {
		return o, refuse("KV", "a KV cache in %q, want bf16 or e4m3", string(o.KV))
	}
	if err := o.completeFormats(); err != nil {
		return o, err
	}
	if err := o.completeAttention(c); err != nil {
		return o, err
	}
	if o.Watchdog == "" {
		o.Watchdog = WatchGrid
	}
	if !slices.Contains(Watchdogs(), o.Watchdog) {
		return o, refuse("Watchdog", "found %q, want grid, all or none", string(o.Watchdog))
	}
	if err := o.completeArch(c); err != nil {
		return o, err
	}
	if o.Queries == "" || o.Merge == "" || o.Vectors == "" {
		o = o.ForMachine(*c, machine.H200())
	}
	o.completeSyncs()
	if !slices.Contains(Mergings(), o.Merge) {
		return o, refuse("Merge", "found %q, want %s", string(o.Merge), plural.Or(Mergings()))
	}
	if o.Merge != MergePhase && o.Tokens > 1 {
		return o, refuse("Merge",
			"%q with %d query rows a step, where a launch's plan says where states are merged; want one row", string(o.Merge),
			o.Tokens)
	}
	if _, err := pipeline.ParseThrottles(o.Leads); err != nil {
		return o, refuse("Leads", "%s", err)
	}
	if !slices.Contains(Syncs(), o.Queries) {
		return o, refuse("Queries", "found %q, want %s", string(o.Queries), plural.Or(Syncs()))
	}
	if o.Queries != SyncBarrier && o.Tokens > 1 {
		return o, refuse("Queries", "%q with %d query rows a step, want one row", string(o.Queries), o.Tokens)
	}
	if err := o.completeVectors(c); err != nil {
		return o, err
	}
	if o.Trace < 0 || o.Trace > maxTrace {
		return o, refuse("Trace", "%d spans a role, want none or up to %d", o.Trace, maxTrace)
	}
	if o.Trace > 0 && c.Layers > pipeline.MaxTraceLayers {
		return o, refuse("Trace", "a trace of %d layers, want at most %d", c.Layers, pipeline.MaxTraceLayers)
	}
	if all := slices.Concat(Faults(), LocalFaults()); !slices.Contains(slices.Concat(all, Hangs(), featureFaults(c, &o),
		[]Fault{NoFault, FaultAttention, FaultTokenScale}), o.Fault) {
		return o, refuse("Fault", "fault %q, want %s", o.Fault, plural.Or(all))
	}
	if err := o.completeMLP(); err != nil {
		return o, err
	}
	if err := o.completeLaunch(); err != nil {
		return o, err
	}
	if err := o.checkProbe(); err != nil {
		return o, err
	}
	if err := o.completeHeld(); err != nil {
		return o, err
	}
	fill := o.SMs / attentionOf(c, &o).Items()
	if o.blockEach() {
		fill = min(fill, fewSplits)
	}
	def(&o.Splits, defaultSplits(fill))
	if o.Splits < 1 || o.Splits > maxSplits {
		return o, refuse("Splits", "%d KV splits, want 1 to %d", o.Splits, maxSplits)
	}
	return o, o.completeUnsplit(c)
}

// completeSyncs chooses those around attention where a step has several rows: a barrier
// precedes attention, and the plan of a launch says where states are merged; and in a graph
// of kernels, which has none to take tags from.
func (o *Options) completeSyncs() {
	o.Queries, o.Merge = cmp.Or(o.Queries, SyncBarrier), cmp.Or(o.Merge, MergePhase)
}

// statesInWords is whether partial states of the one row carry tags.
func (o *Options) statesInWords() bool {
	return o.Merge == MergeWords
}

// completeAttention brings Attention into its one form, the model's own where none is named, and refuses what cannot
// be.
func (o *Options) completeAttention(c *models.Config) error {
	own := ownAttention(c)
	specs, pattern, err := parseAttention(cmp.Or(o.Attention, own), c.Layers)
	if err != nil {
		return refuse("Attention", "%s", err)
	}
	if o.Attention = attentionText(specs, pattern); o.Attention == "" && own != "" {
		o.Attention = termCausal // and not its own
	}
	if a := c.Arch(); slices.ContainsFunc(specs, func(s attentionSpec) bool { return s.has(termStreaming) }) {
		if list, _ := ropesOf(&a); len(list) > 1 || list[0].Factor() != 1 || a.Layer(0).Attn.Grows.Every > 0 ||
			a.Layer(0).Attn.QKNorm.Kind != models.NoNorm && o.Tokens == 1 {
			return refuse("Attention",
				"streaming in %q of a model whose rotary embeddings differ by layer, have a factor or come behind a norm, or whose scores grow; want another kind of attention", o.Attention)
		}
	}
	if o.Tokens > 1 {
		return nil
	}
	if slices.ContainsFunc(specs, func(s attentionSpec) bool { return s.has(termMask) }) {
		return refuse("Attention", "mask in %q, but steps of one row, which have none; want several", o.Attention)
	}
	if o.Selection {
		return refuse("Selection", "selected pages, but steps of one row, which have none; want several")
	}
	return nil
}

// maxTrace keeps the spans of a trace of maxSMs SMs countable in 32 bits.
const maxTrace = 1 << 20

// defaultSplits is how many parts the KV cache is split into where fill times as many items as there are would
// occupy all SMs: all of them up to fewSplits, two thirds of what is more. An SM that merges reads the state of every
// split, which costs a layer more than idle SMs do (docs/RATIONALE.md).
func defaultSplits(fill int) int {
	return min(max(1, min(fill, fewSplits), fill*2/3), maxSplits)
}

// fewSplits is how many parts the KV cache has by default where they do not fill the SMs.
const fewSplits = 16

// blockEach is whether most layers have a window of which fewSplits parts are one block of 16 tokens a consumer warp at
// most: more parts would make no part shorter, since a warp takes a block at a time, and only the merge longer.
func (o *Options) blockEach() bool {
	specs, pattern, err := parseAttention(o.Attention, math.MaxInt)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	short := 0
	for _, class := range pattern {
		if w, _ := specs[class].window(); w > 0 && w <= fewSplits*16*o.Consumers {
			short++
		}
	}
	return 2*short > len(pattern)
}

// maxSplits bounds the partial states one merge reads at once.
const maxSplits = 128

// maxPositions bounds the positions for which attention.QKV reduces angles exactly.
const maxPositions = 1 << 20

// attentionOf is the attention template's shape with one split, to count items by.
func attentionOf(c *models.Config, o *Options) *attention.Attention {
	return &attention.Attention{Heads: c.Heads, KV: kvLayout(c, o), Splits: 1}
}

func kvLayout(c *models.Config, o *Options) attention.KVLayout {
	a := c.Arch()
	return attention.KVLayout{Layers: c.Layers, Heads: c.KVHeads, D: c.HeadDim, Page: o.Page, Type: o.KV,
		Rotary: rotary(&a)}
}

// AttentionItems is the number of times one split's share of a layer's KV of one
// head is read in a step, over all heads: once a head, and more often where a
// head serves more than 16 query heads.
func (mk *Kernel) AttentionItems() int { return attentionOf(&mk.Config, &mk.Options).Items() }
