package tests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/stretchr/testify/require"
)

// Excuses say why mutants that nothing reports may be left: they change nothing the memory model
// can tell. docs/RATIONALE.md, "Which synchronisation do mutants show to be redundant?", has the
// reasons in full, with PTX's rules.

var (
	earlier = []mutate.Class{mutate.Earlier}
	later   = []mutate.Class{mutate.Later}
	counts  = []mutate.Class{mutate.Count, mutate.Remove, mutate.Earlier, mutate.Later}
	weaker  = []mutate.Class{mutate.Weaken, mutate.Remove, mutate.Earlier, mutate.Later}
)

// ringExcuses is what all kernels have: the ring and the loop over steps.
var ringExcuses = mutate.Excuses{
	{Op: "wait.mbar @empty", Classes: earlier, Role: "producer", Front: "ld @page_table | ld @kv_indices",
		Why: "passes loads of the page table, which nobody writes", Rule: mutate.Conflict},
	{Op: "wait.mbar @full", Classes: mutate.Gone, Role: "producer", Front: "wait.mbar @empty | mbar.test @empty",
		Why: "limits the copies in flight; orders nothing", Rule: mutate.Conflict},
	{Op: "wait.mbar @empty", Classes: later, Role: "producer", Behind: "wait.mbar @full",
		Why: "changes places with that limit", Rule: mutate.Causality},
	{Op: "fence.proxy.async.shared", Classes: mutate.Moved, Role: "producer",
		Front: "wait.mbar @empty | wait.mbar @full", Behind: "mbar.expect @full",
		Why: "stays between the wait for the stage and the copy", Rule: mutate.Causality},
	{Op: "mbar.expect @full", Classes: mutate.Moved, Role: "producer", Front: "fence.proxy.async.shared",
		Behind: "syncwarp", Why: "bytes may complete before they are expected", Rule: mutate.Phases},
	{Op: "syncwarp", Classes: earlier, Role: "producer", Front: "mbar.expect @full", Behind: "bulk.g2s @ring*",
		Why: "all lanes have still waited for the stage before a copy, whose bytes the phase lacks", Rule: mutate.Phases},
	{Op: "mbar.arrive @empty", Classes: later, Role: "consumers", Front: "syncwarp",
		Behind: "wait.mbar @full | ld @input | st @partials | st @scratch_or_partials",
		Why:    "releases the stage later than it could", Rule: mutate.Causality},
	{Op: "syncwarp", Classes: earlier, Role: "consumers", Front: "ld @input", Behind: "mbar.arrive @empty",
		Why: "passes a load of the input vector, which is not in the stage", Rule: mutate.Conflict},
	{Op: "fence.mbarrier_init", Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Front: "mbar.init @empty",
		Why: "the proxy fence before each copy covers the initialisation", Rule: mutate.Causality},
	{Op: "fence.proxy.async.global", Classes: earlier, Role: "producer", Front: "mbar.arrive @step_ack",
		Why: "stays between the consumers' word and the copies", Rule: mutate.Causality},
	{Op: "wait.mbar @step_ready", Classes: earlier, Role: "producer", Front: "st @notes",
		Why: "passes a note of what the producer does, which only a launch given up shows", Rule: mutate.Conflict},
	{Op: "mbar.arrive @step_ack", Classes: later, Role: "producer", Behind: "fence.proxy.async.global",
		Why: "tells the consumers later than it could", Rule: mutate.Causality},
}

// singleExcuses is all that kernels of one query row have.
var singleExcuses = slices.Concat(ringExcuses, mutate.Excuses{
	{Op: "syncwarp", Classes: later, Role: "consumers", Front: "st @units | st @input_sums",
		Behind: "st @scratch | ld @own",
		Why:    "passes a store that other warps read behind a barrier, or a load of what no thread of a launch writes",
		Rule:   mutate.Causality},
	{Op: "bar.sync", Classes: mutate.Gone, Role: "consumers", Regions: []string{"sync after lm_head"},
		Front: "st @best_index", Behind: "red.add.release @barrier",
		Why: "the thread that arrives wrote what the sync publishes", Rule: mutate.Causality},
	{Op: "bar.sync", Classes: mutate.Gone, Role: "consumers", Regions: []string{"sync after lm_head"},
		Front: "wait.acquire @barrier", Behind: "ld @best",
		Why: "the thread that waits is the one that reads what the sync publishes", Rule: mutate.Causality},
	{Op: "bar.sync", Classes: later, Role: "consumers", Regions: []string{"o", "down"},
		Front: "st @input | st @input_sums | st @units", Behind: "ld @own | ld @first_turn",
		Why: "passes a load of the plan row, written once in the prologue", Rule: mutate.Conflict},
	{Op: "bar.sync", Classes: earlier, Role: "consumers", Regions: []string{"lm_head"}, Front: "st @logits",
		Behind: "st @scratch", Why: "passes a shuffle, which touches no memory", Rule: mutate.Conflict},
	{Op: "bar.sync", Classes: mutate.Gone, Role: "consumers", Front: "fence.proxy.async.global",
		Behind: "ld @query_words",
		Why:    "a product's last barrier lies behind the last read of its input, and attention does not use its partial sums",
		Rule:   mutate.Causality},
	{Op: "wait.relaxed @barrier", Classes: counts, Role: "consumers",
		Regions: []string{"sync after attention", "sync after o", "sync after gate_up", "sync after down"},
		Front:   "mbar.arrive @empty | wait.tag @down_words | ld @gains | ld @own | wait.acquire @barrier",
		Behind:  "bar.sync",
		Why:     "packets carry their flags, and there are other counts in a step: this one only keeps SMs from polling packets that cannot have come",
		Rule:    mutate.Conflict},
	{Op: "bar.sync", Classes: mutate.Gone, Role: "consumers",
		Regions: []string{"sync after attention", "sync after o", "sync after gate_up", "sync after down"},
		Front:   "wait.relaxed @barrier",
		Behind:  "ld @attn_words | ld @o_words | ld @act_words | ld @own | ld @stop_requested",
		Why:     "attention ends with a barrier of the same warps, and a product's last barrier lies behind the last read of its input",
		Rule:    mutate.Causality},
	{Op: "wait.tag @down_words", Classes: weaker, Role: "consumers", Regions: []string{"o", "read ahead of o"},
		Front: "ld @down_words", Why: "all SMs have read the same packets in qkv, and a barrier of the warps lies between",
		Rule: mutate.Causality},
	{Op: "ld @down_words", Classes: []mutate.Class{mutate.Weaken}, Role: "consumers",
		Regions: []string{"read ahead of o"}, Behind: "wait.tag @down_words",
		Why:  "all SMs have read the same packets in qkv, and a barrier of the warps lies between",
		Rule: mutate.Causality},
	{Op: "wait.tag @o_words", Classes: weaker, Role: "consumers", Regions: []string{"down", "read ahead of down"},
		Front: "ld @o_words",
		Why:   "all SMs have read the same packets in gate_up, and a barrier of the warps lies between",
		Rule:  mutate.Causality},
	{Op: "ld @o_words", Classes: []mutate.Class{mutate.Weaken}, Role: "consumers",
		Regions: []string{"read ahead of down"}, Behind: "wait.tag @o_words",
		Why:  "all SMs have read the same packets in gate_up, and a barrier of the warps lies between",
		Rule: mutate.Causality},
	{Op: "red.add.release @barrier", Classes: later, Role: "consumers", Front: "bar.sync",
		Regions: []string{"sync after qkv", "sync after attention", "sync after merge", "sync after o",
			"sync after gate_up", "sync after down"},
		Why:  "arrives behind the first chunk held, which no other SM has to do with: later than it could",
		Rule: mutate.Causality},
	{Op: "wait.acquire @barrier", Classes: earlier, Role: "consumers", Front: "mbar.arrive @empty", Behind: "bar.sync",
		Why: "holds the last chunk behind the sync: later than it could", Rule: mutate.Causality},
	{Op: "wait.acquire @barrier", Classes: earlier, Role: "consumers", Front: "wait.tag @o_words", Behind: "bar.sync",
		Why: "reads packets ahead behind the sync, which carry their flags: later than it could", Rule: mutate.Causality},
	{Op: "wait.mbar @full", Classes: earlier, Role: "consumers",
		Regions: []string{"chunks held for qkv", "chunks held for o", "chunks held for gate_up", "chunks held for down",
			"chunks held for lm_head"},
		Behind: "ld @ring", Why: "passes the release of the chunk before, which comes later than it could",
		Rule: mutate.Causality},
	{Op: "wait.mbar @full", Classes: earlier, Role: "consumers", Front: "ld @input | ld @units", Behind: "ld @ring",
		Why:  "passes a load of the input, or of its units, which consumers have written and which are not in the stage",
		Rule: mutate.Conflict},
	{Op: "wait.mbar @full", Classes: earlier, Role: "consumers", Front: "st @partials", Behind: "ld @ring",
		Why: "passes a store of sums, which are read behind a barrier and are not in the stage", Rule: mutate.Conflict},
})

// drawExcuses is what kernels of one row have that draw.
var drawExcuses = mutate.Excuses{
	{Op: "bar.sync", Classes: earlier, Role: "consumers", Regions: []string{"lm_head"}, Front: "st @draw_bins",
		Why: "passes the clearing of histograms in global memory, which the sync behind guards", Rule: mutate.Conflict},
	{Op: "bar.sync", Classes: later, Role: "consumers", Regions: []string{"lm_head"},
		Front: "st @draw_bins | wait.acquire @masks_ready", Behind: "ld @draws",
		Why: "passes a load of the row's parameters, which no thread of a launch writes", Rule: mutate.Conflict},
	{Op: "bar.sync", Classes: later, Role: "consumers", Regions: []string{"choose"},
		Front: "st @input | red.add.relaxed @input", Behind: "ld @draw_state",
		Why: "passes a load of the row's state, which the barrier before has published", Rule: mutate.Causality},
	{Op: "bar.sync", Classes: earlier, Role: "consumers", Regions: []string{"choose"}, Front: "red.add.relaxed @input",
		Behind: "ld @draw_state", Why: "passes the counts of a list, which the warp that counts reads behind the next barrier",
		Rule: mutate.Causality},
	{Op: "bar.sync", Classes: mutate.Gone, Role: "consumers", Regions: []string{"choose"}, Front: "wait.acquire @barrier",
		Behind: "ld @draw_state",
		Why:    "the thread that waits is the one that reads the list's length; the others wait at the next barrier",
		Rule:   mutate.Causality},
	{Op: "bar.sync", Classes: mutate.Gone, Role: "consumers", Regions: []string{"choose"}, Front: "st @draw_records",
		Behind: "red.add.release @barrier", Why: "the thread that arrives wrote what the sync publishes",
		Rule: mutate.Causality},
	{Op: "syncwarp", Classes: later, Role: "consumers", Regions: []string{"choose"}, Behind: "ld @draws",
		Why: "passes a load of the row's parameters, which no thread of a launch writes", Rule: mutate.Conflict},
}

// barrierExcuses is what attention behind a barrier and before one, and a producer that
// leads, have beside those.
var barrierExcuses = mutate.Excuses{
	{Op: "bar.sync", Classes: mutate.Gone, Role: "consumers", Regions: []string{"sync after attention"},
		Front: "bar.sync", Behind: "red.add.release @barrier", Why: "attention ends with a barrier of the same warps",
		Rule: mutate.Causality},
	{Op: "bar.sync", Classes: mutate.Gone, Role: "consumers", Regions: []string{"sync after attention"},
		Front: "wait.acquire @barrier", Behind: "ld @states", Why: "attention ends with a barrier of the same warps",
		Rule: mutate.Causality},
}

// raggedExcuses is what ragged kernels have beside ringExcuses.
var raggedExcuses = mutate.Excuses{
	{Op: "bar.cta", Classes: earlier, Regions: []string{"prologue"}, Front: "st @first_rows",
		Why:  "passes the store of the query rows, which are read behind a barrier of the consumer warps, or behind their word to the producer",
		Rule: mutate.Causality},
	{Op: "bar.sync", Classes: mutate.Gone, Role: "consumers", Regions: []string{"rows"}, Front: "st @row_pages",
		Behind: "ld @row_pages", Why: "a thread reads no row but its own before the next sync", Rule: mutate.Causality},
	{Op: "bar.sync", Classes: later, Role: "consumers", Front: "st @attention_scratch | st @scratch_or_partials",
		Behind: "ld @items", Why: "passes a load of the item, written once in the prologue", Rule: mutate.Conflict},
	{Op: "fence.proxy.async.global", Classes: []mutate.Class{mutate.Remove}, Role: "producer",
		Front: "mbar.arrive @step_ack",
		Why:   "an SM that copies tokens of an earlier step fenced behind their stores then, before it copied them as new ones",
		Rule:  mutate.Causality},
	{Op: "fence.proxy.async", Classes: mutate.Moved, Role: "consumers", Front: "ld @kv_indices",
		Behind: "mbar.expect @fresh", Why: "stays between the sync and the copies", Rule: mutate.Causality},
	{Op: "mbar.expect @fresh", Classes: mutate.Moved, Role: "consumers", Front: "fence.proxy.async", Behind: "syncwarp",
		Why: "bytes may complete before they are expected", Rule: mutate.Phases},
	{Op: "syncwarp", Classes: mutate.Gone, Role: "consumers", Front: "mbar.expect @fresh", Behind: "bulk.g2s *",
		Why: "each lane fences before its copy; bytes may complete before they are expected", Rule: mutate.Phases},
	{Op: "bar.sync", Classes: earlier, Role: "consumers", Regions: []string{"lm_head"}, Front: "st @draw_bins",
		Why: "passes the clearing of histograms in global memory, which the sync behind guards", Rule: mutate.Conflict},
	{Op: "bar.sync", Classes: later, Role: "consumers", Regions: []string{"choose"},
		Front: "red.add.relaxed @scratch_or_partials", Behind: "ld @draw_state",
		Why: "passes a load of a row's state, which a barrier before has published", Rule: mutate.Causality},
	{Op: "syncwarp", Classes: later, Role: "consumers", Regions: []string{"choose"}, Behind: "ld @draws",
		Why: "passes a load of a row's parameters, which no thread of a launch writes", Rule: mutate.Conflict},
	{Op: "bar.sync", Classes: earlier, Role: "consumers", Front: "st @states",
		Behind: "st @attention_scratch | st @scratch_or_partials",
		Why:    "passes stores to global memory, which the barrier does not guard", Rule: mutate.Conflict},
}

// attentionExcuses is what attention-only kernels have beside those.
var attentionExcuses = mutate.Excuses{
	{Op: "fence.proxy.async", Classes: []mutate.Class{mutate.Weaken}, Role: "consumers", Front: "ld @kv_indices",
		Behind: "mbar.expect @fresh", Why: "the host has written the new tokens", Rule: mutate.Synchronization},
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Role: "consumers",
		Regions: []string{"sync after merge"}, Front: "wait.acquire @barrier", Behind: "ld @items | st @epoch",
		Why: "the next layer's items begin with a barrier", Rule: mutate.Causality},
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove, mutate.Later}, Role: "consumers",
		Regions: []string{"sync after attention"}, Front: "wait.acquire @barrier", Behind: "ld @items",
		Why:  "the states have been polled before a barrier; what is written behind it the host alone reads",
		Rule: mutate.Causality},
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove}, Role: "consumers", Regions: []string{"sync after merge"},
		Front: "st @out", Behind: "red.add.release @barrier", Why: "the next layer's items begin with a barrier",
		Rule: mutate.Causality},
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove, mutate.Later}, Role: "consumers",
		Regions: []string{"sync after attention"}, Front: "st @out", Behind: "red.add.release @barrier",
		Why:  "the states have been polled before a barrier; what is written behind it the host alone reads",
		Rule: mutate.Causality},
}

// A survivor means a blind executor until a rule of PTX says that the mutant is as good.
func TestRationaleExplainsEveryRule(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "RATIONALE.md"))
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## Which synchronisation do mutants show to be redundant?\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, r := range mutate.Rules() {
		require.Contains(t, section, "\n- *"+string(r)+"*")
	}
}
