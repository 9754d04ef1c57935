package megakernel

import "slices"

// phaseSync is a phase of a layer of one row and the way in which what it writes reaches the phases behind it.
type phaseSync struct{ phase, way string }

// The phases of a layer that no option names.
const (
	phaseQKV    = "qkv"
	phaseGateUp = "gate_up"
)

// syncs lists the phases of a layer of one row in order. Behind the last one comes the next layer's first.
func (o *Options) syncs() []phaseSync {
	queries, attention, act := gridBarrier, o.syncWay(phaseAttention), o.mlp().sync(o)
	if o.Queries == SyncWords {
		queries = string(SyncWords)
	}
	merged := []phaseSync{{phaseAttention, attention}}
	if o.Merge == MergePhase {
		merged = []phaseSync{{phaseAttention, gridBarrier}, {phaseMerge, attention}}
	}
	return slices.Concat([]phaseSync{{phaseQKV, queries}}, merged,
		[]phaseSync{{phaseO, o.syncWay(phaseO)}, {phaseGateUp, act}, {phaseDown, o.syncWay(phaseDown)}})
}

// between returns the syncs from behind one phase to before another, around the end of a layer where need be. It
// panics where a layer has no such phase.
func (o *Options) between(from, to string) (list []phaseSync) {
	all := o.syncs()
	at := func(phase string) int {
		i := slices.IndexFunc(all, func(s phaseSync) bool { return s.phase == phase })
		if i < 0 {
			panic("BUG: a layer has no phase " + phase)
		}
		return i
	}
	for i, end := at(from), at(to); i != end; i = (i + 1) % len(all) {
		list = append(list, all[i])
	}
	return list
}

// wayBehind returns the way behind a phase.
func (o *Options) wayBehind(phase string) string {
	all := o.syncs()
	return all[slices.IndexFunc(all, func(s phaseSync) bool { return s.phase == phase })].way
}

// flagsSince returns how many times the flag changes between two phases: a grid barrier and a count of arrivals
// change it. A packet that from has written has the flag of n changes ago for who reads it in to.
func (o *Options) flagsSince(from, to string) (n int) {
	for _, s := range o.between(from, to) {
		if s.way == gridBarrier || s.way == string(SyncCounted) {
			n++
		}
	}
	return n
}

// ordered is whether a grid barrier lies between two phases, so that to may write anew what from has read. Counts and
// packets order no memory.
func (o *Options) ordered(from, to string) bool {
	return slices.ContainsFunc(o.between(from, to), func(s phaseSync) bool { return s.way == gridBarrier })
}

// mergedIn returns the phase that writes attention's output.
func (o *Options) mergedIn() string {
	if o.Merge == MergePhase {
		return phaseMerge
	}
	return phaseAttention
}
