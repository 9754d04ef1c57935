package megakernel

import "github.com/mkgen/mkgen/pipeline"

// ExchangeSeconds is what one grid-wide hand-off costs that the ring does not
// hide, as measured on an H200 with synthetic phases: about 2 µs.
const ExchangeSeconds = 2e-6

// CopySeconds is how long a bulk copy takes to land: with one of 16 KiB in flight
// on each of its 132 SMs an H200 streams 3121 GB/s.
const CopySeconds = 132 * 16384 / 3121e9

func machine(bytesPerSecond float64) pipeline.Machine {
	return pipeline.Machine{BytesPerSecond: bytesPerSecond, CopySeconds: CopySeconds, ExchangeSeconds: ExchangeSeconds}
}

// Predict models the time of one step with context tokens (0 or more) in the KV
// cache on a machine that streams bytesPerSecond (positive): what the busiest
// SM reads at its share of the bandwidth, or at what its copies in flight allow
// where that is less, KV as unevenly as it is split, plus
// the hand-offs. It leaves out what is read from the L2 cache, arithmetic, and
// the launch. A model, not a measurement.
func (mk *Kernel) Predict(bytesPerSecond float64, context int) pipeline.Prediction {
	t := mk.Plan.Predict(machine(bytesPerSecond), mk.kvBusiest(context)*int64(mk.Plan.SMs), mk.Barriers())
	t.Floor = float64(mk.Plan.WeightBytes()+mk.KVBytes(context)) / bytesPerSecond
	return t
}

// KVBytes is what one step reads of a KV cache of context tokens, each once.
func (mk *Kernel) KVBytes(context int) int64 {
	return int64(mk.Config.Layers) * mk.kvLayerBytes(context)
}

func (mk *Kernel) kvLayerBytes(context int) int64 {
	return int64(context) * int64(mk.KV.Heads) * int64(mk.KV.TokenBytes())
}

// kvBusiest is at most what the SM with the most KV reads of it in a step: items
// (KV head, split) are dealt out in turn, and an item is cut into whole chunks.
func (mk *Kernel) kvBusiest(context int) int64 {
	items := ceilDiv(mk.KV.Heads*mk.Options.Splits, mk.Plan.SMs)
	per := kvTokensPerStage(mk.Plan)
	chunks := ceilDiv(ceilDiv(context, per), mk.Options.Splits)
	tokens := int64(items) * min(int64(chunks)*int64(per), int64(context))
	return int64(mk.Config.Layers) * tokens * int64(mk.KV.TokenBytes())
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

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
