package trace

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// event is what the tests read of one.
type event struct {
	Ph, Name, Cat string
	Pid, Tid      int
	Ts, Dur       json.Number
	Args          map[string]any
}

func events(t *testing.T, tr *Trace) (all []event) {
	t.Helper()
	var b strings.Builder
	require.NoError(t, tr.WriteChrome(&b, 0))
	var file struct {
		TraceEvents []event
		OtherData   map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(b.String()), &file))
	require.Equal(t, tr.Device, file.OtherData["device"])
	return file.TraceEvents
}

// thousandthsOf reads a time as written, in thousandths of a µs.
func thousandthsOf(t *testing.T, n json.Number) int64 {
	t.Helper()
	f, err := n.Float64()
	require.NoError(t, err)
	return int64(math.Round(f * 1000))
}

func TestEventsAreTheSpansAndNest(t *testing.T) {
	y := small()
	y.wait, y.drain = 50.37, 200.61 // not whole
	tr := y.trace()
	type row struct{ pid, tid int }
	open, count := map[row][]int64{}, map[row]int{} // ends of the spans around; of both kinds
	begun := map[row]int64{}
	for _, e := range events(t, tr) {
		if e.Ph != "X" {
			continue
		}
		r, begin := row{e.Pid, e.Tid}, thousandthsOf(t, e.Ts)
		end := begin + thousandthsOf(t, e.Dur)
		require.GreaterOrEqual(t, begin, begun[r], "in order of begin")
		begun[r] = begin
		for len(open[r]) > 0 && open[r][len(open[r])-1] <= begin {
			open[r] = open[r][:len(open[r])-1]
		}
		if n := len(open[r]); n > 0 {
			require.LessOrEqual(t, end, open[r][n-1], "%s at %d", e.Name, begin)
		}
		open[r] = append(open[r], end)
		count[r]++
		require.Contains(t, []string{"phase", "sync", "wait", "task"}, e.Cat)
		require.Contains(t, e.Args, "detail")
	}
	for _, track := range tr.Tracks {
		r := row{track.SM, 0}
		if track.Role == Producer {
			r.tid = 1
		}
		require.Equal(t, len(track.Spans), count[r])
	}
}

func TestEventsOfTwoSMs(t *testing.T) {
	all := events(t, two())
	names := map[string]bool{}
	var qkv event
	for _, e := range all {
		if e.Ph == "M" && e.Name != "process_sort_index" {
			names[e.Args["name"].(string)] = true
		}
		if e.Name == "qkv" && e.Pid == 1 {
			qkv = e
		}
	}
	require.Equal(t, map[string]bool{"SM 0": true, "SM 1": true, "consumers": true, "producer": true}, names)
	require.Equal(t, event{Ph: "X", Name: "qkv", Cat: "phase", Pid: 1, Ts: "0.010", Dur: "0.090",
		Args: map[string]any{"step": 0.0, "layer": 0.0, "detail": 0.0}}, qkv)
}

func TestCountersFollowTheRing(t *testing.T) {
	var fill []float64
	for _, e := range events(t, two()) {
		if e.Ph == "C" {
			require.Equal(t, 0, e.Pid, "SM 1 has no producer's track")
			fill = append(fill, e.Args["chunks"].(float64))
		}
	}
	// Issued at 15, 26, 200; draining begins at 25, 40.
	require.Equal(t, []float64{1, 0, 1, 0, 1}, fill)
}

func TestARingThatIsDrainedMoreThanFilledIsNotTold(t *testing.T) {
	tr := two()
	require.NotNil(t, tr.ringFill(&tr.Tracks[0], &tr.Tracks[1]))
	tr.Tracks[1].Spans = tr.Tracks[1].Spans[2:] // the chunk drained at 25 was issued at 26
	require.Nil(t, tr.ringFill(&tr.Tracks[0], &tr.Tracks[1]))
	require.Nil(t, tr.ringFill(&tr.Tracks[0], nil))
}

func TestAChunkIssuedAndDrainedAtOneTimeWasIssuedFirst(t *testing.T) {
	tr := two()
	tr.Tracks[1].Spans[0].End = 10
	tr.Tracks[1].Spans[2].End = 40 // its draining begins then
	require.Equal(t, []fillEvent{{10, 1}, {25, 0}, {40, 0}, {200, 1}}, tr.ringFill(&tr.Tracks[0], &tr.Tracks[1]))
}

func TestTheRingIsToldUpToWhereATrackEnds(t *testing.T) {
	tr := two()
	cut(&tr.Tracks[0], 3) // ends at 25
	require.Equal(t, []fillEvent{{15, 1}, {25, 0}}, tr.ringFill(&tr.Tracks[0], &tr.Tracks[1]))
}

func TestTheRingHoldsAsManyChunksAsTheProducerIsAhead(t *testing.T) {
	y := small()
	tr, most := y.trace(), 0
	for _, e := range tr.ringFill(&tr.Tracks[0], &tr.Tracks[1]) {
		most = max(most, e.chunks)
	}
	require.Equal(t, y.ahead, most)
}

// full takes n bytes.
type full struct{ n int }

func (f *full) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, errors.New("full")
	}
	return len(b), nil
}

func TestTheWritersErrorComesBack(t *testing.T) {
	tr := small().trace()
	require.EqualError(t, tr.WriteChrome(&full{}, 0), "full")
	require.EqualError(t, tr.WriteChrome(&full{100000}, 0), "full")
	require.EqualError(t, tr.WritePage(&full{}), "full")
	require.EqualError(t, tr.WriteSVG(&full{}), "full")
	require.EqualError(t, tr.Summarize().WriteTable(&full{}), "full")
	require.EqualError(t, tr.Summarize().WriteTable(&full{300}), "full")
}

func TestStepsAreShownAsMicroseconds(t *testing.T) {
	tr := two()
	tr.Unit = Steps
	for _, e := range events(t, tr) {
		if e.Name == "qkv" && e.Pid == 1 {
			require.Equal(t, []json.Number{"10.000", "90.000"}, []json.Number{e.Ts, e.Dur})
		}
	}
}

// Of the last steps a file has what lies in them, and how full the ring is then.
func TestAFileMayHaveTheLastStepsOnly(t *testing.T) {
	tr := small().trace()
	all := events(t, tr)
	for steps, first := range map[int]float64{1: 2, 2: 1, 3: 0, 9: 0, 0: 0} {
		var b strings.Builder
		require.NoError(t, tr.WriteChrome(&b, steps))
		var file struct{ TraceEvents []event }
		require.NoError(t, json.Unmarshal([]byte(b.String()), &file))
		var want []event
		since := map[int]int64{} // by SM
		for _, e := range all {
			if e.Ph == "X" && e.Args["step"].(float64) >= first {
				at := thousandthsOf(t, e.Ts)
				if was, ok := since[e.Pid]; !ok || at < was {
					since[e.Pid] = at
				}
			}
		}
		for _, e := range all {
			if e.Ph == "M" || e.Ph == "X" && e.Args["step"].(float64) >= first || e.Ph == "C" &&
				thousandthsOf(t, e.Ts) >= since[e.Pid] {
				want = append(want, e)
			}
		}
		require.Equal(t, want, file.TraceEvents, "%d steps", steps)
	}
}
