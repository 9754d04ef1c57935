package megakernel

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// Names of what a prefill kernel has for parts of keys and values: see attention.PrefillSplit.
const (
	BufferPartValues = "part_values"
	BufferPartSums   = "part_sums"
	ScalarPartBlocks = "part_blocks"
)

// OnePart is ScalarPartBlocks of a launch that does not split keys and values.
const OnePart = attention.OnePart

// splitTiles is the number of warpgroups' tiles that there is room for the states of, for each SM.
const splitTiles = 8

// What a tile's part takes for its queries and outputs, a tile that pads the step for its zeros, and a layer for the
// merge, in blocks of keys and values. With 8B on an H200 a block took 1.4 µs and the merge 5 µs, 3.6 blocks
// (docs/RATIONALE.md): a split has to gain a little more than it costs.
const (
	partBlocks  = 1.5
	padBlocks   = 0.5
	mergeBlocks = 5
)

// mostParts is the most parts that Split makes: a thread merges them one after the other.
const mostParts = 16

// Sequence is how many tokens of a sequence a step has, and how many are cached before them.
type Sequence struct{ New, Cached int }

// clusters returns how many work on attention.
func (p *Prefill) clusters() int { return p.Of.Options.SMs / p.Options.Cluster }

// States returns the number of rows of states that there is room for. All prefill kernels of a decode kernel have as
// many.
func (p *Prefill) States() int {
	c := &p.Of.Config
	return pipeline.CeilDiv(splitTiles*p.Of.Options.SMs, c.KVHeads) * (prefill.GroupRows / (c.Heads / c.KVHeads))
}

// Split returns the blocks of a part of keys and values with which attention of a step ends first, by a model of how
// its tiles are dealt out; OnePart where parts gain nothing. It follows from the sequences alone.
func (p *Prefill) Split(of []Sequence) int {
	best, longest := OnePart, p.longest(of)
	least, all := p.busiest(of, best)
	if least-all/float64(p.clusters()) <= mergeBlocks { // they have as much to do, or nearly
		return best
	}
	for parts := 2; parts <= min(mostParts, longest); parts++ {
		blocks := pipeline.CeilDiv(longest, parts)
		if !p.fit(of, blocks) {
			break
		}
		if cost, _ := p.busiest(of, blocks); cost+mergeBlocks < least {
			best, least = blocks, cost+mergeBlocks
		}
	}
	return best
}

// SplitMost returns the blocks of a part with as many parts as there is room for the states of, whatever they gain.
func (p *Prefill) SplitMost(of []Sequence) int {
	for blocks := range p.longest(of) - 1 {
		if p.fit(of, blocks+1) {
			return blocks + 1
		}
	}
	return OnePart
}

// longest returns the number of blocks of the longest sequence.
func (p *Prefill) longest(of []Sequence) (blocks int) {
	for _, s := range of {
		blocks = max(blocks, pipeline.CeilDiv(s.Cached+s.New, p.attentionBlock()))
	}
	return blocks
}

// fit reports whether there is room for the states of parts of the given blocks.
func (p *Prefill) fit(of []Sequence, blocks int) bool {
	rows := 0
	for _, s := range of {
		rows += s.New
	}
	return rows*p.Parts(of, blocks) <= p.States()
}

// Parts returns how many parts of the given blocks the longest sequence has.
func (p *Prefill) Parts(of []Sequence, blocks int) int {
	return pipeline.CeilDiv(p.longest(of), blocks)
}

// busiest returns what attention takes of the cluster with the most to do, and of all together, in blocks, with parts
// of the given blocks. Clusters take tiles as attention.PrefillAttention deals them out: those that pad the step first,
// which have as many parts as others, of which one writes zeros and the rest is nothing.
func (p *Prefill) busiest(of []Sequence, blocks int) (most, all float64) {
	heads, tile, block, clusters := p.Of.Config.KVHeads, p.tileTokens(), p.attentionBlock(), p.clusters()
	takes := make([]float64, clusters)
	rows := 0
	for i, s := range of {
		room := s.New
		if rows += s.New; i == len(of)-1 {
			room += pipeline.CeilDiv(rows, p.Options.Padded())*p.Options.Padded() - rows
		}
		tiles, parts := pipeline.CeilDiv(room, tile), pipeline.CeilDiv(s.Cached+s.New, blocks*block)
		turn := clusters - i*p.turn()%clusters
		for k := range tiles * parts { // a piece of each head
			first, part := (tiles-1-k/parts)*tile, k%parts
			end := pipeline.CeilDiv(s.Cached+min(first+tile, s.New), block)
			pads := first >= s.New
			if part > 0 && (pads || part*blocks >= end) {
				continue
			}
			begin := max(part*blocks, p.sees(s.Cached+first)/block)
			one := partBlocks + float64(max(0, min(end, (part+1)*blocks)-begin))
			if pads {
				one = padBlocks
			}
			for at := k * heads; at < (k+1)*heads; at++ {
				cluster := at % clusters
				if at/clusters%2 == 1 {
					cluster = clusters - 1 - cluster
				}
				if cluster += turn; cluster >= clusters {
					cluster -= clusters
				}
				takes[cluster] += one
			}
		}
	}
	for _, t := range takes {
		most, all = max(most, t), all+t
	}
	return most, all
}

// turn returns how far a sequence's tiles of attention begin behind those of the one before, of all clusters: no two
// multiples of the golden ratio come close to each other, so that all clusters have as many.
func (p *Prefill) turn() int { return max(1, int(0.618034*float64(p.clusters()))) }

// sees returns the first position that a query at one sees, of the layers that see most.
func (p *Prefill) sees(position int) (first int) {
	first = position
	for _, spec := range p.Of.specs {
		if window, _ := spec.window(); window > 0 {
			first = min(first, max(0, position+1-window))
		} else {
			first = 0
		}
	}
	return first
}

// attentionBlock returns the number of tokens of a block of keys and values.
func (p *Prefill) attentionBlock() int { return p.attention().Block() }

// attention returns the template of a step's attention, without buffers.
func (p *Prefill) attention() *attention.PrefillAttention {
	c := &p.Of.Config
	kv := p.Of.KV
	if p.copies() {
		kv = (&attention.PrefillCopy{KV: kv}).Layout()
	}
	return &attention.PrefillAttention{Heads: c.Heads, KV: kv, Groups: p.Options.Groups, Cluster: p.Options.Cluster,
		Stage: p.stageBytes, Producers: kv.Producers()}
}

// declareSplit declares the states of parts, and has attention make them.
func (f *prefillFlow) declareSplit() {
	k, c, states := f.k, &f.mk.Config, f.p.States()
	f.partBlocks = dsl.Scalar[dsl.U32](k, ScalarPartBlocks, fmt.Sprintf(
		"blocks of %d tokens of a part of keys and values, 1 to %d; the latter: these are not split", f.p.attentionBlock(),
		OnePart))
	f.att.Split = &attention.PrefillSplit{Blocks: f.partBlocks, Rows: f.count, States: states,
		Values: dsl.Global[dsl.F32](k, BufferPartValues, elements(states, c.Heads, c.HeadDim), dsl.Align(16),
			bufDoc("[%d][%d][%d] sums of weighted values of parts, of token t and part p at p·%s + t", states, c.Heads,
				c.HeadDim, ScalarRows)),
		Sums: dsl.Global[dsl.F32](k, BufferPartSums, elements(states, c.Heads, 2), dsl.Align(16),
			bufDoc("[%d][%d][2] sums of weights of parts, and the maxima that they are relative to", states, c.Heads))}
}

// splits reports whether keys and values of the step are split: a barrier and a phase more.
func (f *prefillFlow) splits() dsl.Pred { return f.partBlocks.LtC(OnePart) }

// merge runs the phase that merges parts, where there are any.
func (f *prefillFlow) merge(s attention.Step, span prefill.Span) {
	k := f.k
	position := func(row dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return s.Pos.Add(row) }
	if f.p.Options.several() {
		s.Pos = k.U32(0)
		position = func(row dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return f.several.rows.Load(row.MulC(2)) }
	}
	k.If(f.splits(), func() {
		f.phase("merge", true, func() {
			f.attention(s, func(att *attention.PrefillAttention) {
				att.Merge(f.env, f.reads(s), span, f.p.Options.Padded(), position)
			})
		})
	})
}
