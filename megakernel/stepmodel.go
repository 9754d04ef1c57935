package megakernel

import (
	"fmt"

	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/machine"
)

// stepModel runs steps of a kernel in time; see Predict.
type stepModel struct {
	mk     *Kernel
	m      *machine.Machine
	layers int     // that are run through
	turns  int     // layers behind which attention repeats
	rate   float64 // bytes a second that an SM streams
	run    []Phase // in order
	shares []*smShare
	phases []PhasePrediction // of the last step
	now    float64           // when the last sync was passed
	apart  bool              // no sync was: now is the mean of when SMs went on
}

// smShare is what some of the SMs have to do, all of them the same.
type smShare struct {
	sms    int
	chunks map[string][]int // bytes of the stages of each phase, but attention's
	kv     [][]int          // those of attention's, by the layers in turn
	clock  *pipeline.RingClock
	held   int // chunks of the phase at hand that are in registers
}

func newStepModel(mk *Kernel, m *machine.Machine, context, sequences int) *stepModel {
	p := mk.Plan
	turns := max(1, len(mk.pattern))
	s := &stepModel{mk: mk, m: m, run: mk.predicted(), layers: min(mk.Config.Layers, settledLayers+turns), turns: turns,
		rate: m.BytesPerSecond(p.SMs, mk.inFlight()) / float64(p.SMs)}
	byKind := map[string]*smShare{}
	for sm := range p.SMs {
		var kv [][]int
		for layer := range turns {
			kv = append(kv, mk.kvChunks(sm, layer, context, sequences))
		}
		kind := fmt.Sprint(kv)
		for i := range layerMatrices + 1 {
			kind += fmt.Sprint(" ", mk.matrix(i).Count[sm])
		}
		if byKind[kind] == nil {
			byKind[kind] = s.share(sm, kv)
			s.shares = append(s.shares, byKind[kind])
		}
		byKind[kind].sms++
	}
	for _, f := range s.run {
		pp := PhasePrediction{Name: f.Name, Runs: mk.runs(&f)}
		for layer := range pp.Runs {
			for _, share := range s.shares {
				bytes := share.bytes(f.Name, layer)
				pp.Bytes += int64(share.sms) * bytes
				pp.Most = max(pp.Most, bytes)
			}
		}
		pp.Bytes /= int64(pp.Runs)
		s.phases = append(s.phases, pp)
	}
	return s
}

// kvChunks are the chunks of the KV cache that an SM reads in a layer, in bytes.
func (mk *Kernel) kvChunks(sm, layer, context, sequences int) (chunks []int) {
	tokens := mk.kvTokens(layer, context)
	if mk.Ragged() {
		all, whole := 0, kvTokensPerStage(mk.Plan)*mk.KV.TokenBytes()
		for _, n := range tokens {
			all += sequences * n * int(mk.kvLayerBytes())
		}
		each := pipeline.CeilDiv(pipeline.CeilDiv(all, mk.Plan.SMs), whole) * whole // dealt out in chunks
		for left := min(each, max(0, all-sm*each)); left > 0; left -= whole {
			chunks = append(chunks, min(left, whole))
		}
		return chunks
	}
	splits, groups := mk.Options.Splits, mk.AttentionItems()
	for item := sm; item < groups*splits; item += mk.Plan.SMs { // as attention.Attention deals them out
		split := item / groups
		for _, n := range tokens[split*len(tokens)/splits : (split+1)*len(tokens)/splits] {
			chunks = append(chunks, n*mk.KV.TokenBytes())
		}
	}
	return chunks
}

// share is what SM sm has to do, over two steps.
func (s *stepModel) share(sm int, kv [][]int) *smShare {
	mk, p := s.mk, s.mk.Plan
	out := &smShare{chunks: map[string][]int{}, kv: kv}
	for _, layer := range []int{0, pipeline.FinalLayer} {
		for c := range p.LayerChunks(sm, layer) {
			m := &p.Matrices(layer)[c.Matrix]
			chunks := out.chunks[m.Name]
			if n := len(chunks); (c.Tile-m.First[sm])%max(1, m.Batch)%max(1, m.Together) > 0 {
				chunks[n-1] += c.Bytes // it shares a stage
				continue
			}
			out.chunks[m.Name] = append(chunks, c.Bytes)
		}
	}
	var all []int
	for range 2 {
		s.each(func(i, _, layer int) { all = append(all, out.of(s.run[i].Name, layer)...) })
	}
	all = append(all, all[:min(len(all), p.Stages)]...) // the producer goes on
	out.clock = pipeline.NewRingClock(pipeline.RingTime{Stages: p.Stages, InFlight: p.InFlight, BytesPerSecond: s.rate,
		CopySeconds: s.m.CopySeconds(), DrainSeconds: s.m.DrainSeconds}, all)
	for _, f := range s.run {
		if f.Matrix != "" && f.Matrix != f.Name {
			panic("BUG: phase " + f.Name + " of " + mk.Config.Name + " streams matrix " + f.Matrix)
		}
	}
	return out
}

// of are the bytes of a phase's chunks in a layer.
func (h *smShare) of(phase string, layer int) []int {
	if phase == phaseAttention {
		return h.kv[layer%len(h.kv)]
	}
	return h.chunks[phase]
}

func (h *smShare) bytes(phase string, layer int) (n int64) {
	for _, bytes := range h.of(phase, layer) {
		n += int64(bytes)
	}
	return n
}

// each calls body for the phases of a step in order, by index: those before the layers,
// the layers', and those behind them. next is the index of the phase behind it in the
// step, or -1; layer is 0 outside of the layers.
func (s *stepModel) each(body func(i, next, layer int)) {
	type run struct{ i, layer int }
	var before, layer, behind []int
	for i, f := range s.run {
		switch {
		case f.PerLayer:
			layer = append(layer, i)
		case layer == nil:
			before = append(before, i)
		default:
			behind = append(behind, i)
		}
	}
	var all []run
	add := func(phases []int, l int) {
		for _, i := range phases {
			all = append(all, run{i, l})
		}
	}
	add(before, 0)
	for l := range s.layers {
		add(layer, l)
	}
	add(behind, 0)
	for n, r := range all {
		if n+1 < len(all) {
			body(r.i, all[n+1].i, r.layer)
		} else {
			body(r.i, -1, r.layer)
		}
	}
}

// stands is how many layers a layer that is run through stands for: itself, and where it is among the last of them,
// those further on whose turn is its own.
func (s *stepModel) stands(layer int) int {
	if layer < s.layers-s.turns {
		return 1
	}
	return 1 + (s.mk.Config.Layers-1-layer)/s.turns
}

// step runs a step, and notes its phases.
func (s *stepModel) step() {
	for i := range s.phases {
		p := &s.phases[i]
		p.Time, p.Work, p.Chunks, p.Sync = 0, 0, 0, 0
	}
	s.each(func(i, next, layer int) {
		times := 1
		if s.run[i].PerLayer {
			times = s.stands(layer)
		}
		s.phase(i, next, layer, float64(times)/float64(s.phases[i].Runs))
	})
}

// hold takes the first chunks of the next phase into registers, once they have landed.
func (s *stepModel) hold(h *smShare, next int) {
	if next >= 0 && s.run[next].Matrix != "" {
		h.held = min(max(0, s.mk.Options.Held), len(h.chunks[s.run[next].Name]))
		h.clock.Drain(h.held, 1) // as they are
	}
}

// phase runs a phase of a layer and its sync to the next on all SMs, and adds it with a weight.
func (s *stepModel) phase(i, next, layer int, weight float64) {
	f, m, p := &s.run[i], s.m, &s.phases[i]
	vector, loads := s.mk.chain(f)
	times := s.mk.phaseDrainTimes(f)
	last, quiet, chunks, arrived := 0.0, false, 0.0, 0.0
	for _, h := range s.shares {
		busy := s.mk.inFlight()
		if h.clock.Full() {
			busy = 0
		}
		if !s.apart {
			h.clock.Until(s.now + m.ReadSeconds(busy, vector) + float64(loads)*m.LoadSeconds(busy))
		}
		all := h.of(f.Name, layer)
		for _, bytes := range all[:h.held] { // still to be multiplied
			h.clock.Until(h.clock.Now() + times*m.DrainSeconds(bytes))
		}
		waited := h.clock.Drain(len(all)-h.held, times)
		if len(all) > 0 {
			h.clock.Until(h.clock.Now() + m.FinishSeconds())
		}
		chunks += float64(h.sms) * waited
		at := h.clock.Now()
		arrived += float64(h.sms) * at
		if h.held = 0; f.Sync != syncNone {
			s.hold(h, next)
		}
		if at > last {
			last, quiet = at, h.clock.Full()
		}
	}
	sms := float64(s.mk.Plan.SMs)
	arrived, chunks = arrived/sms, chunks/sms
	released := last
	s.apart = f.Sync == syncNone
	if s.apart {
		released = arrived
	} else if f.Sync != "" {
		busy := s.mk.inFlight()
		if quiet {
			busy = 0
		}
		streamed := p.Bytes / int64(s.mk.Plan.SMs)
		if s.mk.Plan.SMs == 1 { // nobody to be apart from
			streamed = 0
		}
		released += m.SyncSeconds(busy, streamed, f.Sync != gridBarrier)
	}
	for _, h := range s.shares {
		if !s.apart {
			h.clock.Until(released)
		}
	}
	p.Time += weight * (released - s.now)
	p.Chunks += weight * chunks
	p.Sync += weight * (released - arrived)
	p.Work += weight * (arrived - s.now - chunks)
	s.now = released
}
