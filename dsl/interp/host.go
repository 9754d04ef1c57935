package interp

import "github.com/mkgen/mkgen/dsl/ir"

// Host is the host's side of the buffers that a kernel shares with it while it
// runs (ir.HostUse). Both methods are called by the goroutine that runs the
// kernel, between instructions.
type Host interface {
	// Stored hears of every word that the kernel stores into a buffer for the
	// host to read, when it does.
	Stored(buffer string, word int64, value uint32)
	// Turn comes now and then, and with stuck set when no warp can go on. The
	// host may write words of buffers that are for it to write, through set. Each of
	// its writes is a release at scope sys: who acquires it sees those before it.
	Turn(stuck bool, set func(buffer string, word int64, value uint32))
}

// HostTurn is the number of warp instructions between two turns of the host.
const HostTurn = 512

// turn gives the host its turn and reports whether it wrote anything.
func (m *machine) turn(stuck bool) bool {
	if m.o.Host == nil {
		return false
	}
	m.turnAt = m.steps + HostTurn
	wrote := false
	m.o.Host.Turn(stuck, func(buffer string, word int64, value uint32) {
		wrote = m.hostWrite(buffer, word, value) || wrote
	})
	return wrote
}

// hostWrite makes value the word's latest. A load may still return an older one
// until it has acquired this write or a later one of the host.
func (m *machine) hostWrite(buffer string, word int64, value uint32) bool {
	for _, rg := range m.global {
		if rg == nil || rg.info.buf.Name != buffer || rg.info.buf.Host != ir.HostWrites || word < 0 ||
			4*word+4 > int64(len(rg.data)) {
			continue
		}
		if rg.locs != nil {
			m.hostEntry(rg, 4*word, lowWord(value))
		}
		rg.store(4*word, 4, lowWord(value))
		if rg.valid != nil {
			rg.setValid(4*word, 4)
		}
		m.wakeAt(rg, 4*word)
		return true
	}
	return false
}

// hostEntry adds a write of the host's to the history of the scalar at off: a release
// of the component that stands for the host.
func (m *machine) hostEntry(rg *region, off int64, v value) {
	if m.host < 0 || !m.o.races() {
		m.weakWrite(rg, off, 4)
		return
	}
	lc := m.locAt(rg, off)
	lc.fresh(rg.load(off, 4))
	m.hostEpoch++
	knows := (*clock)(nil).raised(m.parts, m.comps, m.host, 0, m.hostEpoch, anyLane, m.hostEpoch)
	lc.ents = append(lc.ents, entry{v: v, ts: lc.ents[len(lc.ents)-1].ts + gap, scope: ir.Sys,
		rec:  pack(m.host*m.comps, m.hostEpoch, anyLane, 0),
		msgs: []message{{stamp{hb: knows}, ir.Sys, m.host}}})
	if len(lc.ents) > maxHistory {
		lc.ents = append(lc.ents[:0], lc.ents[1:]...)
	}
}

func lowWord(v uint32) value { return value{lo: uint64(v)} }

// stepHostRace stands for an access that races with the host whenever it is made.
func stepHostRace(m *machine, w *warp, in *inst) {
	m.fail(w, in, firstLane(w.mask), DataRace, "%s", in.text)
}

// abandon notes that a wait has ended by its abort flag. From then on the launch's
// results are void: data is used that never came. What is checked on is that
// memory stays safe and that every warp leaves, with no copy in flight.
func (m *machine) abandon() {
	m.void = true
	m.o.NoRaces = true
}

// voided are the kinds of faults that mean nothing once a wait was abandoned.
func voided(k Kind) bool {
	switch k {
	case DataRace, ProxyRace, ScopeRace, Uninitialised, PhaseSkipped, ArgumentRange, AssertFailed:
		return true
	}
	return false
}
