package bench_test

import (
	"slices"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/trace"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// recording is a launch of tiny on the executor.
func recording(t *testing.T, o megakernel.Options) (*megakernel.Kernel, *bench.Recording) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	w := synth.NewWeights(1, c)
	var r *bench.Recording
	if mk.Ragged() {
		s := &bench.RaggedSuite{Machine: bench.Executor{Seed: 1}, Kernel: mk, Weights: w}
		r, err = s.Record(t.Context(), 40, 2)
	} else {
		s := &bench.Suite{Machine: bench.Executor{Seed: 1}, Kernel: mk, Weights: w}
		r, err = s.Record(t.Context(), 40, 2)
	}
	require.NoError(t, err)
	return mk, r
}

func decoded(t *testing.T, mk *megakernel.Kernel, r *bench.Recording) *trace.Trace {
	t.Helper()
	tr, err := trace.Decode(r.Spans, r.Heads, mk.Traced, mk.Config.Layers)
	require.NoError(t, err)
	require.NoError(t, tr.Check())
	return tr
}

// Every SM has every phase and sync of every layer and step once, and as many waits
// for chunks as the plan has chunks. Where queries go in words there is no sync after
// qkv, and where partial states do, the merge is attention's: who works on heads waits for
// their queries, item by item, and everyone comes by the merge once.
func TestALaunchIsRecordedWhole(t *testing.T) {
	barriers := megakernel.Options{Queries: megakernel.SyncBarrier, Merge: megakernel.MergePhase}
	for name, o := range map[string]megakernel.Options{"words": {Tokens: 1}, "barriers": barriers, "rows": {Tokens: 3}} {
		t.Run(name, func(t *testing.T) {
			o.SMs, o.Trace = 3, 4000
			mk, r := recording(t, o)
			tr := decoded(t, mk, r)
			require.Len(t, tr.Tracks, 6)
			layers := 2 * mk.Config.Layers
			words := map[string]int{}
			for _, track := range tr.Tracks {
				require.Zero(t, track.Dropped)
				require.LessOrEqual(t, len(track.Spans), mk.TraceSpans(40, 2), "the room that is asked for by default")
				phases, tasks := map[string]int{}, map[string]int{}
				for _, s := range track.Spans {
					switch site := tr.Sites[s.Site]; site.Kind {
					case trace.Phase, trace.Sync:
						phases[site.Name]++
					case trace.Task:
						tasks[site.Name]++
					case trace.Wait:
						tasks[site.Name]++
					}
				}
				for _, name := range []string{"qkv", "attention", "o", "gate_up", "down"} {
					require.Equal(t, layers, phases[name], "%s of the %s of SM %d", name, track.Role, track.SM)
				}
				require.Equal(t, 2, phases["lm_head"])
				if track.Role != trace.Consumers {
					continue
				}
				syncs := 0
				for _, p := range mk.Phases {
					want := 0
					switch {
					case name == "words" && p.Name == "qkv":
					case name == "rows" && p.Name == "merge": // so few tokens are not split
					case p.PerLayer:
						want = layers
					default:
						want = 2
					}
					require.Equal(t, want, phases["sync after "+p.Name], "sync after %s of SM %d", p.Name, track.SM)
					syncs += want
				}
				if name != "rows" {
					require.Equal(t, 2*mk.Barriers(), syncs)
				}
				if name == "words" {
					require.Zero(t, phases["merge"])
					require.Equal(t, layers, tasks["merge"], "merge within attention of SM %d", track.SM)
					for _, what := range []string{"queries", "partial states"} {
						words[what] += tasks[what]
					}
				}
			}
			if name == "words" {
				items := layers * mk.AttentionItems() * mk.Options.Splits
				require.Equal(t, map[string]int{"queries": items, "partial states": items}, words,
					"waits for an item's queries, and for the states of its share")
			}
			s := tr.Summarize()
			require.Equal(t, name == "words", s.Step.Others > 0, "waits for words")
			require.InDelta(t, s.Step.Time, s.Step.Work+s.Step.Chunks+s.Step.Others+s.Step.Syncs, 1e-6*s.Step.Time)
		})
	}
}

// At the end of a matrix's phase both roles say how many chunks of the launch have gone by:
// one after the other as many as the plan has.
func TestEveryChunkIsTold(t *testing.T) {
	for name, o := range map[string]megakernel.Options{"one row": {Tokens: 1}, "rows": {Tokens: 3},
		"no leads": {Leads: "none"}, "two in flight": {InFlight: 2, Leads: "none"},
		"watched": {Watchdog: megakernel.WatchAll}} {
		t.Run(name, func(t *testing.T) {
			o.SMs, o.Trace, o.Stages, o.StageBytes = 2, 4000, 4, 2048
			mk, r := recording(t, o)
			tr := decoded(t, mk, r)
			kinds := map[string]int{}
			for sm := range o.SMs {
				told := [2][]int{}
				for role := range told {
					gone, before := 0, 0
					track := &tr.Tracks[2*sm+role]
					require.Zero(t, track.Dropped)
					for _, s := range track.Spans {
						site := &tr.Sites[s.Site]
						switch {
						case site.Name == trace.FlightWait:
							kinds[site.Name]++
						case site.Name == trace.ChunkWait || site.Name == trace.StageWait:
							kinds[site.Name]++
							require.GreaterOrEqual(t, int(s.Detail)+1, gone)
							gone = int(s.Detail) + 1
						case site.Kind == trace.Phase && slices.Contains([]string{"qkv", "gate_up", "down", "lm_head"}, site.Name):
							// Behind attention the last warps' chunks are told by o.
							i := slices.IndexFunc(mk.Plan.Layer, func(m pipeline.MatrixPlan) bool { return m.Name == site.Name })
							m := &mk.Plan.Final[0]
							if i >= 0 {
								m = &mk.Plan.Layer[i]
							}
							require.Equal(t, m.Count[sm]*m.ChunksPerTile, gone-before, "%s of layer %d of SM %d's %s", site.Name, s.Layer,
								sm, track.Role)
							told[role] = append(told[role], gone)
							before = gone
						case site.Kind == trace.Phase:
							before = gone
						}
					}
				}
				require.Equal(t, told[0], told[1], "consumers and producer of SM %d", sm)
			}
			require.Equal(t, kinds[trace.StageWait], kinds[trace.FlightWait])
			require.Positive(t, kinds[trace.StageWait])
			require.Positive(t, kinds[trace.ChunkWait])
		})
	}
}

// The producer's wait for every chunk's stage, and for copies in flight, is a span, and the
// consumers' for every chunk, but for those of attention that other warps take.
func TestEveryWaitIsASpan(t *testing.T) {
	mk, r := recording(t, megakernel.Options{SMs: 2, Trace: 20000})
	tr := decoded(t, mk, r)
	for _, track := range tr.Tracks {
		require.Zero(t, track.Dropped)
		require.LessOrEqual(t, len(track.Spans), mk.TraceSpans(40, 2), "the room that is asked for by default")
		var of, flights []int
		for _, s := range track.Spans {
			switch tr.Sites[s.Site].Name {
			case trace.ChunkWait, trace.StageWait:
				of = append(of, int(s.Detail))
			case trace.FlightWait:
				flights = append(flights, int(s.Detail))
			}
		}
		slices.Sort(of)
		all, kv := 0, 0
		for step := range 2 {
			for i := range 5 {
				m := mk.Plan.Matrices(pipeline.FinalLayer)
				layers := 1
				if i < 4 {
					m, layers = mk.Plan.Matrices(0)[i:i+1], mk.Config.Layers
				}
				all += layers * m[0].Count[track.SM] * m[0].ChunksPerTile
			}
			per := mk.ChunkTokens()
			kv += mk.Config.Layers * mk.AttentionItems() * ((40 + step + per - 1) / per)
		}
		if track.Role == trace.Producer {
			require.Equal(t, upTo(len(of)), of, "each once")
			require.Equal(t, of, flights)
			require.GreaterOrEqual(t, len(of), all)
			require.LessOrEqual(t, len(of), all+kv)
			continue
		}
		require.Len(t, slices.Compact(slices.Clone(of)), len(of), "each once")
		require.GreaterOrEqual(t, len(of), all)
		require.LessOrEqual(t, len(of), all+kv)
	}
}

// upTo are the numbers under n.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// What does not fit is counted, in the track that noted it; the consumers' then ends with a
// phase, before the first wait for a chunk that the producer had no room for.
func TestARecordingWithoutRoomSaysWhatIsLost(t *testing.T) {
	for _, room := range deep.Most([]int{50, 20, 500}, 1) {
		mk, r := recording(t, megakernel.Options{SMs: 2, Trace: 4000})
		whole := decoded(t, mk, r)
		mk, r = recording(t, megakernel.Options{SMs: 2, Trace: room})
		short := decoded(t, mk, r)
		for i, track := range short.Tracks {
			require.Zero(t, whole.Tracks[i].Dropped)
			if room < 500 || track.Role == trace.Producer {
				require.Positive(t, track.Dropped, "%d spans, %s", room, track.Role)
			}
			require.Less(t, len(track.Spans), len(whole.Tracks[i].Spans))
			if track.Role == trace.Producer {
				continue
			}
			if n := len(track.Spans); n > 0 {
				require.Equal(t, trace.Phase, short.Sites[track.Spans[n-1].Site].Kind)
			}
			for j, s := range track.Spans { // the same as of the whole launch
				same := whole.Tracks[i].Spans[j]
				require.Equal(t, []any{short.Sites[s.Site].Name, s.Layer, s.Step, s.Detail},
					[]any{whole.Sites[same.Site].Name, same.Layer, same.Step, same.Detail}, "span %d, room for %d", j, room)
			}
		}
	}
}

func TestAKernelWithoutATraceNotesNothing(t *testing.T) {
	mk, r := recording(t, megakernel.Options{SMs: 2})
	require.Empty(t, mk.Traced)
	require.Empty(t, r.Spans)
	require.NotContains(t, mk.IR.String(), " = clock")
	mk, _ = recording(t, megakernel.Options{SMs: 2, Trace: 4000})
	require.Contains(t, mk.IR.String(), " = clock")
	_, err := trace.Decode(nil, nil, mk.Traced, mk.Config.Layers)
	require.EqualError(t, err, "trace: 0 words of heads and 0 of spans are those of no whole number of CTAs")
}

// Consumers note a phase with its parts, and the sync before it, when they have arrived at
// the sync behind it: they are side by side, and nothing of a later phase before them.
func TestAPhaseIsNotedWithItsParts(t *testing.T) {
	mk, r := recording(t, megakernel.Options{SMs: 2, Trace: 4000})
	words := len(r.Spans) / (2 * pipeline.TraceTracks)
	for sm := range 2 {
		track := r.Spans[sm*pipeline.TraceTracks*words:][:words]
		head, err := pipeline.DecodeHead(r.Heads[sm*pipeline.TraceTracks*pipeline.HeadWords:])
		require.NoError(t, err)
		require.LessOrEqual(t, head.Spans*pipeline.SpanWords, words)
		var parts []pipeline.Span
		phases, syncs, before := 0, 0, uint32(0)
		for i := range head.Spans { // behind them lies what another launch left
			s, err := pipeline.DecodeSpan(track[i*pipeline.SpanWords:])
			require.NoError(t, err)
			site := &mk.Traced[s.Site]
			require.NotEqual(t, pipeline.ChunkWait, site.What, "the producer notes those")
			if site.Kind != pipeline.TracePhase {
				parts = append(parts, s)
				continue
			}
			phases++
			for _, p := range parts {
				require.LessOrEqual(t, p.End, s.End)
				require.GreaterOrEqual(t, p.End, before)
				if mk.Traced[p.Site].Kind == pipeline.TraceSync {
					syncs++
				}
			}
			parts, before = nil, s.End
		}
		require.Equal(t, 2*(5*mk.Config.Layers+1), phases)
		require.Greater(t, syncs, phases/2)
	}
}
