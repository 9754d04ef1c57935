package picture

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTicksAreRoundAndNotTooMany(t *testing.T) {
	for _, c := range []struct {
		top      float64
		most     int
		step     float64
		decimals int
	}{{108, 10, 20, 0}, {100, 10, 10, 0}, {0.9, 10, 0.1, 1}, {12, 6, 2, 0}, {33.9, 14, 5, 0}, {2.2, 5, 0.5, 1},
		{1, 14, 0.1, 1}} {
		at, decimals := Ticks(c.top, c.most)
		require.InDelta(t, c.step, at[1], 1e-9, "to %g", c.top)
		require.Equal(t, c.decimals, decimals, "to %g", c.top)
		require.LessOrEqual(t, len(at), c.most+1)
	}
}

func TestTicksAreFiveToTwelveOfAnySize(t *testing.T) {
	for top := 0.013; top < 1e7; top *= 1.7 {
		at, _ := Ticks(top, 10)
		require.True(t, len(at) >= 5 && len(at) <= 12, "%d to %v", len(at), top)
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err, text)
	}
}

func TestTextIsEscaped(t *testing.T) {
	const s = `<a "b" & 'c'>`
	p := New()
	p.Label(1, 2, 10, Left, Ink, s)
	p.Heading(1, 2, s)
	p.Upwards(1, 2, 10, s)
	p.Box(0, 0, 1, 1, Ink, s)
	p.Legend(0, 0, 100, []Entry{{[]RGB{Ink}, s}})
	text := string(p.Finish("mkgen test", 10, 20, s))
	wellFormed(t, text)
	require.NotContains(t, text, "<a ")
	require.True(t, IsOf([]byte(text)[:128], "mkgen test"))
	require.False(t, IsOf([]byte(text), "mkgen tes"))
	inline := string(Inline([]byte(text)))
	require.True(t, strings.HasPrefix(inline, "<svg"))
	wellFormed(t, inline)
}

// A chart whose figures are easy: points lie where the axes say.
func TestAChartsPointsLieOnItsAxes(t *testing.T) {
	c := Chart{Title: "t", X: "x", Y: "y", Curves: []Curve{{Name: "k", X: []float64{1, 10, 100}, Y: []float64{5, 10, 10},
		Low: []float64{5, 9, 10}, High: []float64{5, 11, 10}, Labels: []string{"a", "b", "c"}, Floor: []float64{1, 1, 1},
		FloorName: "f"}}, Levels: []Level{{"l", 20}}}
	data, err := c.SVG("mkgen test")
	require.NoError(t, err)
	text := string(data)
	wellFormed(t, text)
	middle := `<circle cx="405.0"` // of the axis from 74 to 736
	require.Contains(t, text, middle)
	for _, want := range []string{">1<", ">10<", ">100<", ">20<", ">a<", ">k<", ">f<", ">l<", Dashes} {
		require.Contains(t, text, want)
	}
	require.Equal(t, 1, strings.Count(text, ">100<"))
	for _, none := range []Chart{{}, {Curves: []Curve{{Name: "k"}}}} {
		_, err = none.SVG("")
		require.EqualError(t, err, "plot: no cases to draw")
	}
}
