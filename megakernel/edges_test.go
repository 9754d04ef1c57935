package megakernel

import (
	"bytes"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/megakernel/machine"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// handsOver is the H200 with made-up figures of a vector: what each way adds to a stream,
// in µs, of a vector of 8 KiB and of one of 16, while 2 to 4 copies are in flight.
func handsOver(barrier, counted, words [2]float64) *machine.Machine {
	m := machine.H200()
	figure := func(us float64) *machine.Figure { return &machine.Figure{Median: us, Min: us, Max: us} }
	m.Exchanges = nil
	for _, copies := range []int{0, 2, 4} {
		for i, bytes := range []int{8 << 10, 16 << 10} {
			e := machine.Exchange{InFlight: copies, VectorBytes: bytes, Wait: *figure(1), Read: *figure(1)}
			if copies > 0 {
				e.Unhidden = figure(barrier[i])
				e.Counted = &machine.Way{Took: *figure(1), Unhidden: figure(counted[i])}
				e.Words = &machine.Way{Took: *figure(1), Unhidden: figure(words[i])}
			}
			m.Exchanges = append(m.Exchanges, e)
		}
	}
	return m
}

func TestHandoffsAreTheCheapestOfAMachine(t *testing.T) {
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
		queries Handoff
		merge   Merging
		vectors string
	}{
		{"built in", machine.H200(), Options{}, HandoffWords, MergeWords, "counted"},
		{"atomics are as quick as loads", quick, Options{}, HandoffWords, MergeWords, "counted"},
		{"loads are slower than barriers", slow, Options{}, HandoffBarrier, MergePhase, "counted"},
		{"no figures of words", old, Options{}, HandoffWords, MergeWords, ""},
		{"counts are cheapest", handsOver([2]float64{2, 3}, [2]float64{1, 2}, [2]float64{1.5, 2.5}), Options{}, HandoffWords, MergeWords, "counted"},
		{"words are", handsOver([2]float64{2, 3}, [2]float64{1.5, 2}, [2]float64{1, 2.5}), Options{}, HandoffWords, MergeWords, "words"},
		{"barriers are", handsOver([2]float64{1, 3}, [2]float64{1.5, 2}, [2]float64{1.1, 2.5}), Options{}, HandoffWords, MergeWords, "barrier"},
		{"what flags say stays", handsOver([2]float64{1, 3}, [2]float64{1.5, 2}, [2]float64{1.1, 2.5}), Options{Queries: HandoffBarrier, Merge: MergeLast, Vectors: "counted:o"}, HandoffBarrier, MergeLast, "counted:o"},
		{"not down's with a fused MLP", handsOver([2]float64{2, 3}, [2]float64{1, 2}, [2]float64{1.5, 2.5}), Options{MLP: MLPFused}, HandoffWords, MergeWords, "counted:attention,o"},
		{"several rows", handsOver([2]float64{2, 3}, [2]float64{1, 2}, [2]float64{1.5, 2.5}), Options{Tokens: 8}, "", "", ""},
		{"a graph", handsOver([2]float64{2, 3}, [2]float64{1, 2}, [2]float64{1.5, 2.5}), Options{Launch: LaunchGraph}, "", "", ""},
	} {
		got := x.o.ForMachine(c, x.m)
		require.Equal(t, []string{string(x.queries), string(x.merge), x.vectors}, []string{string(got.Queries), string(got.Merge), got.Vectors}, x.name)
		_, err := Build(c, got)
		require.NoError(t, err, x.name)
	}
	executor := handsOver([2]float64{1, 3}, [2]float64{2, 2}, [2]float64{2, 2.5})
	executor.Executor = true
	require.Equal(t, Options{}, Options{}.ForMachine(c, executor), "its figures mean nothing")
}

// Edges differ by their vectors' lengths: those of 8B's residual take 16 KiB behind a
// barrier and in words, attention's output 8 behind a barrier and 16 in words.
func TestEveryEdgeIsChosenForItself(t *testing.T) {
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	m := handsOver([2]float64{1, 3}, [2]float64{9, 2}, [2]float64{9, 2.5})
	require.Equal(t, "counted:o,down", Options{}.ForMachine(c, m).Vectors)
	edges := vectorEdges(&c, m)
	require.InDelta(t, 1e-6, edges[0].way("barrier").seconds, 1e-12)
	require.InDelta(t, 2e-6, edges[0].way("counted").seconds, 1e-12)
	require.InDelta(t, 3e-6, edges[1].way("barrier").seconds, 1e-12)

	us := func(x float64) [2]float64 { return [2]float64{x, x} }
	input := func(m *machine.Machine) string { return Options{Merge: MergeInput}.ForMachine(c, m).Vectors }
	require.Equal(t, "barrier", input(handsOver(us(1), us(9), us(9))))
	require.Equal(t, "counted", input(handsOver(us(3), us(1), us(2))))
	require.Equal(t, "words", input(handsOver(us(3), us(2), us(1))))
	require.Equal(t, "counted", input(handsOver([2]float64{1, 3}, us(2), us(9))), "what attention hands on is no vector")
	require.Equal(t, Options{StageBytes: 32 << 10, InFlight: 2}.ForMachine(c, m).Vectors, Options{}.ForMachine(c, m).Vectors, "the ring is another matter")

	// Without a barrier before o its vector must be in words, too: where that pays.
	byHand := []edge{{phaseAttention, []way{{name: "counted", seconds: 1}, {name: "words", seconds: 1.5}, {name: "barrier", seconds: 2}}}, {phaseO, []way{{name: "counted", seconds: 3}, {name: "words", seconds: 2.6}, {name: "barrier", seconds: 2.5}}}, {phaseDown, []way{{name: "counted", seconds: 1}, {name: "words", seconds: 1.5}, {name: "barrier", seconds: 2}}}}
	o := &Options{Queries: HandoffWords, Merge: MergeWords}
	require.Equal(t, "counted", o.chooseVectors(byHand))
	byHand[0].ways[0].seconds, byHand[0].ways[1].seconds = 1.9, 9
	byHand[2].ways[0].seconds, byHand[2].ways[1].seconds = 9, 9
	require.Equal(t, "barrier", o.chooseVectors(byHand), "attention's gain is less than o's loss")
	o.Queries = HandoffBarrier
	require.Equal(t, "counted:attention", o.chooseVectors(byHand))
	// With a fused MLP down's is behind a barrier, whatever words would cost.
	o.MLP = MLPFused
	fused := []edge{{phaseAttention, []way{{name: "counted", seconds: 1.5}, {name: "words", seconds: 1}, {name: "barrier", seconds: 3}}}, {phaseO, []way{{name: "counted", seconds: 1.5}, {name: "words", seconds: 1}, {name: "barrier", seconds: 3}}}, {phaseDown, []way{{name: "counted", seconds: 0}, {name: "words", seconds: 2}, {name: "barrier", seconds: 3}}}}
	require.Equal(t, "words:attention,o", o.chooseVectors(fused))
}

// What another way gains must be more than what the measurements of both lie apart.
func TestNoiseChoosesNoOtherWay(t *testing.T) {
	edges := func(counted, barrier way) (all []edge) {
		counted.name, barrier.name = string(HandoffCounted), string(HandoffBarrier)
		for _, phase := range VectorPhases() {
			all = append(all, edge{phase, []way{counted, {name: string(HandoffWords), seconds: 9}, barrier}})
		}
		return all
	}
	o := &Options{Queries: HandoffWords, Merge: MergeWords}
	require.Equal(t, "counted", o.chooseVectors(edges(way{seconds: 1.3, spread: 0.2}, way{seconds: 1, spread: 0.11})))
	require.Equal(t, "barrier", o.chooseVectors(edges(way{seconds: 1.3, spread: 0.2}, way{seconds: 1, spread: 0.09})))
	one := edges(way{seconds: 1}, way{seconds: 2})
	one[0].ways[2].seconds = 0.5 // attention's behind a barrier, where the measurements agree
	require.Equal(t, "counted:o,down", o.chooseVectors(one))
	one[0].ways[0].spread, one[1].ways[0].spread = 0.6, 9
	require.Equal(t, "counted", o.chooseVectors(one), "what does not differ adds no noise, and takes none away")
	wide := edges(way{seconds: 1.01, spread: 1}, way{seconds: 1, spread: 1})
	wide[0].ways[0].seconds, wide[0].ways[0].spread, wide[0].ways[2].spread = 2, 0.05, 0.05
	require.Equal(t, "counted:o,down", o.chooseVectors(wide), "the noise of o and down hides nothing of attention")
}

func TestExplainSaysWhatEachWayCosts(t *testing.T) {
	mk := build(t, "llama3-8b", Options{})
	text := func(m *machine.Machine) string {
		var b bytes.Buffer
		require.NoError(t, mk.Explain(&b, m))
		return b.String()
	}
	require.Regexp(t, `\n  o +counted +counted 2.00, words 2.50, barrier 3.00\n`, text(handsOver([2]float64{1, 3}, [2]float64{9, 2}, [2]float64{9, 2.5})))
	require.Regexp(t, `\n  queries +words +words 0\.\d\d, barrier `, text(machine.H200()))
	require.Regexp(t, `\n  attention       counted  counted \d\.\d\d±\d\.\d\d, words \d\.\d\d±\d\.\d\d, barrier \d\.\d\d±\d\.\d\d\n`, text(machine.H200()))
	wide := handsOver([2]float64{1, 3}, [2]float64{9, 12.34}, [2]float64{9, 9.994})
	for i := range wide.Exchanges {
		if w := wide.Exchanges[i].Counted; w != nil {
			w.Unhidden.Min, w.Unhidden.Max = w.Unhidden.Median-1, w.Unhidden.Median+2
		}
	}
	require.Regexp(t, `\n  o +counted +counted 12.3±1.5, words 9.99, barrier 3.00\n`, text(wide), "from 10 µs on one digit behind the point")
	require.NotContains(t, text(machine.H200()), "no figures")
	old := machine.H200()
	old.Exchanges = slices.DeleteFunc(old.Exchanges, func(e machine.Exchange) bool { return e.VectorBytes > 0 && e.InFlight > 0 })
	require.Regexp(t, `\n  partial states .*\n  Its file has no figures of vectors in words with tags, so what attention, o\n`, text(old), "no row of vectors")
	executor := handsOver([2]float64{1, 3}, [2]float64{9, 2}, [2]float64{9, 2.5})
	executor.Executor = true
	explained := text(executor)
	require.Contains(t, explained, "\nNothing is predicted\n  The machine's file is of the executor, whose figures mean nothing: ")
	for _, figure := range []string{"redicted,", "predicted at", "GB/s", "µs", "Hand-offs that can be had"} {
		require.NotContains(t, explained, figure)
	}
	require.Contains(t, explained, "\nShares: ")
	require.Contains(t, explained, "\nKV cache\n")
}
