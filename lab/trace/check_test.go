package trace

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(*Trace)
		want   string
	}{
		{"unit", func(t *Trace) { t.Unit = "us" }, `trace: the unit is "us"; want "ns" or "steps"`},
		{"kind of a site", func(t *Trace) { t.Sites[1].Kind = "x" },
			`trace: site 1 ("sync after qkv"): its kind is "x"; want "phase", "sync", "wait" or "task"`},
		{"role of a site", func(t *Trace) { t.Sites[0].Role = "boss" },
			`trace: site 0 ("qkv"): its role is "boss"; want "consumers" or "producer"`},
		{"name of a site", func(t *Trace) { t.Sites[0].Name = "" }, `trace: site 0 (""): it has no name; want one`},
		{"layers", func(t *Trace) { t.Layers = -1 }, "trace: -1 layers; want 0 or more"},
		{"stages", func(t *Trace) { t.Stages = -1 }, "trace: -1 stages; want 0 or more"},
		{"site out of range", func(t *Trace) { t.Tracks[2].Spans[0].Site = 7 },
			"trace: SM 1, consumers: span 0: its site is 7; want 0 to 6"},
		{"another role's site", func(t *Trace) { t.Tracks[2].Spans[0].Site = 3 },
			`trace: SM 1, consumers: span 0: "waits for a free stage" is a site of the role "producer"; want one of the track's`},
		{"end before begin", func(t *Trace) { t.Tracks[2].Spans[0].Begin = 26 },
			`trace: SM 1, consumers: span 0: "waits for a chunk" lasts from 26 to 25; want 0 ≤ begin ≤ end`},
		{"not a number", func(t *Trace) { t.Tracks[2].Spans[0].Begin = math.NaN() },
			`trace: SM 1, consumers: span 0: "waits for a chunk" lasts from NaN to 25; want 0 ≤ begin ≤ end`},
		{"endless", func(t *Trace) { t.Tracks[2].Spans[2].End = math.Inf(1) },
			`trace: SM 1, consumers: span 2: "sync after qkv" lasts from 100 to +Inf; want 0 ≤ begin ≤ end`},
		{"layer", func(t *Trace) { t.Tracks[2].Spans[0].Layer = 2 },
			`trace: SM 1, consumers: span 0: "waits for a chunk" is of step 0, layer 2; want a step of 0 or more and a layer of -1 to 1`},
		{"order of spans", func(t *Trace) { slices.Reverse(t.Tracks[2].Spans[:2]) },
			`trace: SM 1, consumers: span 1: "waits for a chunk" ends at 25, the span before it at 100; want spans ordered by their end`},
		{"overlap", func(t *Trace) { t.Tracks[2].Spans[2].Begin = 99 },
			`trace: SM 1, consumers: phase "qkv" (10 to 100) and sync "sync after qkv" (99 to 114) overlap; want one within the other, or neither`},
		{"phase in a wait", func(t *Trace) { t.Tracks[2].Spans[2] = Span{Begin: 5, End: 114, Site: 2} },
			`trace: SM 1, consumers: phase "qkv" (10 to 100) lies within wait "waits for a chunk" (5 to 114); want phases around tasks around waits and syncs`},
		{"a phase twice", func(t *Trace) { t.Tracks[2].Spans[2].Site = 0 },
			`trace: SM 1, consumers: phase "qkv" (100 to 114) is there twice in step 0, layer 0; want it once`},
		{"a sync twice", func(t *Trace) {
			t.Tracks[2].Spans = append(t.Tracks[2].Spans, Span{Begin: 114, End: 120, Site: 1})
		}, `trace: SM 1: "sync after qkv" is there twice in step 0, layer 0; want it once`},
		{"a sync missed", func(t *Trace) { t.Tracks[2].Spans = t.Tracks[2].Spans[:2] },
			`trace: "sync after qkv" of step 0, layer 0 is in the track of SM 0, but only in 1 of the 2 that dropped no spans, not in that of SM 1; want it in all, as all arrive`},
		{"order of tracks", func(t *Trace) { slices.Reverse(t.Tracks) },
			"trace: SM 0, producer: this track is behind that of SM 1, consumers; want them sorted by SM, then consumers before producer, each once"},
		{"a track twice", func(t *Trace) { t.Tracks[1] = t.Tracks[0] },
			"trace: SM 0, consumers: this track is behind that of SM 0, consumers; want them sorted by SM, then consumers before producer, each once"},
		{"role of a track", func(t *Trace) { t.Tracks[1].Role = "x" },
			`trace: SM 0, x: its role is "x"; want "consumers" or "producer"`},
		{"dropped", func(t *Trace) { t.Tracks[1].Dropped = -1 },
			"trace: SM 0, producer: SM 0, -1 spans dropped; want neither below 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := two()
			c.damage(tr)
			require.EqualError(t, tr.Check(), c.want)
			require.Error(t, tr.WritePage(nil), "nothing is drawn of it")
			require.Error(t, tr.WriteSVG(nil))
			require.Error(t, tr.WriteChrome(nil, 0))
		})
	}
}

func TestATrackThatDroppedSpansMayLackSyncs(t *testing.T) {
	tr := two()
	cut(&tr.Tracks[2], 2)
	require.NoError(t, tr.Check())
}

func TestTheSMWithoutASyncIsOneThatDroppedNone(t *testing.T) {
	tr := two()
	third := tr.Tracks[2]
	third.SM = 2
	tr.Tracks = append(tr.Tracks, third)
	cut(&tr.Tracks[0], 5)
	tr.Tracks[2].Spans = tr.Tracks[2].Spans[:2]
	require.ErrorContains(t, tr.Check(), "not in that of SM 1")
}

func TestSpansOfNoLengthLieWithinAnything(t *testing.T) {
	tr := two()
	spans := tr.Tracks[2].Spans
	tr.Tracks[2].Spans = slices.Insert(spans, 2, Span{Begin: 100, End: 100, Site: 2}) // at the sync's begin
	require.NoError(t, tr.Check())
}

// What consumers do while they wait at a sync is the sync's time, not a wait beside it.
func TestAWaitWithinASyncCountsOnce(t *testing.T) {
	tr, want := two(), two().Summarize()
	spans := tr.Tracks[2].Spans
	tr.Tracks[2].Spans = slices.Insert(spans, 2, Span{Begin: 102, End: 106, Site: 2}, Span{Begin: 101, End: 107, Site: 6})
	require.NoError(t, tr.Check())
	require.Equal(t, want.Step, tr.Summarize().Step)
	require.Equal(t, want.Phases, tr.Summarize().Phases)
}
