package trace

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// apart is a launch whose SMs' clocks are ahead by so much each; the launch begins with the first span.
func apart(y synthetic, ahead func(sm int) float64) *Trace {
	t := y.trace()
	for i := range t.Tracks {
		for n := range t.Tracks[i].Spans {
			s := &t.Tracks[i].Spans[n]
			s.Begin, s.End = s.Begin+ahead(t.Tracks[i].SM), s.End+ahead(t.Tracks[i].SM)
		}
	}
	return t
}

func TestClocksThatStandApartArePutTogether(t *testing.T) {
	y := small()
	y.sms, y.release = 7, 0
	for name, ahead := range map[string]func(int) float64{
		"a block of SMs":  func(sm int) float64 { return 1200 * float64(sm/3%2) },
		"all differently": func(sm int) float64 { return 137 * float64(sm*sm%7) },
	} {
		tr := apart(y, ahead)
		tr.Align()
		require.NoError(t, tr.Check(), name)
		want, got := y.trace(), tr
		shift := got.Tracks[0].Spans[0].Begin - want.Tracks[0].Spans[0].Begin
		for i := range want.Tracks {
			for n, s := range want.Tracks[i].Spans {
				near(t, s.Begin+shift, got.Tracks[i].Spans[n].Begin, name)
				near(t, s.End+shift, got.Tracks[i].Spans[n].End, name)
			}
		}
		most := 0.0
		for sm := range y.sms {
			most = max(most, ahead(sm))
		}
		near(t, most, tr.Apart, name)
		for _, h := range tr.Summarize().Syncs {
			near(t, 900, h.Latency, name)
			near(t, 0, h.Spread, name)
		}
	}
}

// A clock that goes faster, and one that goes faster for a while, are put right, too: all
// releases to within what a clock gains in a group of syncs.
func TestClocksThatDoNotGoEquallyFastArePutTogether(t *testing.T) {
	y := small()
	y.layers, y.steps, y.release = 20, 4, 0 // 484 syncs
	spans := y.trace().Tracks[0].Spans
	last := spans[len(spans)-1].End
	for name, ahead := range map[string]func(sm int, at float64) float64{
		"one faster": func(sm int, at float64) float64 { return 0.002 * at * float64(sm%2) },
		"one faster for a while": func(sm int,
			at float64) float64 {
			return 0.002 * max(0, min(at, last/2)-last/4) * float64(sm%2)
		},
	} {
		tr := y.trace()
		for i := range tr.Tracks {
			for n := range tr.Tracks[i].Spans {
				s := &tr.Tracks[i].Spans[n]
				s.Begin, s.End = s.Begin+ahead(tr.Tracks[i].SM, s.Begin), s.End+ahead(tr.Tracks[i].SM, s.End)
			}
		}
		apart := ahead(1, last)
		tr.Align()
		require.NoError(t, tr.Check(), name)
		require.InDelta(t, apart, tr.Apart, apart/float64(484/alignedAtOnce), name)
		for _, r := range tr.releases() {
			for sm, end := range r.ends {
				require.InDelta(t, r.middle, end, apart/float64(484/alignedAtOnce), "%s: SM %d at %g", name, sm, r.middle)
			}
		}
		for _, h := range tr.Summarize().Syncs {
			require.InDelta(t, 900, h.Latency, apart/10, name)
		}
	}
}

func TestReleasesThatDifferFromRunToRunMoveNoClock(t *testing.T) {
	y := small()
	y.release = 0
	tr := y.trace()
	// One SM is released late in a third of the syncs: its median is not.
	late, n := tr.of(2, Consumers), 0
	for i := range late.Spans {
		if tr.kind(&late.Spans[i]) == Sync {
			if n++; n%3 == 0 {
				late.Spans[i].End += 5
			}
		}
	}
	tr.Align()
	require.Zero(t, tr.Apart)
	require.Equal(t, y.trace().Tracks[0], tr.Tracks[0])
}

func TestClocksOfAFewSyncsAreLeftAlone(t *testing.T) {
	y := small()
	y.steps, y.layers = 1, 1 // seven syncs
	ahead := func(sm int) float64 { return 100 * float64(sm) }
	tr := apart(y, ahead)
	tr.Align()
	require.Equal(t, apart(y, ahead), tr)
	require.Zero(t, tr.Apart)

	empty := &Trace{Unit: Nanoseconds}
	empty.Align()
	require.Zero(t, empty.Apart)
}

func TestWhatClocksSaidIsTold(t *testing.T) {
	y := small()
	y.release = 0
	ahead := func(sm int) float64 { return 2500 * float64(sm%2) }
	told := func(tr *Trace) string {
		var b strings.Builder
		require.NoError(t, tr.Summarize().WriteTable(&b))
		return strings.ReplaceAll(b.String(), "\n", " ") // wherever lines end
	}
	tr := apart(y, ahead)
	require.Contains(t, told(tr), "The sync after qkv releases an SM 1.",
		"a release 0.9 µs behind the last arrival, on clocks 2.5 µs apart")
	require.NotContains(t, told(tr), "stood up to")
	tr.Align()
	require.Contains(t, told(tr),
		"Clocks of SMs stood up to 2.50 µs apart by when syncs released them; that is taken out. ")
	require.NotContains(t, told(tr), "which cannot be")
	steps := apart(y, ahead)
	steps.Unit = Steps
	require.NotContains(t, told(steps), "which cannot be", "the executor's warps note when it is their turn")
}
