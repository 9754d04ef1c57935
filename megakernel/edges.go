package megakernel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline/machine"
)

// edge is where some of a layer goes from the SMs that compute it to those that need it,
// and what each way of handing it on costs on a machine.
type edge struct {
	name string
	ways []way
}

// way is a Sync or a Merging, what it takes, and spread: half the distance from the least
// to the greatest measurement, both in seconds. Spread is 0 where a cost is put together of
// several figures.
type way struct {
	name            string
	seconds, spread float64
}

// least is the cheapest way.
func (e edge) least() way {
	return slices.MinFunc(e.ways, func(a, b way) int { return cmp.Compare(a.seconds, b.seconds) })
}

// way is one of them by its name.
func (e edge) way(name string) way {
	return e.ways[slices.IndexFunc(e.ways, func(w way) bool { return w.name == name })]
}

// The edges around attention have few bytes between them, so rings are full there and
// memory is quiet: their costs are latencies as they are then, from the last SM's store to
// what its readers need. A word that is polled costs a load more than one that is there.

// queriesEdge is from QKV to attention: queries, and the token's own key and value.
func queriesEdge(m *machine.Machine) edge {
	load := m.LoadSeconds(0)
	return edge{"queries", []way{{name: string(SyncWords), seconds: (attentionLoads + 1) * load},
		{name: string(SyncBarrier), seconds: m.WaitSeconds(0) + attentionLoads*load}}}
}

// statesEdge is from attention's partial states to its output.
func statesEdge(m *machine.Machine) edge {
	load := m.LoadSeconds(0)
	return edge{"partial states",
		[]way{{name: string(MergeWords), seconds: 2 * load}, {name: string(MergePhase), seconds: m.WaitSeconds(0) + load}}}
}

// vectorEdges are from the phases of VectorPhases to the next, each a vector that all SMs
// need: what an exchange of n bytes adds to a stream with usualInFlight bytes in
// flight. A packet, which a machine's file has with 8 bytes of data, carries four elements. None where a machine's file
// does not have all of the ways.
func vectorEdges(c *models.Config, m *machine.Machine) (edges []edge) {
	for _, phase := range VectorPhases() {
		elements, bytes := c.Hidden, 4
		if phase == phaseAttention {
			elements, bytes = c.Heads*c.HeadDim, 2
		}
		e := edge{name: phase}
		for _, h := range []Sync{SyncCounted, SyncBarrier} {
			each := 2
			if h == SyncBarrier {
				each = bytes
			}
			seconds, spread, known := m.VectorSeconds(string(h), elements*each, usualInFlight)
			if !known {
				return nil
			}
			e.ways = append(e.ways, way{string(h), seconds, spread})
		}
		edges = append(edges, e)
	}
	return edges
}

// usualInFlight is how many bytes are in flight on an SM: what the planner has by default.
const usualInFlight = 48 << 10

// ForMachine chooses the syncs of a kernel of one row that options leave open, Queries,
// Merge and Vectors, by what they cost on a machine: Queries and Merge in the cheapest way,
// Vectors by chooseVectors. Vectors stays open with a machine whose file lacks
// figures of vectors in words. The executor's
// figures choose nothing. What is still open when a kernel is built is chosen for
// machine.H200, and then Vectors is SyncCounted or VectorsAll.
func (o Options) ForMachine(c models.Config, m *machine.Machine) Options {
	if o.Tokens > 1 || o.graph() || m.Executor {
		return o
	}
	if o.Queries == "" && o.completeArch(&c) == nil {
		o.Queries = cmp.Or(o.Queries, Sync(queriesEdge(m).least().name))
	}
	o.Merge = cmp.Or(o.Merge, Merging(statesEdge(m).least().name))
	if o.Vectors == "" {
		if o.Vectors = o.chooseVectors(vectorEdges(&c, m)); o.Vectors == string(SyncCounted) {
			o.Vectors = string(o.counted(&c))
		}
	}
	return o
}

// chooseVectors is a barrier where counts cost more than it by more than the noise, over all
// edges together: the spreads of both. Without edges it is empty.
func (o *Options) chooseVectors(edges []edge) string {
	if edges == nil {
		return ""
	}
	more, noise := 0.0, 0.0
	for _, e := range edges {
		if o.mlp().summed(e.name) {
			continue // all SMs add to it
		}
		counted, barrier := e.way(string(SyncCounted)), e.way(string(SyncBarrier))
		more += counted.seconds - barrier.seconds
		noise += counted.spread + barrier.spread
	}
	if more > noise {
		return string(SyncBarrier)
	}
	return string(SyncCounted)
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
			text, digits := "", 2
			if w.seconds >= 10e-6 {
				digits = 1
			}
			if w.spread > 0 {
				text = fmt.Sprintf("±%.*f", digits, w.spread*1e6)
			}
			each = append(each, fmt.Sprintf("%s %.*f%s", w.name, digits, w.seconds*1e6, text))
		}
		t.Row(e.name, here, strings.Join(each, ", "))
	}
	row(queriesEdge(m), string(o.Queries))
	row(statesEdge(m), string(o.Merge))
	vectors := vectorEdges(&mk.Config, m)
	for _, e := range vectors {
		here := SyncBarrier
		if o.handsOn(e.name) {
			here = SyncCounted
		}
		row(e, string(here))
	}
	r.line("\nSyncs that can be had in several ways, on %s", m.GPU)
	r.table(t)
	if vectors == nil {
		r.text("Its file has no figures of vectors in LL packets, so what attention, o and down hand on is not chosen by it: where no flag or profile says other it is %s, and behind a barrier where that cannot be.", o.counted(&mk.Config))
	}
	r.text("Where no flag or profile says other, queries and partial states go the cheapest way. Vectors are chosen together: counted, unless that costs more than barriers by more than the measurements lie apart (±). Around attention: latencies while memory is quiet. Vectors: what an exchange adds to a stream.")
}
