package tests

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/stretchr/testify/require"
)

// redundancy explains mutants that nothing reports: they change nothing the
// memory model can tell.
// docs/RATIONALE.md, "Which synchronisation do mutants show to be redundant?",
// has the reasons in full, with PTX's rules.
type redundancy struct {
	what    string         // the mutated instruction, as mutations name it
	classes []mutate.Class // mutated how
	line    string         // the template's line contains this
	caller  string         // the line it was called from, behind its place, contains this
	regions []string       // in these regions; nil: in any
	why     string
	rule    string // what section of the PTX ISA the reason rests on
}

// The rules of the PTX ISA that make synchronisation redundant, by its sections;
// docs/RATIONALE.md says what each lets one do.
const (
	conflict        = "Conflict and data-races"
	causality       = "Causality order"
	phases          = "Phase Completion of the mbarrier object"
	perLocation     = "Sequential consistency per location"
	synchronization = "Memory synchronization"
)

var (
	moved = []mutate.Class{mutate.Earlier, mutate.Later}
	gone  = []mutate.Class{mutate.Remove, mutate.Earlier, mutate.Later}
)

// table is reasons for survivors.
type table []redundancy

// key tells a reason from others of its table.
func (r *redundancy) key() string { return fmt.Sprint(*r) }

// ringRedundant is what all kernels have: the ring and the loop over steps.
var ringRedundant = table{
	{"wait.mbar @empty", moved[:1], "r.watch.MBar(k, r.empty, stage", "p.Fill(n.MulC(l.TokenBytes())", nil, "passes loads of the page table, which nobody writes", conflict},
	{"wait.mbar @full", gone, "r.watch.landed(k, r.full, last", "", nil, "limits the copies in flight; orders nothing", conflict},
	{"wait.mbar @full", gone, "r.watch.landed(k, r.full, near", "", nil, "limits the copies in flight; orders nothing", conflict},
	{"wait.mbar @empty", moved[1:], "r.watch.MBar(k, r.empty, stage", "", nil, "changes places with that limit", causality},
	{"syncwarp", moved[:1], "k.SyncWarp()", "megakernel/megakernel.go", nil, "passes setting a variable of the thread, behind the load of its value", conflict},
	{"fence.proxy.async", moved, "k.FenceProxyAsyncShared()", "", nil, "stays between the wait for the stage and the copy", causality},
	{"mbar.expect @full", moved, "r.full.ArriveExpect(stage", "", nil, "bytes may complete before they are expected", phases},
	{"syncwarp", gone, "k.SyncWarp()", "p.Fill(", nil, "every lane has waited itself; bytes may complete before they are expected", phases},
	{"mbar.arrive @empty", moved[1:], "r.empty.Arrive(stage)", "", nil, "releases the stage later than it could", causality},
	{"syncwarp", moved[:1], "k.SyncWarp()", "c.Drain", nil, "passes a load of the input vector, which is not in the stage", conflict},
	{"fence.mbarrier_init", gone[:2], "k.FenceMBarInit()", "", nil, "the proxy fence before each copy covers the initialisation", causality},
	{"wait.mbar @full", moved[1:], "c.wait(stage, c.next.parity", "c.Skip()", nil, "nothing is read from a dropped stage", conflict},
	{"syncwarp", gone, "k.SyncWarp()", "c.Skip()", nil, "nothing is read from a dropped stage", conflict},
	{"mbar.arrive @empty", moved[:1], "r.empty.Arrive(stage)", "c.Skip()", nil, "nothing is read from a dropped stage", conflict},
	{"fence.proxy.async", moved[:1], "\tk.FenceProxyAsyncGlobal()", "", nil, "stays between the consumers' word and the copies", causality},
	{"wait.mbar @step_ready", moved[:1], "b.inner.MBar(k, b.stepReady", "", nil, "passes a note of what the producer does, which only a launch given up shows", conflict},
	{"mbar.arrive @step_ack", moved[1:], "b.stepAck.Arrive", "", nil, "tells the consumers later than it could", causality},
}

// redundant is all that kernels of one query row have.
var redundant = append(slices.Clone(ringRedundant), singleRedundant...)

var singleRedundant = table{
	{"bar.sync", gone, "NamedBarrier", "b.bar.Sync", []string{"sync after lm_head"}, "the thread that arrives wrote what the sync publishes", causality},
	{"bar.sync", moved[1:], "NamedBarrier", "e.Sync()", []string{"o", "down"}, "passes a load of the plan row, written once in the prologue", conflict},
	{"bar.sync", moved[:1], "NamedBarrier", "e.Sync() // a CTA without rows", []string{"lm_head"}, "passes a shuffle, which touches no memory", conflict},
	{"bar.sync", gone, "NamedBarrier", "b.env.Sync() // who needs them", nil, "a product's last barrier lies behind the last read of its input, and attention does not use its partial sums", causality},
	{"wait @barrier", append([]mutate.Class{mutate.Count}, gone...), "g.Watch.Until", "b.bar.CountWhile(", nil, "words carry their tags, and there are other counts in a step: this one only keeps SMs from polling words that cannot have come", conflict},
	{"bar.sync", gone, "NamedBarrier", "b.bar.CountWhile(", nil, "attention ends with a barrier of the same warps, and a product's last barrier lies behind the last read of its input", causality},
	{"wait.tag @down_words", append([]mutate.Class{mutate.Weaken}, gone...), "w.Watch.Tagged(", "h.Words.load(", []string{"o", "read ahead of o"}, "all SMs have read the same words in qkv, and a barrier of the warps lies between", causality},
	{"ld @down_words", []mutate.Class{mutate.Weaken}, "b.Load(i, dsl.Relaxed", "h.Words.load(", []string{"read ahead of o"}, "all SMs have read the same words in qkv, and a barrier of the warps lies between", causality},
	{"wait.tag @o_words", append([]mutate.Class{mutate.Weaken}, gone...), "w.Watch.Tagged(", "h.Words.load(", []string{"down", "read ahead of down"}, "all SMs have read the same words in gate_up, and a barrier of the warps lies between", causality},
	{"ld @o_words", []mutate.Class{mutate.Weaken}, "b.Load(i, dsl.Relaxed", "h.Words.load(", []string{"read ahead of down"}, "all SMs have read the same words in gate_up, and a barrier of the warps lies between", causality},
	{"red.add @barrier", moved[1:], "ReduceAdd", "b.bar.SyncWhile(", nil, "arrives behind the first chunk held, which no other SM has to do with: later than it could", causality},
	{"wait @barrier", moved[:1], "g.Watch.Until", "b.bar.SyncWhile(", nil, "holds the last chunk behind the sync: later than it could", causality},
	{"wait.mbar @full", moved[:1], "c.wait(stage, c.next.parity", "tasks/held.go", nil, "passes the release of the chunk before, which comes later than it could", causality},
	{"wait.mbar @full", moved[:1], "c.wait(stage, c.next.parity", "c.DrainAt(", []string{"qkv", "o", "gate_up", "down", "lm_head"}, "passes a load of the input, which is not in the stage", conflict},
}

// barrierRedundant is what attention behind a barrier and before one, and a producer that
// leads, have beside those.
var barrierRedundant = table{
	{"bar.sync", gone, "NamedBarrier", "b.bar.Sync", []string{"sync after attention"}, "attention ends with a barrier of the same warps", causality},
}

// raggedRedundant is what ragged kernels have beside ringRedundant.
var raggedRedundant = table{
	{"bar.cta", moved[:1], "k.Barrier()", "", []string{"prologue"}, "passes the store of the query rows, which are read behind a barrier of the consumer warps, or behind their word to the producer", causality},
	{"bar.sync", gone, "NamedBarrier", "columnrows.go", []string{"rows"}, "a thread reads no row but its own before the next sync", causality},
	{"bar.sync", moved[1:], "NamedBarrier", "tail.go", nil, "passes a load of the item, written once in the prologue", conflict},
	{"fence.proxy.async", []mutate.Class{mutate.Remove}, "\tk.FenceProxyAsyncGlobal()", "", nil, "an SM that copies tokens of an earlier step fenced behind their stores then, before it copied them as new ones", causality},
	{"fence.proxy.async", moved, "k.FenceProxyAsync()", "it.fetchNew(s)", nil, "stays between the sync and the copies", causality},
	{"mbar.expect @fresh", moved, "ArriveExpect", "Fresh.Expect", nil, "bytes may complete before they are expected", phases},
	{"syncwarp", gone, "k.SyncWarp()", "it.fetchNew(s)", nil, "each lane fences before its copy; bytes may complete before they are expected", phases},
	{"bar.sync", moved[:1], "NamedBarrier", "e.Sync() // Scratch, which share has read", nil, "passes stores to global memory, which the barrier does not guard", conflict},
}

// attentionRedundant is what attention-only kernels have beside those.
var attentionRedundant = table{
	{"fence.proxy.async", []mutate.Class{mutate.Weaken}, "k.FenceProxyAsync()", "it.fetchNew(s)", nil, "the host has written the new tokens", synchronization},
	{"bar.sync", gone[:2], "NamedBarrier", "bar.Sync", []string{"sync after merge"}, "the next layer's items begin with a barrier", causality},
	{"bar.sync", []mutate.Class{mutate.Remove, mutate.Later}, "NamedBarrier", "bar.Sync", []string{"sync after attention"}, "the states have been polled before a barrier; what is written behind it the host alone reads", causality},
}

// A survivor means a blind executor until a rule of PTX says that the mutant is as good.
func TestEveryReasonNamesARuleThatRationaleExplains(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "RATIONALE.md"))
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## Which synchronisation do mutants show to be redundant?\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, r := range slices.Concat(redundant, barrierRedundant, raggedRedundant, attentionRedundant) {
		require.NotEmpty(t, r.rule, "%s: %s", r.what, r.why)
		require.Contains(t, section, "\n- *"+r.rule+"*", "%s: %s", r.what, r.why)
	}
}

// explain finds the reason why m may survive; nil for none.
func (reasons table) explain(t *testing.T, m mutate.Mutation) *redundancy {
	t.Helper()
	for i := range reasons {
		r := &reasons[i]
		what := string(m.Class) + " " + r.what
		if m.Name != what && !strings.HasPrefix(m.Name, what+": ") || !slices.Contains(r.classes, m.Class) || r.regions != nil && !slices.Contains(r.regions, m.Region) {
			continue
		}
		if strings.Contains(sourceLine(t, m.Pos.Line), r.line) && strings.Contains(m.Pos.Caller+": "+sourceLine(t, m.Pos.Caller), r.caller) {
			return r
		}
	}
	return nil
}

// sourceLine is the text of "tasks/gemv.go:40"; "" for no place.
func sourceLine(t *testing.T, place string) string {
	t.Helper()
	file, number, ok := strings.Cut(place, ":")
	if !ok {
		return ""
	}
	n, err := strconv.Atoi(number)
	require.NoError(t, err)
	var found []string
	for _, above := range []string{"", "*"} { // a place names a file and its directory only
		more, err := filepath.Glob(filepath.Join("..", above, filepath.FromSlash(file)))
		require.NoError(t, err)
		found = append(found, more...)
	}
	require.Len(t, found, 1, place)
	f, err := os.Open(found[0])
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	for i := 1; lines.Scan(); i++ {
		if i == n {
			return lines.Text()
		}
	}
	require.FailNow(t, "no such line", place)
	return ""
}
