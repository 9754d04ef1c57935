package trace

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// two is a phase of two SMs whose figures are reckoned by hand below: SM 0 arrives at
// 60, SM 1 at 100; they are released at 110 and 114.
func two() *Trace {
	return &Trace{Model: "m", Device: "d", Unit: Nanoseconds, Layers: 1,
		Sites: []Site{{Phase, "qkv", Consumers, "qkv"}, {Sync, "sync after qkv", Consumers, ""},
			{Wait, ChunkWait, Consumers, "qkv"},
			{Wait, StageWait, Producer, ""}, {Wait, FlightWait, Producer, ""}, {Wait, "waits for an index", Consumers, "qkv"},
			{Task, "input vector", Consumers, "qkv"}},
		Tracks: []Track{
			{SM: 0, Role: Consumers, Spans: []Span{{Begin: 12, End: 14, Site: 5}, {Begin: 10, End: 20, Site: 6},
				{Begin: 20, End: 25, Site: 2}, {Begin: 30, End: 40, Site: 2}, {Begin: 10, End: 60, Site: 0},
				{Begin: 60, End: 110, Site: 1}}},
			{SM: 0, Role: Producer, Spans: []Span{{Begin: 0, End: 15, Site: 3}, {Begin: 16, End: 19, Site: 4},
				{Begin: 20, End: 26, Site: 3}, {Begin: 100, End: 200, Site: 3}}},
			{SM: 1, Role: Consumers, Spans: []Span{{Begin: 20, End: 25, Site: 2}, {Begin: 10, End: 100, Site: 0},
				{Begin: 100, End: 114, Site: 1}}},
		}}
}

func TestFiguresOfTwoSMsByHand(t *testing.T) {
	tr := two()
	require.NoError(t, tr.Check())
	s := tr.Summarize()
	// SM 0: 100 = 50 sync + 15 chunks + 2 others + 33 work. SM 1: 104 = 14 + 5 + 0 + 85.
	// The producer of SM 0 waits for a stage from 10 to 15, 20 to 26 and 100 to 110.
	want := Parts{Time: 102, Work: 59, Chunks: 10, Others: 1, Syncs: 32, RingFull: 10.5, InFlight: 1.5}
	require.Equal(t, []PhaseSummary{{Name: "qkv", InLayer: true, Runs: 1, Parts: want, Median: 102, Max: 104}}, s.Phases)
	require.Equal(t, want, s.Layer)
	require.Equal(t, want, s.Step)
	require.Len(t, s.Syncs, 1)
	h := s.Syncs[0]
	require.Equal(t, []float64{32, 20, 40, 10, 4}, []float64{h.Wait, h.Skew, h.Range, h.Latency, h.Spread})
	require.Equal(t, []any{"qkv", 1, 1}, []any{h.After, h.LateSM, h.Late})
	require.Equal(t, []TaskSummary{{Phase: "qkv", Name: "input vector", Count: 0.5, Time: 10, Waits: 2},
		{Phase: "qkv", Name: "waits for an index", Count: 0.5, Time: 2, Waits: 2}}, s.Tasks)
	require.InDelta(t, 59.0/102, s.Shares().Share(s.Shares().Work), 1e-12)
}

func TestASyncInsideItsPhaseCountsAsTheOneBehindIt(t *testing.T) {
	behind, inside := two().Summarize(), two()
	for _, i := range []int{0, 2} { // the phase now ends with the release
		spans := inside.Tracks[i].Spans
		n := len(spans)
		spans[n-2], spans[n-1] = spans[n-1], spans[n-2]
		spans[n-1].End = spans[n-2].End
	}
	require.NoError(t, inside.Check())
	require.Equal(t, behind, inside.Summarize())
}

// near wants two numbers to agree but for rounding.
func near(t *testing.T, want, got float64, what string) {
	t.Helper()
	require.InDelta(t, want, got, 1e-6*(1+math.Abs(want)), what)
}

func TestFiguresOfASyntheticLaunch(t *testing.T) {
	for _, sms := range []int{1, 4, 132} {
		y := small()
		y.sms = sms
		tr := y.trace()
		require.NoError(t, tr.Check())
		s := tr.Summarize()
		require.Equal(t, []int{sms, 2, 3, 0, 0}, []int{s.SMs, s.Steps, s.Seen, s.Cold, s.Dropped})
		require.Len(t, s.Phases, 7)
		n := float64(sms - 1)
		layer := 0.0
		for j, p := range s.Phases {
			name, runs := "lm_head", 2
			if j < 6 {
				name, runs = layerPhases[j], 2*3
			}
			require.Equal(t, []any{name, runs, j < 6}, []any{p.Name, p.Runs, p.InLayer})
			near(t, 3*50, p.Chunks, name)
			// SM i begins 2·i behind SM 0 and is released so. The last SM, which begins
			// last, arrives last; in attention it is SM 0.
			own := 100 + 3*(250+10*float64(j))
			time := own + 22*n + 900
			if j == 1 {
				time = own + 20*n + 900
			}
			near(t, time, p.Time, name)
			near(t, time, p.Median, name)
			near(t, time, p.Max, name)
			near(t, own-3*50+20*n/2, p.Work, name)
			near(t, p.Time, p.Work+p.Chunks+p.Others+p.Syncs, name)
			if j < 6 {
				layer += time
			}
		}
		near(t, layer, s.Layer.Time, "layer")
		near(t, 3*layer+s.Phases[6].Time, s.Step.Time, "step")
		require.Len(t, s.Syncs, 7)
		for j, h := range s.Syncs {
			skew, late := 22*n, sms-1
			if j == 1 {
				skew, late = 18*n, 0
			}
			near(t, skew, h.Range, h.Name)
			near(t, skew/2, h.Skew, h.Name)
			near(t, 900, h.Latency, h.Name)
			near(t, 2*n, h.Spread, h.Name)
			near(t, 900+skew/2+n, h.Wait, h.Name)
			if sms > 1 {
				require.Equal(t, []int{late, h.Runs}, []int{h.LateSM, h.Late}, h.Name)
			} else {
				require.Equal(t, -1, h.LateSM)
			}
		}
	}
}

func TestWaitsOfTheProducerAreThoseWithinThePhase(t *testing.T) {
	tr := small().trace()
	s := tr.Summarize()
	sums := map[string]float64{}
	for i := range tr.Tracks {
		if tr.Tracks[i].Role != Consumers {
			continue
		}
		for n, p := range tr.Tracks[i].Spans {
			if tr.kind(&p) != Phase || p.Step == 0 {
				continue
			}
			for _, w := range tr.Tracks[i+1].Spans { // slow and plain
				if end := tr.Tracks[i].Spans[n+1].End; w.Site == stageSite {
					sums[tr.Sites[p.Site].Name] += max(0, min(w.End, end)-max(w.Begin, p.Begin))
				}
			}
		}
	}
	for _, p := range s.Phases {
		require.Greater(t, p.RingFull, 0.0)
		near(t, sums[p.Name]/float64(p.Runs*4), p.RingFull, p.Name)
	}
}

func TestTheFirstStepCountsWhereThereAreTwo(t *testing.T) {
	y := small()
	y.steps = 2
	s := y.trace().Summarize()
	require.Equal(t, []int{2, -1}, []int{s.Steps, s.Cold})
	near(t, 3*50*(1+4)/2.0, s.Phases[0].Chunks, "mean of a cold and a warm step")
}

// cut drops the spans of a track from n on.
func cut(tr *Track, n int) {
	tr.Dropped = len(tr.Spans) - n
	tr.Spans = slices.Clone(tr.Spans[:n])
}

func TestDroppedSpansLeaveOutWhatIsNotWhole(t *testing.T) {
	whole, tr := small().trace().Summarize(), small().trace()
	n := slices.IndexFunc(tr.Tracks[2].Spans, func(s Span) bool { return s.Step == 2 && s.Layer == 1 })
	cut(&tr.Tracks[2], n+2) // in the first phase of layer 1
	require.NoError(t, tr.Check())
	s := tr.Summarize()
	require.Equal(t, []int{2, -1, 3}, []int{s.Steps, s.Cold, s.Seen}, "two whole steps: the first of them counts")
	require.Equal(t, 2*3+1, s.LayerRuns)
	require.Equal(t, []int{7, 7, 2}, []int{s.Phases[0].Runs, s.Phases[5].Runs, s.Phases[6].Runs})
	require.Equal(t, 7, s.Syncs[0].Runs)
	near(t, tr.Tracks[2].end(), s.Until, "until")
	require.Contains(t, strings.Join(s.notices(), "\n"), "spans did not fit; what is drawn ends at")
	require.InDelta(t, whole.Phases[3].Work, s.Phases[3].Work, 1e-6)
	var b strings.Builder
	require.NoError(t, s.WriteTable(&b))
	require.Contains(t, b.String(), "spans did not fit")
}

func TestALayerThatATrackEndsInIsLeftOut(t *testing.T) {
	tr := small().trace()
	n := slices.IndexFunc(tr.Tracks[2].Spans, func(s Span) bool { return s.Step == 2 && s.Layer == 1 })
	cut(&tr.Tracks[2], n+14) // two phases of six spans, and a little of the third
	s := tr.Summarize()
	require.Equal(t, 2*3+1, s.LayerRuns)
	require.Equal(t, []int{8, 8, 7}, []int{s.Phases[0].Runs, s.Phases[1].Runs, s.Phases[2].Runs})
}

func TestASyncThatAnSMLacksIsLeftOut(t *testing.T) {
	tr := two()
	tr.Tracks[0].Spans[4].End = 200 // its clock is ahead of the other's
	cut(&tr.Tracks[0], 5)
	require.NoError(t, tr.Check())
	require.Empty(t, tr.Summarize().Syncs)
}

func TestOfSMsLateEquallyOftenTheLowestIsNamed(t *testing.T) {
	h := SyncSummary{}
	for range 20 { // maps have no order
		h.Late = 0
		h.close(map[int]int{7: 2, 5: 2, 3: 1, 9: 2})
		require.Equal(t, []int{5, 2}, []int{h.LateSM, h.Late})
	}
}

func TestAPhaseWhoseSyncWasDroppedIsLeftOut(t *testing.T) {
	y := small()
	y.sms = 1
	tr := y.trace()
	n := len(tr.Tracks[0].Spans)
	cut(&tr.Tracks[0], n-1) // lm_head's last sync
	s := tr.Summarize()
	require.Equal(t, 2, s.Phases[6].Runs)
	require.Equal(t, 2, s.Steps)
}

func TestAnEmptyTraceHasNoFigures(t *testing.T) {
	tr := &Trace{Unit: Nanoseconds}
	require.NoError(t, tr.Check())
	s := tr.Summarize()
	require.Empty(t, s.Phases)
	require.Equal(t, Parts{}, s.Shares())
	var b strings.Builder
	require.NoError(t, s.WriteTable(&b))
	require.Contains(t, b.String(), "no spans of consumers")
}

func TestAPhaseOfNoLengthIsItsOwn(t *testing.T) {
	tr := two()
	tr.Sites = append(tr.Sites, Site{Phase, "merge", Consumers, "merge"})
	track := &Track{Role: Consumers, Spans: []Span{{Begin: 10, End: 10, Site: 2}, {Begin: 10, End: 10, Site: 7},
		{Begin: 10, End: 10, Site: 1}, {Begin: 10, End: 20, Site: 2}, {Begin: 10, End: 30, Site: 0}}}
	require.Equal(t, []run{{first: 0, phase: 1, last: 2, begin: 10, end: 10},
		{first: 2, phase: 4, last: 5, begin: 10, end: 30}}, tr.runs(track))
}

func TestWaitsForWordsAreShown(t *testing.T) {
	tr := two()
	tr.Sites[5].Name = "queries"
	var table strings.Builder
	require.NoError(t, tr.Summarize().WriteTable(&table))
	require.Regexp(t, `(?m)^  qkv +queries +0\.50 +0\.00 +0\.00`, table.String())
	require.Regexp(t, `sync +words `, table.String())
}

// A release before the last arrival is no time below 0 for a reader, and the table says what it means.
func TestAnEarlyReleaseIsSaidInWords(t *testing.T) {
	s := &Summary{Unit: Steps, SMs: 2, Seen: 1, Producers: 2,
		Syncs: []SyncSummary{{Name: "sync after o", Runs: 4, Latency: -486, LateSM: -1}}}
	var b strings.Builder
	require.NoError(t, s.WriteTable(&b))
	require.Contains(t, b.String(), " 486 early ")
	require.Contains(t, b.String(), "The sync after o releases an SM 486 steps early")
	require.NotContains(t, b.String(), "-486")
}
