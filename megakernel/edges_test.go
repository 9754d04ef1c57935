package megakernel

import (
	"bytes"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/require"
)

// handsOver is the H200 with made-up figures of a vector: what each way adds to a stream,
// in µs, of a vector of 8 KiB and of one of 16, while 2 to 4 copies are in flight.
func handsOver(barrier, counted [2]float64) *machine.Machine {
	m := machine.H200()
	figure := func(us float64) *machine.Figure { return &machine.Figure{Median: us, Min: us, Max: us} }
	m.Exchanges = nil
	for _, copies := range []int{0, 2, 4} {
		for i, bytes := range []int{8 << 10, 16 << 10} {
			e := machine.Exchange{InFlight: copies, VectorBytes: bytes, Wait: *figure(1), Read: *figure(1)}
			if copies > 0 {
				e.Unhidden = figure(barrier[i])
				e.Counted = &machine.Way{Took: *figure(1), Unhidden: figure(counted[i])}
			}
			m.Exchanges = append(m.Exchanges, e)
		}
	}
	return m
}

func TestSyncsAreTheCheapestOfAMachine(t *testing.T) {
	c, err := models.Lookup("llama3.2-1b") // 2048 elements: 8 KiB in words; attention's output behind a barrier is 4 KiB
	require.NoError(t, err)
	slow := machine.H200() // a word that is polled costs more than a barrier
	slow.Idle.Load.Median, slow.Idle.Atomic.Median = 3, 3
	quick := machine.H200() // the release before an atomic is still there
	quick.Idle.Atomic.Median = 0.15
	old := machine.H200() // as files from before there were words
	for i := range old.Exchanges {
		old.Exchanges[i].Counted, old.Exchanges[i].Words = nil, nil
	}
	for _, x := range []struct {
		name    string
		m       *machine.Machine
		o       Options
		queries Sync
		merge   Merging
		vectors string
	}{
		{"built in", machine.H200(), Options{}, SyncWords, MergeWords, "counted"},
		{"atomics are as quick as loads", quick, Options{}, SyncWords, MergeWords, "counted"},
		{"loads are slower than barriers", slow, Options{}, SyncBarrier, MergePhase, "counted"},
		{"no figures of words", old, Options{}, SyncWords, MergeWords, ""},
		{"counts are cheapest", handsOver([2]float64{2, 3}, [2]float64{1, 2}), Options{}, SyncWords, MergeWords, "counted"},
		{"barriers are", handsOver([2]float64{1, 3}, [2]float64{1.5, 2}), Options{}, SyncWords, MergeWords, "barrier"},
		{"what flags say stays", handsOver([2]float64{1, 3}, [2]float64{1.5, 2}),
			Options{Queries: SyncBarrier, Merge: MergePhase, Vectors: "counted"}, SyncBarrier, MergePhase, "counted"},
		{"not down's with a fused MLP", handsOver([2]float64{2, 3}, [2]float64{1, 2}), Options{MLP: MLPFused}, SyncWords,
			MergeWords, "counted"},
		{"several rows", handsOver([2]float64{2, 3}, [2]float64{1, 2}), Options{Tokens: 8}, "", "", ""},
		{"a graph", handsOver([2]float64{2, 3}, [2]float64{1, 2}), Options{Launch: LaunchGraph}, "", "", ""},
	} {
		got := x.o.ForMachine(c, x.m)
		require.Equal(t, []string{string(x.queries), string(x.merge), x.vectors},
			[]string{string(got.Queries), string(got.Merge), got.Vectors}, x.name)
		_, err := Build(c, got)
		require.NoError(t, err, x.name)
	}
	executor := handsOver([2]float64{1, 3}, [2]float64{2, 2})
	executor.Executor = true
	require.Equal(t, Options{}, Options{}.ForMachine(c, executor), "its figures mean nothing")
}

// Edges differ by their vectors' lengths: those of 8B's residual take 16 KiB behind a
// barrier, attention's output 8, and both are looked up as 8 in packets.
func TestAnEdgeCostsWhatItsBytesDo(t *testing.T) {
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	edges := vectorEdges(&c, handsOver([2]float64{1, 3}, [2]float64{9, 2}))
	require.InDelta(t, 1e-6, edges[0].way("barrier").seconds, 1e-12)
	require.InDelta(t, 9e-6, edges[0].way("counted").seconds, 1e-12)
	require.InDelta(t, 3e-6, edges[1].way("barrier").seconds, 1e-12)
	require.InDelta(t, 9e-6, edges[1].way("counted").seconds, 1e-12)
}

// Counts stay unless they cost more, over all edges, than the measurements of both lie apart; a
// fused MLP has none behind down.
func TestVectorsAreCountedUnlessThatIsDearer(t *testing.T) {
	edges := func(counted, barrier way) (all []edge) {
		counted.name, barrier.name = string(SyncCounted), string(SyncBarrier)
		for _, phase := range VectorPhases() {
			all = append(all, edge{phase, []way{counted, barrier}})
		}
		return all
	}
	o := &Options{Queries: SyncWords, Merge: MergeWords}
	require.Equal(t, "counted", o.chooseVectors(edges(way{seconds: 1.3, spread: 0.2}, way{seconds: 1, spread: 0.11})))
	require.Equal(t, "barrier", o.chooseVectors(edges(way{seconds: 1.3, spread: 0.2}, way{seconds: 1, spread: 0.09})))
	require.Equal(t, "counted", o.chooseVectors(edges(way{seconds: 1}, way{seconds: 1})), "as dear as a barrier")
	mixed := edges(way{seconds: 1}, way{seconds: 2})
	mixed[0].ways[0].seconds = 4.5
	require.Equal(t, "barrier", o.chooseVectors(append(mixed[:1:1], mixed[1])), "attention's loss is more than o's gain")
	require.Equal(t, "barrier", o.chooseVectors(mixed), "and than o's and down's")
	mixed[0].ways[0].seconds = 3.5
	require.Equal(t, "counted", o.chooseVectors(mixed))
	o.MLP = MLPFused
	require.Equal(t, "barrier", o.chooseVectors(mixed), "down's gain is none")
}

func TestExplainSaysWhatEachWayCosts(t *testing.T) {
	mk := build(t, "llama3-8b", Options{})
	text := func(m *machine.Machine) string {
		var b bytes.Buffer
		require.NoError(t, mk.Explain(&b, m))
		return b.String()
	}
	require.Regexp(t, `\n  o +counted +counted 9.00, barrier 3.00\n`, text(handsOver([2]float64{1, 3}, [2]float64{9, 2})))
	require.Regexp(t, `\n  queries +words +words 0\.\d\d, barrier `, text(machine.H200()))
	require.Regexp(t, `\n  attention       counted  counted \d\.\d\d±\d\.\d\d, barrier \d\.\d\d±\d\.\d\d\n`,
		text(machine.H200()))
	wide := handsOver([2]float64{1, 3}, [2]float64{12.34, 9})
	for i := range wide.Exchanges {
		if w := wide.Exchanges[i].Counted; w != nil {
			w.Unhidden.Min, w.Unhidden.Max = w.Unhidden.Median-1, w.Unhidden.Median+2
		}
	}
	require.Regexp(t, `\n  o +counted +counted 12.3±1.5, barrier 3.00\n`, text(wide),
		"from 10 µs on one digit behind the point")
	require.NotContains(t, text(machine.H200()), "no figures")
	old := machine.H200()
	old.Exchanges = slices.DeleteFunc(old.Exchanges,
		func(e machine.Exchange) bool { return e.VectorBytes > 0 && e.InFlight > 0 })
	require.Regexp(t, `\n  partial states .*\n  Its file has no figures of vectors in LL packets, so what attention, o and\n`, text(old), "no row of vectors")
	executor := handsOver([2]float64{1, 3}, [2]float64{9, 2})
	executor.Executor = true
	explained := text(executor)
	require.Contains(t, explained,
		"\nNothing is predicted\n  The machine's file is of the executor, whose figures mean nothing: ")
	for _, figure := range []string{"redicted,", "predicted at", "GB/s", "µs", "Syncs that can be had"} {
		require.NotContains(t, explained, figure)
	}
	require.Contains(t, explained, "\nShares: ")
	require.Contains(t, explained, "\nKV cache\n")
}
