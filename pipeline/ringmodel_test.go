package pipeline_test

import (
	"fmt"
	"math/bits"

	"github.com/mkgen/mkgen/pipeline"
)

// ringModel plays one CTA's ring: a producer, a consumer, copies that land in any
// order, and mbarriers that, as the hardware does, only answer "has the phase of this
// parity completed". It fails when a stage is filled before it was drained, when more
// than InFlight copies are outstanding, when the consumer finds another copy than the
// one it expects, or when nobody can go on.
type ringModel struct {
	plan    *pipeline.Plan
	sizes   []int // bytes of every copy in order
	rng     uint64
	mutant  string
	full    [32]uint32 // completed phases
	empty   [32]uint32
	holds   [32]int // copy in the stage, -1 when drained
	flying  []int   // copies issued and not landed
	issued  int
	drained int
}

// Mutants of the protocol, to show that the model notices.
const (
	noEmptyWait  = "producer does not wait for the stage to be drained"
	noFlightWait = "producer does not limit copies in flight"
	noFullWait   = "consumer does not wait for the copy"
	wrongParity  = "consumer waits for the other parity"
	noArrive     = "consumer does not release the stage"
)

func (m *ringModel) run() error {
	for i := range m.holds {
		m.holds[i] = -1
	}
	idle := 0
	for m.drained < len(m.sizes) {
		// xorshift64: an agent at random; the producer more often than not runs ahead.
		m.rng ^= m.rng << 13
		m.rng ^= m.rng >> 7
		m.rng ^= m.rng << 17
		moved, err := false, error(nil)
		switch m.rng >> 62 {
		case 0, 1:
			moved, err = m.produce()
		case 2:
			moved = m.land()
		case 3:
			moved, err = m.consume()
		}
		if err != nil {
			return err
		}
		if idle++; moved {
			idle = 0
		}
		if idle > 1000 {
			return fmt.Errorf("nobody can go on: %d issued, %d in flight, %d drained of %d", m.issued, len(m.flying), m.drained,
				len(m.sizes))
		}
	}
	if m.issued != len(m.sizes) || len(m.flying) != 0 {
		return fmt.Errorf("left over: %d issued of %d, %d in flight", m.issued, len(m.sizes), len(m.flying))
	}
	return nil
}

// completed is mbarrier.try_wait.parity: true if the current phase's parity differs.
func completed(phases, parity uint32) bool { return phases&1 != parity }

func (m *ringModel) produce() (bool, error) {
	n := m.issued
	if n == len(m.sizes) {
		return false, nil
	}
	stage, _ := m.plan.Slot(int64(n))
	if n >= m.plan.Stages && m.mutant != noEmptyWait {
		if at, parity := m.plan.Slot(int64(n - m.plan.Stages)); at != stage || !completed(m.empty[at], parity) {
			return false, nil
		}
	}
	if n >= m.plan.InFlight && m.mutant != noFlightWait {
		if at, parity := m.plan.Slot(int64(n - m.plan.InFlight)); !completed(m.full[at], parity) {
			return false, nil
		}
	}
	if m.holds[stage] >= 0 {
		return false, fmt.Errorf("copy %d overwrites copy %d in stage %d before it was drained", n, m.holds[stage], stage)
	}
	if len(m.flying) >= m.plan.InFlight {
		return false, fmt.Errorf("copy %d is number %d in flight, at most %d", n, len(m.flying)+1, m.plan.InFlight)
	}
	if m.sizes[n] < 16 || m.sizes[n] > m.plan.StageBytes {
		return false, fmt.Errorf("copy %d of %d B, the stage has %d", n, m.sizes[n], m.plan.StageBytes)
	}
	m.holds[stage] = n
	m.flying = append(m.flying, n)
	m.issued++
	return true, nil
}

func (m *ringModel) land() bool {
	if len(m.flying) == 0 {
		return false
	}
	i, _ := bits.Mul64(m.rng<<2, uint64(len(m.flying)))
	stage, _ := m.plan.Slot(int64(m.flying[i]))
	m.full[stage]++
	last := len(m.flying) - 1
	m.flying[i] = m.flying[last]
	m.flying = m.flying[:last]
	return true
}

func (m *ringModel) consume() (bool, error) {
	stage, parity := m.plan.Slot(int64(m.drained))
	if m.mutant == wrongParity {
		parity ^= 1
	}
	if m.mutant != noFullWait && !completed(m.full[stage], parity) {
		return false, nil
	}
	if m.holds[stage] != m.drained {
		return false, fmt.Errorf("consumer wants copy %d, stage %d holds %d", m.drained, stage, m.holds[stage])
	}
	for _, n := range m.flying {
		if n == m.drained {
			return false, fmt.Errorf("consumer reads copy %d before it has landed", n)
		}
	}
	if m.mutant == noArrive {
		m.drained++
		return true, nil
	}
	m.holds[stage] = -1
	m.empty[stage]++
	m.drained++
	return true, nil
}

// copies are the sizes of SM sm's copies in the first layers and the final phase, with
// kv full stages of KV after each layer's first matrix.
func copies(p *pipeline.Plan, sm, kv int) (sizes []int) {
	for layer := range min(p.Layers, 2) {
		pending := kv
		for c := range p.LayerChunks(sm, layer) {
			for ; c.Matrix > 0 && pending > 0; pending-- {
				sizes = append(sizes, p.KVTokensPerStage*p.KVTokenBytes)
			}
			sizes = append(sizes, c.Bytes)
		}
	}
	for c := range p.LayerChunks(sm, pipeline.FinalLayer) {
		sizes = append(sizes, c.Bytes)
	}
	return sizes
}
