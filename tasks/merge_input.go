package tasks

import (
	"cmp"

	"github.com/mkgen/mkgen/dsl"
)

// MaxMergedSplits is how many splits MergedInput merges at most: a thread holds the states
// of a pair of elements in registers.
const MaxMergedSplits = statesAtOnce

// MergedInput stages attention's output as a GEMV's input and merges the partial states as
// it reads them: every SM reads every state and merges all of them, so that the merge takes
// no hand-off of its own. For few splits; of S splits an SM reads S times 8 bytes an element.
type MergedInput struct {
	Merge *Merge            // of up to MaxMergedSplits; its Out and Handed are not used
	Words *Words            // how states come; nil: they stand behind a hand-off
	Noted bool              // whether a trace notes the waits of all consumers for them
	Dst   dsl.Buf[dsl.BF16] // shared memory, at least Heads·D padded to the k group, in the order of InputPair
}

// Emit runs in the consumer warps. Dst is complete for all consumers on return.
func (t *MergedInput) Emit(e *Env, s Step) {
	k, m := e.K, t.Merge
	n := m.Heads * m.D / 2
	if p := cmp.Or(inputProblem("merged input", 2*n, 2, t.Dst), firstOf(
		need(m.Table == nil && m.Splits >= 1 && m.Splits <= MaxMergedSplits, "merged input: %d splits, want 1 to %d, and no table", m.Splits, MaxMergedSplits))); p != "" {
		k.Require(false, "%s", p)
		return
	}
	pairs := 1 // at once, which have the loads of all their states in flight together
	for 2*pairs*m.Splits <= polled && n%(2*pairs*e.Threads()) == 0 {
		pairs *= 2
	}
	dst := dsl.View[dsl.BF16x2](t.Dst)
	k.ForStep(e.Tid, k.U32(n), pairs*e.Threads(), func(i u32) {
		var at []u32
		for j := range pairs {
			for split := range m.Splits {
				at = append(at, i.AddC(j*e.Threads()+split*n))
			}
		}
		states := t.states(e, at)
		for j := range pairs {
			of := i.AddC(j * e.Threads())
			lo, hi := m.merged(e, states[j*m.Splits:][:m.Splits])
			dst.Store(inputPair(of), m.output(e, s, of, lo, hi))
		}
	}, dsl.Unroll(1))
	zeroPadding(e, t.Dst, 2*n)
	e.Sync()
}

// states are the parts of states at these places, polled some at a time.
func (t *MergedInput) states(e *Env, at []u32) (list []statePart) {
	if t.Words == nil {
		return parts(t.Merge.States, at)
	}
	wait := func(body func()) { body() }
	if t.Noted {
		wait = func(body func()) { e.Wait("partial states", body) }
	}
	wait(func() {
		for len(at) > 0 {
			now := min(polled, len(at))
			for _, v := range t.Words.All(e, t.Merge.States, at[:now], "waits for a partial state of attention, word %d") {
				list = append(list, t.part(v))
			}
			at = at[now:]
		}
	})
	return list
}

// part is partOf a word that was polled, of which it uses every part; see Words.
func (t *MergedInput) part(v dsl.Val[dsl.B128]) statePart {
	if t.Merge.sums() {
		sums := floats(v)
		return statePart{lo: sums[0], hi: sums[1]}
	}
	return partOf(v)
}
