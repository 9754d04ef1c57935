package trace

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// summedUp is a synthetic launch's trace as a kernel would note it with up to n chunks a
// sum: waits get their chunk's number in the launch, and become sums that end at the end
// of a phase or after n chunks. In the producer waits for copies lie before those for stages.
func summedUp(t *testing.T, y synthetic, n int) (exact, sums *Trace) {
	t.Helper()
	exact, sums = y.trace(), y.trace()
	first := len(sums.Sites)
	sums.Sites = append(sums.Sites, Site{Wait, ChunkWaits, Consumers, ""}, Site{Wait, StageWaits, Producer, ""})
	for i := range exact.Tracks {
		site, own := first, chunkSite
		if exact.Tracks[i].Role == Producer {
			site, own = first+1, stageSite
		}
		var out []Span
		chunk, pending, flight, last := 0, 0.0, 0.0, Span{}
		settle := func() {
			if pending > 0 {
				detail := uint32(chunk - 1)
				if site == first+1 {
					out = append(out, Span{last.End - pending - flight, last.End - pending, flightSite, last.Step, last.Layer, detail})
				}
				out = append(out, Span{last.End - pending, last.End, site, last.Step, last.Layer, detail})
				pending, flight = 0, 0
			}
		}
		for j := range exact.Tracks[i].Spans {
			s := &exact.Tracks[i].Spans[j]
			if s.Step != last.Step || s.Layer != last.Layer {
				settle()
			}
			switch s.Site {
			case own:
				s.Detail = uint32(chunk)
				pending += s.End - s.Begin
				last, chunk = *s, chunk+1
				if chunk%n == 0 {
					settle()
				}
			case flightSite:
				flight += s.End - s.Begin
				last.Step, last.Layer = s.Step, s.Layer
			default:
				settle()
				out = append(out, *s)
			}
		}
		settle()
		sums.Tracks[i].Spans = out
	}
	require.NoError(t, exact.Check())
	require.NoError(t, sums.Check())
	return exact, sums
}

func TestSumsOfWaitsAreTheSameFigures(t *testing.T) {
	y := small()
	y.chunks = 25
	exact, sums := summedUp(t, y, 8)
	n := func(tr *Trace) (n int) {
		for i := range tr.Tracks {
			n += len(tr.Tracks[i].Spans)
		}
		return n
	}
	require.Less(t, 3*n(sums), n(exact))
	want, got := exact.Summarize(), sums.Summarize()
	require.Equal(t, want.Handoffs, got.Handoffs)
	for i, p := range want.Phases {
		q := got.Phases[i]
		near(t, p.Time, q.Time, p.Name)
		near(t, p.Work, q.Work, p.Name)
		near(t, p.Chunks, q.Chunks, p.Name)
		// The producer's sums may lie across the ends of the consumers' phases.
		require.InDelta(t, p.RingFull, q.RingFull, 0.15*p.Time, p.Name)
		require.InDelta(t, p.InFlight, q.InFlight, 0.15*p.Time, p.Name)
	}
	near(t, want.Step.Chunks, got.Step.Chunks, "step")
	require.InEpsilon(t, want.Step.RingFull, got.Step.RingFull, 0.02)
	require.InEpsilon(t, want.Step.InFlight, got.Step.InFlight, 0.02)
}

func TestPlacesOfASumLieWithinItsTime(t *testing.T) {
	y := small()
	y.chunks = 25
	exact, sums := summedUp(t, y, 8)
	for i := range sums.Tracks {
		tr := &sums.Tracks[i]
		places, floors := sums.places(tr), sums.phaseBegins(tr)
		ends, many := 0.0, 0
		for j := range tr.Spans {
			s := &tr.Spans[j]
			if sums.Sites[s.Site].Name != ChunkWaits && sums.Sites[s.Site].Name != StageWaits {
				continue
			}
			length := 0.0
			list := places(j)
			for _, at := range list {
				require.GreaterOrEqual(t, at.begin, max(ends, floors[j])-1e-6)
				ends = at.end
				length += at.end - at.begin
			}
			near(t, s.End-s.Begin, length, "length")
			near(t, s.End, ends, "end")
			if len(list) > 1 {
				many++
			}
		}
		require.Greater(t, many, 10)
	}
	// Each chunk goes by within a sum of when it did.
	for i := range exact.Tracks {
		which := chunkWait
		if exact.Tracks[i].Role == Producer {
			which = stageWait
		}
		want, got := exact.passings(&exact.Tracks[i], which), sums.passings(&sums.Tracks[i], which)
		require.Len(t, got, len(want))
		for c := range want {
			require.GreaterOrEqual(t, want[c].at, got[c].early-1e-6, "chunk %d of track %d", c, i)
			require.LessOrEqual(t, want[c].at, got[c].late+1e-6, "chunk %d of track %d", c, i)
		}
	}
	require.NotNil(t, sums.ringFill(&sums.Tracks[0], &sums.Tracks[1]))
}

// What is drawn of a producer's two sums does not overlap.
func TestSumsOfTheProducerLieSideBySide(t *testing.T) {
	tr := &Trace{Unit: Nanoseconds, Sites: []Site{{Wait, FlightWait, Producer, ""}, {Wait, StageWaits, Producer, ""}, {Phase, "o", Producer, "o"}},
		Layers: 1, Tracks: []Track{{Role: Producer, Spans: []Span{
			{Begin: 140, End: 180, Site: 0, Detail: 3}, {Begin: 180, End: 200, Site: 1, Detail: 3}, {Begin: 100, End: 210, Site: 2}}}}}
	require.NoError(t, tr.Check())
	places := tr.places(&tr.Tracks[0])
	require.Equal(t, []interval{{110, 120}, {135, 145}, {160, 170}, {185, 195}}, places(0))
	require.Equal(t, []interval{{120, 125}, {145, 150}, {170, 175}, {195, 200}}, places(1))
	require.Equal(t, []interval{{100, 210}}, places(2))
}

// A sum of chunks that others have told already is drawn where it is.
func TestASumOfNoChunk(t *testing.T) {
	tr := &Trace{Unit: Nanoseconds, Sites: []Site{{Wait, StageWait, Producer, ""}, {Wait, FlightWait, Producer, ""}, {Wait, StageWaits, Producer, ""}},
		Tracks: []Track{{Role: Producer, Spans: []Span{{Begin: 0, End: 50, Detail: 0}, {Begin: 52, End: 58, Site: 1, Detail: 0}, {Begin: 58, End: 58, Site: 2, Detail: 0}}}}}
	require.NoError(t, tr.Check())
	require.Len(t, tr.passings(&tr.Tracks[0], stageWait), 1)
	require.Equal(t, []interval{{52, 58}}, tr.places(&tr.Tracks[0])(1))
}

// A chunk is not drained before it can have been issued.
func TestSumsThatContradictEachOtherAreNotTold(t *testing.T) {
	y := small()
	y.chunks = 25
	_, sums := summedUp(t, y, 8)
	early := sums.Tracks[0]
	early.Spans = slices.Clone(early.Spans)
	for i := range early.Spans {
		early.Spans[i].Begin, early.Spans[i].End = early.Spans[i].Begin-5000, early.Spans[i].End-5000
	}
	require.Nil(t, sums.ringFill(&early, &sums.Tracks[1]))
}

func TestWaitsForWordsAreShown(t *testing.T) {
	tr := two()
	tr.Sites[5].Name = "queries"
	var table strings.Builder
	require.NoError(t, tr.Summarize().WriteTable(&table))
	require.Regexp(t, `(?m)^  qkv +queries +0\.50 +0\.00 +0\.00`, table.String())
	require.Regexp(t, `hand-off +words `, table.String())
}
