package megakernel

import (
	"slices"

	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/machine"
)

// Prediction is the time of one step by the model of Predict, in seconds.
type Prediction struct {
	Floor  float64 // what must be read at the machine's ceiling, each byte once
	Stream float64 // the most weights and the most KV of an SM, which may be two SMs, at what one streams
	Total  float64 // of the step: Stream, and what of the syncs the ring does not hide
	Phases []PhasePrediction
}

// Unhidden is what syncs, arithmetic and restarts of the ring add to Stream.
func (p *Prediction) Unhidden() float64 { return max(0, p.Total-p.Stream) }

// PhasePrediction is one phase: the mean of its runs in a step, over all SMs. A run is
// from the release of the sync before to the release of its own.
type PhasePrediction struct {
	Name  string
	Runs  int   // in a step
	Bytes int64 // that all SMs read from memory in a run
	Most  int64 // that the busiest SM does

	Time   float64 // of a run: Work + Chunks + Sync
	Work   float64 // what the phase reads behind the sync, and its arithmetic
	Chunks float64 // waits for chunks: the ring is empty
	Sync   float64 // from an SM's arrival to its release
}

// settledLayers is how many layers a step is run through before those whose times stand for the rest, one of each in
// the pattern of layers: syncs make every layer begin in the same way, so further ones take as long as those.
const settledLayers = 3

// Predict models the time of a step over sequences sequences (at least 1), each with
// context tokens (0 or more) in the KV cache, on a machine. It runs a pipeline.RingClock
// for every kind of share that SMs have, through two steps, of which the second counts:
//
//   - Memory brings an SM its share of what all stream with the kernel's copies in flight. Layers with a window read
//     the chunks of the tokens that they see.
//   - A phase begins with what consumers read of other SMs' work, through the L2 cache,
//     while the producer goes on: see chain. Then they drain its chunks, and a product's
//     sums meet. What a chunk takes is the machine's figure times that of its format.
//   - Meanwhile consumers take the chunks that are held in registers out of the ring, once
//     those have landed; when the vector is there, these take as long again as to drain.
//   - The sync is passed when all have arrived, and the machine's wait behind that. Where
//     the last SM finds its ring full, memory is quiet, and the exchange takes what it takes
//     on an idle GPU; else what it takes while copies are in flight.
//
// A model, not a measurement. KV heads are split at every context, whatever Options.Unsplit: the model has no time of a
// merge in words, and would find steps without one slower. It leaves out the launch, the choice of a token, and what
// several rows of bf16 cost beside one: their inputs from L2 and their arithmetic.
func (mk *Kernel) Predict(m *machine.Machine, context, sequences int) Prediction {
	s := newStepModel(mk, m, context, sequences)
	for range 2 {
		s.step()
	}
	p := Prediction{
		Floor:  float64(mk.Plan.WeightBytes()+int64(sequences)*mk.KVBytes(context)) / (m.Ceiling.Median * 1e9),
		Phases: s.phases,
	}
	busiest := mk.Plan.MaxSMBytes(pipeline.FinalLayer)
	for layer := range mk.Config.Layers {
		busiest += mk.Plan.MaxSMBytes(0) + mk.kvBusiest(layer, context, sequences)
	}
	p.Stream = float64(busiest) / s.rate
	for _, f := range p.Phases {
		p.Total += float64(f.Runs) * f.Time
	}
	return p
}

// KVBytes returns what one step reads at the least of a KV cache of context tokens, in bytes: once the tokens that each
// layer sees through its window.
func (mk *Kernel) KVBytes(context int) (n int64) {
	for layer := range mk.Config.Layers {
		n += int64(mk.seen(layer, context)) * mk.kvLayerBytes()
	}
	return n
}

// KVTokenBytes returns the size of a cached token over all layers, in bytes.
func (mk *Kernel) KVTokenBytes() int64 { return int64(mk.Config.Layers) * mk.kvLayerBytes() }

// kvLayerBytes is the size of a cached token in a layer.
func (mk *Kernel) kvLayerBytes() int64 { return int64(mk.KV.Heads) * int64(mk.KV.TokenBytes()) }

// windowOf is the sliding window of a layer and its sinks; 0 without. Pages that are selected are read whatever the
// window.
func (mk *Kernel) windowOf(layer int) (window, sinks int) {
	if len(mk.pattern) == 0 || mk.Options.Selection {
		return 0, 0
	}
	return mk.specs[mk.pattern[layer%len(mk.pattern)]].window()
}

// seen is how many of context cached tokens the token behind them sees in a layer.
func (mk *Kernel) seen(layer, context int) int {
	window, sinks := mk.windowOf(layer)
	if window == 0 {
		return context
	}
	return context - max(0, context-(window-1)-sinks)
}

// kvTokens are the tokens of the chunks that a sequence of context cached tokens has in a layer, in order: those that
// attention.Attention does not leave out between sinks and window.
func (mk *Kernel) kvTokens(layer, context int) (tokens []int) {
	per := kvTokensPerStage(mk.Plan)
	window, sinks := mk.windowOf(layer)
	first := 0
	if window > 0 {
		first = max(0, context+1-window) / per
	}
	for c := range pipeline.CeilDiv(context, per) {
		if c >= first || c < pipeline.CeilDiv(sinks, per) {
			tokens = append(tokens, min(per, context-c*per))
		}
	}
	return tokens
}

// kvBusiest is at most what the SM with the most KV reads of it in a layer: items
// (KV head, split) are dealt out in turn, and an item is cut into whole chunks. What a
// plan deals out is taken to be even, but for whole chunks.
func (mk *Kernel) kvBusiest(layer, context, sequences int) int64 {
	per, token, all := kvTokensPerStage(mk.Plan), int64(mk.KV.TokenBytes()), mk.kvTokens(layer, context)
	read := 0
	for _, n := range all {
		read += n
	}
	if mk.Ragged() {
		chunks := pipeline.CeilDiv(sequences*mk.KV.Heads*len(all), mk.Plan.SMs)
		return min(int64(chunks)*int64(per)*token, int64(sequences)*int64(read)*mk.kvLayerBytes())
	}
	items := pipeline.CeilDiv(mk.AttentionItems()*mk.Options.Splits, mk.Plan.SMs)
	chunks := pipeline.CeilDiv(len(all), mk.Options.Splits)
	return int64(items) * min(int64(chunks)*int64(per), int64(read)) * token
}

// inFlight is how many bytes an SM's producer keeps in flight at most.
func (mk *Kernel) inFlight() int64 { return int64(mk.Plan.InFlight) * int64(mk.Plan.StageBytes) }

// The loads from the L2 cache, one after another, that a phase begins with or comes
// to, beside its vector: attention's queries and the newest token's key and value, the
// partial states of a merge, the tables of several rows.
const (
	attentionLoads = 2
	mergeLoads     = 1
	embedLoads     = 2
	rowsLoads      = 2
)

// chain is what consumers read at the beginning of a phase of what other SMs wrote: the
// vector (bytes), and the loads that follow one another.
func (mk *Kernel) chain(p *Phase) (vector, loads int) {
	c := &mk.Config
	switch {
	case p.Matrix != "" && mk.Ragged():
		return 0, rowsLoads // the input itself comes along with the chunks
	case p.Matrix == phaseO && mk.Options.handsOn(phaseAttention):
		return 4 * c.Heads * c.HeadDim, 0 // a packet of 16 bytes for four elements
	case p.Matrix == phaseO:
		return 2 * c.Heads * c.HeadDim, 0
	case p.Matrix == phaseDown && mk.Options.handsOn(phaseGateUp):
		return 4 * c.Intermediate, 0
	case p.Matrix == phaseDown:
		return 2 * mk.Options.mlp().staged(c), 0
	case p.Matrix != "":
		return (4 + 2) * c.Hidden, 0 // in packets as in memory, with the norm's gains
	case p.Name == phaseAttention:
		return 0, attentionLoads
	case p.PerLayer:
		return 0, mergeLoads
	}
	return 0, embedLoads
}

// phaseMatrix is the matrix that a phase streams, its evenness over the SMs (1
// is even) and nil when it streams none.
func (mk *Kernel) phaseMatrix(p *Phase) (m *pipeline.MatrixPlan, evenness float64) {
	e := mk.Plan.Efficiency()
	for i := range mk.Plan.Layer {
		if m = &mk.Plan.Layer[i]; p.PerLayer && m.Name == p.Matrix {
			return m, e.LayerMatrix[i]
		}
	}
	for i := range mk.Plan.Final {
		if m = &mk.Plan.Final[i]; !p.PerLayer && m.Name == p.Matrix {
			return m, e.FinalMatrix[i]
		}
	}
	return nil, 1
}

// runs is how often a phase runs in a step.
func (mk *Kernel) runs(p *Phase) int {
	if p.PerLayer {
		return mk.Config.Layers
	}
	return 1
}

// predicted are the phases of a step that a plan cannot leave out, in order.
func (mk *Kernel) predicted() []Phase {
	return slices.DeleteFunc(slices.Clone(mk.Phases), func(p Phase) bool { return p.Planned })
}
