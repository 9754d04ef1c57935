package trace

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the goldens under testdata anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o777))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o666))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run with -update if the change is meant")
}

func TestGoldens(t *testing.T) {
	var table, picture strings.Builder
	require.NoError(t, small().trace().Summarize().WriteTable(&table))
	golden(t, "small.txt", table.String())
	require.NoError(t, two().WriteSVG(&picture))
	golden(t, "two.svg", picture.String())
}

// elements counts a document's elements by name, and fails where it is not
// well-formed or points to something outside of itself.
func elements(t *testing.T, text string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return counts
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			counts[e.Name.Local]++
			for _, a := range e.Attr {
				require.NotContains(t, []string{"src", "href"}, a.Name.Local, "nothing is loaded")
			}
		}
	}
}

func pageOf(t *testing.T, tr *Trace) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, tr.WritePage(&b))
	return b.String()
}

func TestThePageIsWellFormedAndNeedsNothingElse(t *testing.T) {
	tr := small().trace()
	tr.Model, tr.Sites[0].Name = `<b>&"model"`, `<b>&"phase"`
	text := pageOf(t, tr)
	n := elements(t, text)
	require.Equal(t, []int{1, 4, 3, 0, 0}, []int{n["html"], n["svg"], n["table"], n["b"], n["script"]})
	require.NotContains(t, text, "url(")
	require.Equal(t, 4, strings.Count(text, `http://www.w3.org/2000/svg`))
	require.Equal(t, 8, strings.Count(text, "http"), "the namespaces of the pictures, two each")
	require.NotContains(t, text, "NaN")
	require.Equal(t, text, pageOf(t, tr), "the same trace gives the same page")
}

func TestThePageOfALargeLaunchStaysSmall(t *testing.T) {
	y := small()
	y.sms, y.chunks, y.ahead = 132, 60, 12
	text := pageOf(t, y.trace())
	require.Less(t, len(text), 3_000_000)
	require.GreaterOrEqual(t, strings.Count(text, "<title>SM "), 132*7, "each SM's phases and its producer")
	elements(t, text)
}

func TestTheTimelineIsOfTheInnerLayerOfMedianDuration(t *testing.T) {
	y := small()
	y.layers = 5
	tr := y.trace()
	// What lies behind the middle of a layer of a step comes later by so much.
	later := map[runKey]float64{{"", 1, 0}: 9000, {"", 1, 1}: 100, {"", 1, 2}: 500, {"", 1, 3}: 200, {"", 2, 1}: 600,
		{"", 2, 2}: 300, {"", 2, 3}: 400}
	layers := tr.tally().layers
	shifted := func(at float64) float64 {
		sum := at
		for k, by := range later {
			if g := layers[k]; at > (g.begin+g.end)/2 {
				sum += by
			}
		}
		return sum
	}
	for _, track := range tr.Tracks {
		for n := range track.Spans {
			s := &track.Spans[n]
			s.Begin, s.End = shifted(s.Begin), shifted(s.End)
		}
	}
	require.NoError(t, tr.Check())
	w := tr.tally().representative()
	require.Equal(t, "layer 2 of step 2, of median duration among 6", w.title)
	g := tr.tally().layers[runKey{"", 2, 2}]
	require.Equal(t, []float64{g.begin, g.end}, []float64{w.begin, w.end})
}

func TestEdgesAreSaidPlainly(t *testing.T) {
	one := small()
	one.sms, one.layers, one.steps = 1, 1, 1
	bare := small()
	bare.noProducer = true
	short := small().trace()
	cut(&short.Tracks[0], 5)
	steps := small().trace()
	steps.Unit = Steps
	for _, c := range []struct {
		name  string
		trace *Trace
		want  string
	}{
		{"empty", &Trace{Unit: Nanoseconds}, "Nothing to draw."},
		{"tracks without spans", &Trace{Unit: Nanoseconds, Tracks: []Track{{Role: Consumers}, {Role: Producer}}},
			"The trace has no spans of consumers."},
		{"all dropped", &Trace{Unit: Nanoseconds, Tracks: []Track{{Role: Consumers, Dropped: 3}}},
			"3 spans did not fit; what is drawn ends at 0 µs"},
		{"one SM, one layer, one step", one.trace(), "1 SM, 1 layer, 1 of 1 step."},
		{"no producer", bare.trace(), "The trace has no producers&#39; tracks"},
		{"dropped before the first layer ends", short, fmt.Sprintf("%d spans did not fit; what is drawn ends at %s",
			short.Dropped(), amount(Nanoseconds, short.Tracks[0].end()))},
		{"steps", steps, "an order, not a speed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, c.trace.Check())
			text := pageOf(t, c.trace)
			require.Contains(t, text, c.want)
			require.NotContains(t, text, "NaN")
			require.NotContains(t, text, "Inf")
			elements(t, text)
			var b strings.Builder
			require.NoError(t, c.trace.WriteSVG(&b))
			elements(t, b.String())
			require.NoError(t, c.trace.WriteChrome(io.Discard, 0))
		})
	}
}

func TestStrokesKeepTheirLengthHoweverShort(t *testing.T) {
	s := strokes{x: func(t float64) float64 { return t }}
	w := window{0, 1000, ""}
	for i := range 1000 { // a tenth of each pixel
		s.add(float64(i), float64(i)+0.1, w)
	}
	s.flush()
	drawn := 0.0
	strokesDrawn := regexp.MustCompile(`h([0-9.]+)`).FindAllStringSubmatch(string(s.d), -1)
	for _, m := range strokesDrawn {
		var x float64
		_, err := fmt.Sscan(m[1], &x)
		require.NoError(t, err)
		drawn += x
	}
	require.InDelta(t, 100, drawn, 15)
	require.Less(t, len(strokesDrawn), 300)
}

func TestStrokesThatTouchAreOne(t *testing.T) {
	s := strokes{x: func(t float64) float64 { return t }}
	for i := range 10 {
		s.add(float64(i), float64(i+1), window{2, 8, ""})
	}
	s.flush()
	require.Equal(t, "M2 0h6", string(s.d))
}

func TestTheRingsAreLookedAtOverTheWindow(t *testing.T) {
	tr := two()
	tr.Tracks = append(tr.Tracks,
		Track{SM: 1, Role: Producer, Spans: []Span{{End: 8, Site: 3}, {Begin: 8, End: 9, Site: 3}}})
	y := tr.tally()
	p := y.plot(y.summary())
	require.Equal(t, []float64{10, 114}, []float64{p.w.begin, p.w.end})
	mean, least, most, n := p.fills()
	require.Equal(t, 2, n)
	at := func(time float64) int { return int((time - 10) / (114 - 10) * (samples - 1)) }
	for _, c := range []struct{ time, mean, least, most float64 }{
		{11, 1, 0, 2}, {20, 1.5, 1, 2}, {30, 1, 1, 1}, {50, 0.5, 0, 1}, {114, 0.5, 0, 1}} {
		i := at(c.time)
		require.Equal(t, []float64{c.mean, c.least, c.most}, []float64{mean[i], least[i], most[i]}, "at %g", c.time)
	}
}

func TestWhatTheTraceDoesNotTellIsNotShown(t *testing.T) {
	y := small()
	y.sms, y.noProducer = 1, true
	text := pageOf(t, y.trace())
	for _, not := range []string{"ring is full", "lost to uneven arrival", "in flight</th>", "before the last arrival"} {
		require.NotContains(t, text, not)
	}
	require.Contains(t, text, "One SM waits for no other.")
	text = pageOf(t, small().trace())
	for _, is := range []string{"the ring is full", "lost to uneven arrival", "in flight</th>",
		"before the last arrival"} {
		require.Contains(t, text, is)
	}
}

func TestTheRingsStagesAreALineThatTheAxisReaches(t *testing.T) {
	ring := func(stages int) string {
		tr := small().trace()
		tr.Stages = stages
		y := tr.tally()
		return string(y.plot(y.summary()).ringPlot())
	}
	require.NotContains(t, ring(0), "stroke-dasharray", "it is not known")
	require.NotContains(t, ring(0), "ring: ")
	for _, c := range []struct {
		stages      int
		label, line string
	}{
		{1, "ring: 1 stage<", `x1="62.0" y1="150.0" x2="1166.0" y2="150.0"`}, // of up to 4 chunks
		{4, "ring: 4 stages<", `x1="62.0" y1="30.0" x2="1166.0" y2="30.0"`},
		{11, "ring: 11 stages<", `x1="62.0" y1="30.0" x2="1166.0" y2="30.0"`},
	} {
		text := ring(c.stages)
		require.Contains(t, text, c.label)
		require.Contains(t, text, `<line `+c.line+` stroke="#222222" stroke-width="1" fill="none" stroke-dasharray`)
		elements(t, text)
	}
	require.Contains(t, ring(11), ">10</text>", "the axis goes on to the line")
}
