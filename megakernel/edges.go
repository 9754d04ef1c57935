package megakernel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/megakernel/machine"
	"github.com/mkgen/mkgen/models"
)

// edge is where some of a layer goes from the SMs that compute it to those that need it,
// and what each way of handing it on costs on a machine, the one that wins a tie first.
type edge struct {
	name string
	ways []way
}

// way is a Handoff or a Merging, and what it takes in seconds.
type way struct {
	name    string
	seconds float64
}

// least is the cheapest way.
func (e edge) least() way {
	return slices.MinFunc(e.ways, func(a, b way) int { return cmp.Compare(a.seconds, b.seconds) })
}

// of is what a way costs.
func (e edge) of(name string) float64 {
	return e.ways[slices.IndexFunc(e.ways, func(w way) bool { return w.name == name })].seconds
}

// The edges around attention have few bytes between them, so rings are full there and
// memory is quiet: their costs are latencies as they are then, from the last SM's store to
// what its readers need. A word that is polled costs a load more than one that is there.

// queriesEdge is from QKV to attention: queries, and the token's own key and value.
func queriesEdge(m *machine.Machine) edge {
	load := m.LoadSeconds(0)
	return edge{"queries", []way{{string(HandoffWords), (attentionLoads + 1) * load}, {string(HandoffBarrier), m.WaitSeconds(0) + attentionLoads*load}}}
}

// statesEdge is from attention's partial states to its output. MergeInput is not among
// the ways: it costs what the splits make of it, and attention wants as many as it can have.
func statesEdge(m *machine.Machine) edge {
	load := m.LoadSeconds(0)
	return edge{"partial states", []way{{string(MergeWords), 2 * load}, {string(MergeLast), m.AtomicSeconds() + load}, {string(MergePhase), m.WaitSeconds(0) + load}}}
}

// vectorEdges are from the phases of VectorPhases to the next, each a vector that all SMs
// need: what an exchange of so many bytes adds to a stream with that many copies in flight.
// A word carries two elements, in place of 8 bytes. None where a machine's file does not
// have all of the ways.
func vectorEdges(c *models.Config, m *machine.Machine, copies int) (edges []edge) {
	for _, phase := range VectorPhases() {
		elements, bytes := c.Hidden, 4
		if phase == phaseAttention {
			elements, bytes = c.Heads*c.HeadDim, 2
		}
		e := edge{name: phase}
		for _, h := range vectorWays() {
			each := 4
			if h == HandoffBarrier {
				each = bytes
			}
			s, known := m.VectorSeconds(string(h), elements*each, copies)
			if !known {
				return nil
			}
			e.ways = append(e.ways, way{string(h), s})
		}
		edges = append(edges, e)
	}
	return edges
}

// usualInFlight is how many copies a machine is asked about where options leave it open.
const usualInFlight = 3

// ForMachine chooses the hand-offs of a kernel of one row that options leave open, Queries,
// Merge and Vectors, as they cost least on a machine, edge by edge. Of a machine whose file
// lacks figures of vectors in words, or is the executor's, these stay open; what is open
// when a kernel is built is chosen for machine.H200, or else HandoffCounted.
func (o Options) ForMachine(c models.Config, m *machine.Machine) Options {
	if o.Tokens > 1 || o.graph() || m.Executor {
		return o
	}
	o.Queries = cmp.Or(o.Queries, Handoff(queriesEdge(m).least().name))
	o.Merge = cmp.Or(o.Merge, Merging(statesEdge(m).least().name))
	if o.Vectors == "" {
		o.Vectors = o.chooseVectors(vectorEdges(&c, m, cmp.Or(o.InFlight, usualInFlight)))
	}
	return o
}

// chooseVectors is the cheapest value of Vectors: of the phases whose vectors gain by it
// all are handed on in the same way that is no barrier. Without edges it is empty.
func (o *Options) chooseVectors(edges []edge) string {
	best, least := "", 0.0
	for _, h := range []Handoff{HandoffCounted, HandoffWords} {
		total, phases := 0.0, []string(nil)
		for _, e := range edges {
			barrier, here := e.of(string(HandoffBarrier)), e.of(string(h))
			may := o.MLP != MLPFused || e.name != phaseDown
			if may && here <= barrier {
				phases = append(phases, e.name)
			}
			total += min(barrier, here)
		}
		if phases == nil {
			continue
		}
		with := *o
		with.Vectors = string(h) + ":" + strings.Join(phases, ",")
		if with.completeVectors() != nil { // no barrier would stand before o, where its vector must be in words
			i := slices.IndexFunc(edges, func(e edge) bool { return e.name == phaseO })
			total += edges[i].of(string(h)) - edges[i].of(string(HandoffBarrier))
			with.Vectors += "," + phaseO
			if err := with.completeVectors(); err != nil {
				panic("BUG: " + err.Error())
			}
		}
		if best == "" || total < least {
			best, least = with.Vectors, total
		}
	}
	if best == "" && edges != nil {
		return string(HandoffBarrier)
	}
	return best
}

// reportEdges says what every way costs on a machine, beside what the kernel does.
func (mk *Kernel) reportEdges(r *report, m *machine.Machine) {
	o := &mk.Options
	if mk.Ragged() || o.graph() {
		return
	}
	t := table.New("edge", "here", "µs of each way")
	row := func(e edge, here string) {
		var each []string
		for _, w := range e.ways {
			each = append(each, fmt.Sprintf("%s %.2f", w.name, w.seconds*1e6))
		}
		t.Row(e.name, here, strings.Join(each, ", "))
	}
	row(queriesEdge(m), string(o.Queries))
	row(statesEdge(m), string(o.Merge))
	vectors := vectorEdges(&mk.Config, m, mk.Plan.InFlight)
	for _, e := range vectors {
		here := HandoffBarrier
		if way, phases := o.vectorsIn(); slices.Contains(phases, e.name) {
			here = way
		}
		row(e, string(here))
	}
	r.line("\nHand-offs that can be had in several ways, on %s", m.GPU)
	r.table(t)
	if vectors == nil {
		r.text("Its file has no figures of vectors in words with tags: where no flag says other, those of attention, o and down are %s.", vectorWays()[0])
	}
	if m.Executor {
		r.text("The executor's figures choose nothing.")
		return
	}
	r.text("Where no flag or profile says other the cheapest is taken. Around attention: latencies while memory is quiet. Vectors: what an exchange adds to a stream.")
}
