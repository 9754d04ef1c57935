package megakernel

import (
	"slices"

	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/machine"
)

// What a prefill step of a Hopper GPU takes, measured on an H100 (docs/prefill.md): seconds that costs of products
// are counted in, operations of attention a second where all SMs have some, and seconds of each phase of a layer beside
// them.
const (
	prefillUnit      = 0.64e-9
	prefillAttention = 520e12
	prefillPhase     = 10e-6
)

// prefillMerge is what merging parts of keys and values takes a layer, in seconds, measured on an H200.
const prefillMerge = 5e-6

// rowsCost is what a step of 16 rows takes over the prediction for one of one row, which leaves out their arithmetic.
const rowsCost = 1.2

// prefillMemory is the memory bandwidth that predictions have without a machine, in bytes a second: an H100's, the
// slowest of the GPUs that prefill kernels run on.
const prefillMemory = 3.0e12

// PrefillMachine is the machine that prompts' times are predicted for where none is given.
func PrefillMachine() *machine.Machine { return machine.H200().At(prefillMemory) }

// Predict models the time of a step of n tokens (at least 1) behind cached ones (0 or more) on a machine, in
// seconds: a phase takes as long as its matrix takes to read or its waves of tiles to compute, attention what its
// products take on the cluster that has most to do, and each what its sync takes beside. A model, not a measurement.
func (p *Prefill) Predict(m *machine.Machine, n, cached int) float64 {
	c, memory := &p.Of.Config, m.Ceiling.Median*1e9
	layer, pieces := 0.0, pipeline.CeilDiv(n, p.Options.Padded())
	for i := range layerMatrices {
		m := p.matrix(i)
		cost, bytes := float64(p.productCost(i, pieces, p.KParts[i])), 2.0
		if p.coded(i) { // the input is read twice in bf16, and written
			bytes = 1
			layer += 5 * float64(n) * float64(m.K) / memory
		}
		layer += max(cost*prefillUnit, bytes*float64(m.Rows)*float64(m.K)/memory)
	}
	layer += float64(p.layerSyncs().all) * prefillPhase
	if s := p.Scratch(); s > 0 { // codes are read, and bf16 written
		layer += float64(p.Of.Plan.LayerBytes+s) / memory
	}
	head := p.matrix(prefillHead)
	seconds := float64(c.Layers)*layer + float64(head.TileBytes())*float64(head.Tiles)/memory
	seconds += p.copyTime(m, cached)
	of := []Sequence{{New: n, Cached: cached}}
	blocks := p.Split(of)
	if blocks < OnePart {
		seconds += float64(c.Layers) * prefillMerge
	}
	busiest, all := p.busiest(of, blocks)
	return seconds + p.attends(float64(n), float64(cached)+float64(n+1)/2)*busiest*float64(p.clusters())/all
}

// Gap is how long a sequence that decodes waits for its next token at most while a prompt is read, by prediction, in
// seconds; but see PrefillBeside of kernels whose smallest launches are long.
const Gap = 20e-3

// launchTime is what a launch takes beside its kernel, with what the host does before the next one, in seconds.
const launchTime = 0.5e-3

// gapOverLeast is how many of the smallest kernel's launches one beside sequences that decode may take, where that is
// more than Gap: most of a small launch is what every launch takes, reading weights and making codes bf16.
const gapOverLeast = 2

// besideOver is what launches beside sequences that decode are counted to take over the prediction. An H200 took 7 %
// more for a prompt of 8192 tokens of qwen3-8b in launches of 512, and a client saw some tokens 1.3 ms later than most
// of the longest launches' (docs/prefill.md).
const besideOver = 1.14

// PrefillBeside returns how many tokens a launch of the prefill kernels has at most while other sequences decode
// with mk, of a prompt behind cached ones, those that decode having decoding tokens in the cache together; with apart
// some of them have their next token from a step of mk behind it. They are as
// many, in whole tiles, as take Gap by prediction, or where that is more as take gapOverLeast launches of the smallest
// kernel without cached tokens, and at least as many as the smallest kernel has. Kernels of several sequences take
// those that decode along, but apart; else a step of mk is in the gap, too.
func PrefillBeside(mk *Kernel, kernels []*Prefill, m *machine.Machine) func(cached, decoding int, apart bool) int {
	kernels = slices.SortedFunc(slices.Values(kernels), func(a, b *Prefill) int {
		return a.Options.Tokens - b.Options.Tokens
	})
	step := rowsCost * mk.Predict(m, 0, 1).Total
	takes := func(p *Prefill, n, cached, decoding int, apart bool) float64 {
		seconds := p.Predict(m, n, cached) + launchTime
		behind := step + float64(mk.KVTokenBytes())*float64(decoding)/(m.Ceiling.Median*1e9)
		if !p.Options.several() {
			return seconds + behind
		}
		seconds = besideOver * (seconds + p.attends(float64(p.tileTokens()), float64(decoding)) + p.copyTime(m, decoding))
		if apart {
			seconds += behind + launchTime
		}
		return seconds
	}
	gap := max(Gap, gapOverLeast*kernels[0].Predict(m, kernels[0].Options.Tokens, 0))
	return func(cached, decoding int, apart bool) int {
		chunk := kernels[0].Options.Tokens
		for _, p := range kernels {
			by := p.Options.Padded()
			for n := by; n < p.Options.Tokens+by; n += by {
				if n := min(n, p.Options.Tokens); n > chunk && takes(p, n, cached, decoding, apart) <= gap {
					chunk = n
				}
			}
		}
		return chunk
	}
}

// copyShare is the share of the memory bandwidth that copying cached keys and values reaches, measured on an H200.
const copyShare = 0.5

// copyTime is how long copying cached tokens' keys and values in bf16 takes, in seconds; 0 where they are not copied.
func (p *Prefill) copyTime(m *machine.Machine, cached int) float64 {
	if !p.copies() {
		return 0
	}
	bytes := 3 * float64(p.Of.KVTokenBytes()) * float64(cached) // read, and written twice as long
	return bytes / (copyShare * m.Ceiling.Median * 1e9)
}

// attends is how long attention of n tokens takes, each of which sees seen tokens, in seconds.
func (p *Prefill) attends(n, seen float64) (seconds float64) {
	c := &p.Of.Config
	for l := range c.Layers {
		sees := seen
		if window, _ := p.Of.specs[p.Of.pattern[l%len(p.Of.pattern)]].window(); window > 0 {
			sees = min(seen, float64(window))
		}
		seconds += 4 * n * sees * float64(c.Heads*c.HeadDim) / prefillAttention
	}
	return seconds
}

// tileTokens is how many tokens of a sequence attention takes at once: one that has fewer takes as long.
func (p *Prefill) tileTokens() int { return p.attention().Together() }
