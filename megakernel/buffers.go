package megakernel

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// buffers are the kernel's arrays in device memory, in the order of the params
// block, and its scalars.
type buffers struct {
	prefill bool // they are a prefill kernel's
	weights dsl.Buf[dsl.B128]
	embed   dsl.Buf[dsl.BF16] // absent where the LM head is the same matrix
	gains   dsl.Buf[dsl.BF16]
	invFreq dsl.Buf[dsl.F32]
	featureBuffers
	plan   dsl.Buf[dsl.U32]
	table  dsl.Buf[dsl.U32] // one row a step only
	kv     dsl.Buf[dsl.B128]
	work                    // several rows a step only
	hooked                  // attention that is not plain only
	scales dsl.Buf[dsl.F32] // of kv, absent where it has none

	x             dsl.Buf[dsl.F32]
	q             dsl.Buf[dsl.BF16] // without SyncWords of queries
	qWords        dsl.Buf[dsl.B128] // with them
	kvWords       dsl.Buf[dsl.B128]
	states        dsl.Buf[dsl.B128]
	attn, act     dsl.Buf[dsl.BF16]
	mid           dsl.Buf[dsl.F32] // with MLPFused, which has no act
	turn          dsl.Buf[dsl.U32] // the same
	logits        dsl.Buf[dsl.F32]
	best          dsl.Buf[dsl.F32]
	bestIndex     dsl.Buf[dsl.U32]
	tokens        dsl.Buf[dsl.U32]
	ends          dsl.Buf[dsl.U32]
	stop          dsl.Buf[dsl.U32]
	stopRequested dsl.Buf[dsl.U32]
	progress      dsl.Buf[dsl.U32]
	stream        dsl.Buf[dsl.U32]
	times         dsl.Buf[dsl.U32]
	abort         dsl.Buf[dsl.U32]
	records       dsl.Buf[dsl.U32]
	epoch         dsl.Buf[dsl.U32]
	barrier       dsl.Buf[dsl.U32]
	pos, steps    dsl.Val[dsl.U32]
	known         dsl.Val[dsl.U32]
	pages         dsl.Val[dsl.U32]

	vectorWords  // of vectors that are passed in LL packets
	probeBuffers // with Options.Probe only
	chainBuffers // of a graph of kernels only
	drawing      // not of a graph
}

func (mk *Kernel) declare(k *dsl.Kernel) *buffers {
	c, o, ro := &mk.Config, &mk.Options, dsl.ReadOnly()
	qRows := c.Heads * c.HeadDim
	b := &buffers{
		weights: dsl.Global[dsl.B128](k, "weights", mk.Plan.PackedBytes/16, ro, bufDoc("packed matrices, see the layout")),
		embed:   mk.declareEmbed(k),
		gains:   mk.declareGains(k),
	}
	mk.declareFeatures(k, b)
	b.plan = dsl.Global[dsl.U32](k, "plan", elements(o.SMs, planWords), ro,
		bufDoc("[%d][%d] what each SM owns", o.SMs, planWords))
	if mk.Ragged() {
		mk.declareWork(k, b)
	} else {
		b.table = dsl.Global[dsl.U32](k, "page_table", 0, ro, bufDoc("page of tokens %d·i …, in order", o.Page))
	}
	b.kv = dsl.Global[dsl.B128](k, "kv", 0, dsl.Align(128),
		bufDoc("[%d layers][pages][%d KV heads][%d slots][K, V][%d] %s", c.Layers, c.KVHeads, o.Page, c.HeadDim, o.KV))
	b.scales = mk.declareScales(k)
	mk.declareHooked(k, b)
	if mk.Ragged() {
		mk.declareRows(k, b)
	} else {
		o.mlp().declareX(mk, k, b)
		if o.Queries == SyncWords {
			b.qWords = dsl.Global[dsl.B128](k, BufferQueryWords, elements(qRows/2),
				bufDoc("[%d][%d] packets: elements i and i + %d of rotated, scaled queries, and a flag", c.Heads, c.HeadDim/2,
					c.HeadDim/2))
			b.kvWords = dsl.Global[dsl.B128](k, BufferKVWords, elements(c.KVHeads, c.HeadDim),
				bufDoc("[%d][K, V][%d] packets: a pair of elements of the query token's own key and value, and a flag", c.KVHeads,
					c.HeadDim/2))
		} else {
			b.q = dsl.Global[dsl.BF16](k, "q", elements(qRows), dsl.Align(16),
				bufDoc("[%d][%d] rotated, scaled queries", c.Heads, c.HeadDim))
		}
		b.states = declareStates(k, o.Splits, c.Heads, c.HeadDim)
		if !o.handsOn(phaseAttention) {
			b.attn = dsl.Global[dsl.BF16](k, "attn", elements(qRows), dsl.Align(16),
				bufDoc("[%d][%d] attention output", c.Heads, c.HeadDim))
		}
		mk.declareVectors(k, b)
		o.mlp().declareAct(mk, k, b)
		b.logits = dsl.Global[dsl.F32](k, "logits", elements(c.Vocab), dsl.Align(16), bufDoc("[%d] out", c.Vocab))
		b.best = dsl.Global[dsl.F32](k, "best", elements(o.SMs), bufDoc("[%d] each SM's largest logit", o.SMs))
		b.bestIndex = dsl.Global[dsl.U32](k, "best_index", elements(o.SMs), bufDoc("[%d] and its row", o.SMs))
		b.tokens = dsl.Global[dsl.U32](k, "tokens", 0,
			bufDoc("token at each position; the kernel appends behind the known ones"))
	}
	mk.declareDrawing(k, b)
	mk.declareControl(k, b)
	mk.declareProbe(k, b)
	return b
}

// featureBuffers are there for models that have what they are for.
type featureBuffers struct {
	ropeFactors     dsl.Buf[dsl.F32]
	biases, qkGains dsl.Buf[dsl.BF16]
	rawQK, qkSums   dsl.Buf[dsl.B128]
}

func (mk *Kernel) declareGains(k *dsl.Kernel) dsl.Buf[dsl.BF16] {
	n, what := mk.finalGain()+1, "attention and MLP of each layer"
	if mk.kept() {
		what = fmt.Sprintf("%d of each layer", len(mk.NormRoles()))
	}
	return dsl.Global[dsl.BF16](k, "gains", elements(n, mk.Config.Hidden), dsl.ReadOnly(), dsl.Align(16),
		bufDoc("[%d][%d] norm gains: %s, then the final one", n, mk.Config.Hidden, what))
}

// declareControl declares what host and kernel tell each other, and the scalars.
func (mk *Kernel) declareControl(k *dsl.Kernel, b *buffers) {
	o := &mk.Options
	progress, stream := "out: the position behind the last finished step",
		"out: each chosen token at its position, as it comes; as long as tokens"
	times := "out: when that was, nanoseconds of the GPU's clock, low word; as long as tokens"
	if mk.Ragged() {
		progress, stream = "out: steps finished", fmt.Sprintf("out: [steps][%d] each row's chosen token, as it comes",
			o.Tokens)
		times = "out: [steps] when that was, nanoseconds of the GPU's clock, low word"
	}
	b.ends = dsl.Global[dsl.U32](k, "ends", MaxEnds, dsl.ReadOnly(),
		bufDoc("tokens that end the text; unused entries are no token"))
	b.stop = dsl.Global[dsl.U32](k, "stop", 1, dsl.HostWrites(), bufDoc("not 0: the launch ends after the running step"))
	b.stopRequested = dsl.Global[dsl.U32](k, "stop_requested", 2, bufDoc("stop as CTA 0 saw it, for even and odd steps"))
	b.progress = dsl.Global[dsl.U32](k, "progress", 1, dsl.HostReads(), bufDoc("%s", progress))
	b.stream = dsl.Global[dsl.U32](k, "stream", 0, dsl.HostReads(), bufDoc("%s", stream))
	b.times = dsl.Global[dsl.U32](k, "times", 0, dsl.HostReads(), bufDoc("%s", times))
	b.abort = dsl.Global[dsl.U32](k, "abort", pipeline.AbortWords, dsl.HostWrites(),
		bufDoc("not 0: give the launch up; the second word: for copies in flight too"))
	b.records = dsl.Global[dsl.U32](k, "records", elements(o.SMs, o.warps(), pipeline.RecordWords),
		bufDoc("[%d][%d][%d] what each warp waited for when it gave up; 0 before a launch", o.SMs, o.warps(),
			pipeline.RecordWords))
	b.epoch = dsl.Global[dsl.U32](k, "epoch", 1, bufDoc("value of barrier when a launch begins; kept by the kernel"))
	b.barrier = dsl.Global[dsl.U32](k, "barrier", 1,
		bufDoc("arrivals at the grid barrier since it was zeroed, modulo 2^32"))
	if mk.Options.graph() {
		mk.declareChain(k, b)
		return
	}
	if mk.Ragged() {
		b.count = dsl.Scalar[dsl.U32](k, ScalarRows, fmt.Sprintf("query rows of every step, 1 to %d", o.Tokens))
		b.chooses = dsl.Scalar[dsl.U32](k, ScalarChooses,
			"0: the only step ends behind its last layer, without logits; else 1")
	} else {
		b.pos = dsl.Scalar[dsl.U32](k, ScalarPos, "position of the first step; the cache holds tokens 0 … pos-1")
	}
	b.steps = dsl.Scalar[dsl.U32](k, ScalarSteps, "steps to run at most, at least 1")
	if !mk.Ragged() {
		b.known = dsl.Scalar[dsl.U32](k, ScalarKnown,
			"tokens known at launch, at least pos+1; behind them the kernel chooses")
	}
	b.pages = dsl.Scalar[dsl.U32](k, ScalarPages, "pages a layer in kv")
}

// elements is the number of elements of an array of these dimensions.
func elements(dims ...int) int64 {
	p := int64(1)
	for _, d := range dims {
		p *= int64(d)
	}
	return p
}

// declareEmbed is the embedding matrix, or nothing where the LM head is the same.
func (mk *Kernel) declareEmbed(k *dsl.Kernel) (b dsl.Buf[dsl.BF16]) {
	c := &mk.Config
	if mk.OwnEmbedding() {
		b = dsl.Global[dsl.BF16](k, BufferEmbed, int64(c.Vocab)*int64(c.Hidden), dsl.ReadOnly(),
			bufDoc("[%d][%d] token embeddings", c.Vocab, c.Hidden))
	}
	return b
}

// OwnEmbedding is whether there is a buffer of token embeddings.
func (mk *Kernel) OwnEmbedding() bool {
	return !mk.Config.TieEmbeddings || mk.OwnHead()
}

// OwnHead is whether the LM head has an image of its own although its embedding is tied to it: in a format that is not
// bf16. Rounded then has it under the name of models.RoleHead.
func (mk *Kernel) OwnHead() bool { return mk.Config.TieEmbeddings && mk.Options.otherHead() != "" }

// BufferStates is the buffer of attention's partial states. Their flags come again after
// 2³¹ arrivals at the counter: with HasTags the host zeroes it in time for packets
// that are not written as often.
const BufferStates = "states"

// The buffers of queries, and of the token's own key and value, with SyncWords.
const (
	BufferQueryWords = "query_words"
	BufferKVWords    = "kv_words"
)

// declareStates declares n partial states of heads heads of d elements.
func declareStates(k *dsl.Kernel, n, heads, d int) dsl.Buf[dsl.B128] {
	return dsl.Global[dsl.B128](k, BufferStates, elements(n, attention.StatePackets(heads, d)),
		bufDoc("[%d][%d][%d] partial states of attention: packets of two elements of the output, the log-sum-exp of all, base 2, and a flag", n, heads, d/2))
}

// HasTags is whether partial states are passed on in LL packets.
func (mk *Kernel) HasTags() bool { return mk.Ragged() || mk.Options.statesInWords() }

// Zeroed are the buffers that must be 0 before the first launch and after one that was
// given up.
func (mk *Kernel) Zeroed() (names []string) {
	if mk.HasTags() {
		names = append(names, BufferStates)
	}
	if mk.Options.Queries == SyncWords {
		names = append(names, BufferQueryWords, BufferKVWords)
		if mk.kind().Attn.QKNormWide {
			names = append(names, BufferQKSums)
		}
	}
	for _, phase := range mk.Options.packetPhases() {
		names = append(names, BufferWords(phase))
	}
	names = append(names, mk.Options.mlp().carried()...)
	if mk.Options.graph() {
		names = append(names, BufferFinished)
	}
	return names
}

// declareScales is what the cache's elements are multiplied by, or nothing where
// they count as they are.
func (mk *Kernel) declareScales(k *dsl.Kernel) (b dsl.Buf[dsl.F32]) {
	l := mk.KV
	if n := l.ScalesLen(); n > 0 {
		b = dsl.Global[dsl.F32](k, BufferKVScales, int64(n), dsl.ReadOnly(),
			bufDoc("[%d layers][%d KV heads][K, V] what elements of kv are to be multiplied by", l.Layers, l.Heads))
	}
	return b
}

// BufferKVScales is the buffer of the KV cache's scales, f32, positive and finite:
// an element of kv times its layer's and head's scale of K or of V is what it
// stands for. It does not exist where the cache is bf16.
const BufferKVScales = "kv_scales"

// KVScales are the scales that a cache has unless it is given others: 1 for all.
// It is empty where the cache has none.
func (mk *Kernel) KVScales() []float32 { return slices.Repeat([]float32{1}, mk.KV.ScalesLen()) }

// BufferEmbed is the buffer of the token embeddings, row-major. It does not exist
// where the LM head is the same matrix (tied embeddings) in bf16: a token's embedding is
// then read out of the packed head.
const BufferEmbed = "embed"

// RecordWords is the length of the buffer "records".
func RecordWords(mk *Kernel) int {
	return mk.Options.SMs * mk.Options.warps() * pipeline.RecordWords
}

// The plan table: a row for each SM, of first tile and count of each matrix
// (the layer's, then the LM head).
const (
	planMatrices = layerMatrices + 1
	planWords    = 2 * planMatrices
)

// PlanTable is the content of the buffer "plan".
func (mk *Kernel) PlanTable() []uint32 {
	p := mk.Plan
	t := make([]uint32, 0, p.SMs*planWords)
	for sm := range p.SMs {
		for i := range planMatrices {
			m := mk.matrix(i)
			t = append(t, uint32(m.First[sm]), uint32(m.Count[sm]))
		}
	}
	return t
}

// shares is this CTA's row of the plan table in shared memory, from where the
// phases read it when they begin, so that it does not occupy registers.
type shares struct{ row dsl.Buf[dsl.U32] }

// fetch copies the row; a CTA barrier must follow.
func (o shares) fetch(e *grid.Env, plan dsl.Buf[dsl.U32]) {
	e.K.If(e.Tid.LtC(planWords), func() {
		o.row.Store(e.Tid, plan.Load(e.CTA.MulC(planWords).Add(e.Tid), dsl.CacheHint(dsl.NonCoherent)))
	})
}

func (o shares) word(i int) dsl.Val[dsl.U32] {
	return dsl.Uniform(o.row.Load(dsl.At(i)), dsl.CTAScope)
}

// matrix is this CTA's share of matrix i of the plan table.
func (o shares) matrix(i int) product.Share {
	return product.Share{First: o.word(2 * i).Named("first_tile"), Count: o.word(2*i + 1).Named("tile_count")}
}
