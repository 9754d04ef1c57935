package bench_test

import (
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/megakernel/runtime/bench"
	"github.com/mkgen/mkgen/megakernel/trace"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// recording is a launch of tiny on the executor.
func recording(t *testing.T, o megakernel.Options) (*megakernel.Kernel, *bench.Recording) {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	w := synth.NewWeights(1, reference.ShapeOf(c).Dims())
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

// Every SM has every phase and hand-off of every layer and step once, and as many waits
// for chunks as the plan has chunks.
func TestALaunchIsRecordedWhole(t *testing.T) {
	for _, rows := range []int{1, 3} {
		mk, r := recording(t, megakernel.Options{SMs: 3, Tokens: rows, Trace: 4000})
		tr := decoded(t, mk, r)
		require.Len(t, tr.Tracks, 6)
		for _, track := range tr.Tracks {
			require.Zero(t, track.Dropped)
			require.LessOrEqual(t, len(track.Spans), mk.TraceSpans(40, 2), "the room that is asked for by default")
			phases := map[string]int{}
			for _, s := range track.Spans {
				if site := tr.Sites[s.Site]; site.Kind == trace.Phase || site.Kind == trace.Handoff {
					phases[site.Name]++
				}
			}
			layers := 2 * mk.Config.Layers
			for _, name := range []string{"qkv", "attention", "o", "gate_up", "down"} {
				require.Equal(t, layers, phases[name], "%s of the %s of SM %d", name, track.Role, track.SM)
				if track.Role == trace.Consumers {
					require.Equal(t, layers, phases["hand-off after "+name], "hand-off after %s of SM %d", name, track.SM)
				}
			}
			require.Equal(t, 2, phases["lm_head"])
		}
		s := tr.Summarize()
		require.InDelta(t, s.Step.Time, s.Step.Work+s.Step.Chunks+s.Step.Others+s.Step.Handoffs, 1e-6*s.Step.Time)
	}
}

// A recording that is cut short is the beginning of the whole one: the program is the
// same, and so is its schedule.
func TestARecordingWithoutRoomSaysWhatIsLost(t *testing.T) {
	mk, r := recording(t, megakernel.Options{SMs: 2, Trace: 4000})
	whole := decoded(t, mk, r)
	mk, r = recording(t, megakernel.Options{SMs: 2, Trace: 50})
	short := decoded(t, mk, r)
	for i, track := range short.Tracks {
		require.Len(t, track.Spans, 50)
		require.Equal(t, len(whole.Tracks[i].Spans)-50, track.Dropped)
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
