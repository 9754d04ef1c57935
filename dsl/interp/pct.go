package interp

import "slices"

// FirstPCT is the first of 2³² seeds whose policy is PolicyPCT.
const FirstPCT = 1 << 63

// PCTDepth is how many ordering constraints a fault may need for the guarantee of PolicyPCT.
const PCTDepth = 3

// pctSteps is the length of a run that is assumed where Options.Length does not say.
const pctSteps = 1 << 16

// pctPatience is for how many steps a warp may go on alone: one that asks again and again (mbar.test) goes behind all
// others then.
const pctPatience = 1 << 14

// priorities schedule by probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatte, A
// Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, ASPLOS 2010). Warps and bulk copies have distinct
// random priorities, and the highest that can go on does, one instruction at a time. At PCTDepth − 1 random steps of
// the run the one that goes on goes behind all others. In a run of n agents and at most k steps a fault that needs d
// ordering constraints shows with a probability of at least 1 / (n·k^(d−1)).
type priorities struct {
	of     []float64 // of warps
	change []int64   // steps, ascending
	low    float64   // below all that are in use
	alone  int       // steps that last has made in a row
	last   *warp
}

func newPriorities(m *machine) *priorities {
	p := &priorities{}
	for range m.warps {
		p.of = append(p.of, m.rng.Float64())
	}
	length := m.o.Length
	if length <= 0 {
		length = pctSteps
	}
	for range PCTDepth - 1 {
		p.change = append(p.change, 1+m.rng.Int64N(length))
	}
	slices.Sort(p.change)
	return p
}

// next is the warp with the highest priority, once no copy has a higher one.
func (p *priorities) next(m *machine) (*warp, int) {
	for m.fault == nil {
		var w *warp
		for _, x := range m.sched.run {
			if w == nil || p.of[x.id] > p.of[w.id] {
				w = x
			}
		}
		copied := -1
		for i, f := range m.flight {
			if f.priority == 0 {
				f.priority = 1e-9 + m.rng.Float64()
			}
			if (w == nil || f.priority > p.of[w.id]) && (copied < 0 || f.priority > m.flight[copied].priority) {
				copied = i
			}
		}
		if copied >= 0 {
			m.complete(copied)
			continue
		}
		if w == nil {
			return nil, 0
		}
		if p.alone++; w != p.last {
			p.last, p.alone = w, 0
		}
		if len(p.change) > 0 && m.steps >= p.change[0] {
			p.change = p.change[1:]
			p.behind(w)
			continue
		}
		if p.alone > pctPatience {
			p.behind(w)
			p.alone = 0
			continue
		}
		return w, 1
	}
	return nil, 0
}

// behind puts w behind all others.
func (p *priorities) behind(w *warp) {
	p.low--
	p.of[w.id] = p.low
}
