package bench

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/mkgen/mkgen/internal/whole"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Series is what a plot shows as one curve: the cases of one model on one GPU.
type Series struct {
	Name  string // "llama3-8b, NVIDIA H200"
	Cases []Case
}

// SeriesOf are the curves of a record: one for each of its models and types, with
// mark behind the name where that is not empty.
func SeriesOf(r *Record, mark string) []Series {
	var all []Series
	for _, c := range r.Cases {
		name := fmt.Sprintf("%s %s, %s", c.Model, c.DType, r.GPU)
		if c.Choice != "" {
			name += ", " + c.Choice
		}
		if mark != "" {
			name += ", " + mark
		}
		i := slices.IndexFunc(all, func(s Series) bool { return s.Name == name })
		if i < 0 {
			i, all = len(all), append(all, Series{Name: name})
		}
		all[i].Cases = append(all[i].Cases, c)
	}
	return all
}

// palette are colours that people with any kind of sight tell apart (Okabe and Ito).
func palette(i int) color.Color {
	colours := []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
		{86, 180, 233, 255}, {230, 159, 0, 255}}
	return colours[i%len(colours)]
}

const (
	plotWidth  = 20 * vg.Centimeter
	plotHeight = 13 * vg.Centimeter
)

// SVG draws device time per token against context, each point with its spread over
// the rounds and its share of the ceiling, and below each curve its floor: the
// bytes that must be read at the ceiling. It is an error when there is nothing to
// draw. The same series give the same bytes.
func SVG(series []Series) ([]byte, error) {
	p := newPlot("Decoding at batch 1", "tokens in the KV cache", "device time per token, µs")
	var contexts []float64
	top := 0.0
	for i, s := range series {
		if err := add(p, s, palette(i)); err != nil {
			return nil, err
		}
		for _, c := range s.Cases {
			_, high := c.spread()
			contexts, top = append(contexts, at(c)), max(top, high)
		}
	}
	if len(contexts) == 0 {
		return nil, errors.New("plot: no cases to draw")
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks(contexts))
	p.X.Min, p.X.Max = slices.Min(contexts)/1.3, slices.Max(contexts)*1.3
	p.Y.Max = top * (1.15 + 0.11*float64(len(series))) // room for the legend
	p.Y.Tick.Marker = plot.ConstantTicks(steps(p.Y.Max))
	return drawn(p)
}

// newPlot is an empty picture with a logarithmic x axis, a grid, and a legend at the top left.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Title.Padding = 8
	for _, f := range []struct {
		of   *font.Font
		size font.Length
	}{{&p.Title.TextStyle.Font, 14}, {&p.X.Label.TextStyle.Font, 11}, {&p.Y.Label.TextStyle.Font, 11},
		{&p.X.Tick.Label.Font, 10}, {&p.Y.Tick.Label.Font, 10}, {&p.Legend.TextStyle.Font, 10}} {
		f.of.Variant, f.of.Size = "Sans", f.size
	}
	p.X.Scale, p.Y.Min = plot.LogScale{}, 0
	p.Legend.Top, p.Legend.Left, p.Legend.YOffs, p.Legend.XOffs = true, true, -4, 8
	p.Legend.Padding = 3
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{240}
	p.Add(grid)
	return p
}

// drawn is a picture as SVG.
func drawn(p *plot.Plot) ([]byte, error) {
	canvas := vgsvg.New(plotWidth, plotHeight)
	area := draw.New(canvas)
	area.FillPolygon(color.White, []vg.Point{{}, {X: plotWidth}, {X: plotWidth, Y: plotHeight}, {Y: plotHeight}})
	p.Draw(draw.Crop(area, 8, -14, 8, -8))
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

// at is a case's place on the axis; an empty cache is drawn at 1.
func at(c Case) float64 { return math.Max(1, float64(c.Context)) }

// ticks are the contexts themselves.
func ticks(contexts []float64) (all []plot.Tick) {
	for _, x := range slices.Compact(slices.Sorted(slices.Values(contexts))) {
		all = append(all, plot.Tick{Value: x, Label: strconv.Itoa(int(x))})
	}
	return all
}

// steps are places from 0 to top (positive) at 1, 2 or 5 times a power of ten, five
// to twelve of them.
func steps(top float64) (all []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(top/5)))
	for _, by := range []float64{2, 2.5, 2} { // 2, 5, 10
		if top/step > 10 {
			step *= by
		}
	}
	for i := 0; float64(i)*step <= top; i++ {
		all = append(all, plot.Tick{Value: float64(i) * step, Label: strconv.FormatFloat(float64(i)*step, 'g', 6, 64)})
	}
	return all
}

// curve is a series as the plotters want it: points, their spread, their shares.
type curve struct {
	plotter.XYs
	plotter.YErrors
	floor  plotter.XYs
	shares []string
}

func curveOf(s Series) (c curve) {
	cases := slices.Clone(s.Cases)
	slices.SortStableFunc(cases, func(a, b Case) int { return a.Context - b.Context })
	for i := range cases {
		low, high := cases[i].spread()
		y := cases[i].DeviceMicros
		c.XYs = append(c.XYs, plotter.XY{X: at(cases[i]), Y: y})
		c.YErrors = append(c.YErrors, struct{ Low, High float64 }{y - low, high - y})
		c.floor = append(c.floor, plotter.XY{X: at(cases[i]), Y: cases[i].BytesPerToken / cases[i].CeilingGBps / 1e3})
		c.shares = append(c.shares, fmt.Sprintf("%.0f %%", 100*cases[i].Share))
	}
	return c
}

func add(p *plot.Plot, s Series, colour color.Color) error {
	c := curveOf(s)
	line, points, err := plotter.NewLinePoints(c.XYs)
	if err != nil {
		return fmt.Errorf("plot: %s: %w", s.Name, err)
	}
	line.Color, line.Width = colour, 1.6
	points.Color, points.Shape, points.Radius = colour, draw.CircleGlyph{}, 2.6
	bars, err := plotter.NewYErrorBars(c)
	if err != nil {
		return fmt.Errorf("plot: %s: %w", s.Name, err)
	}
	bars.Color = colour
	floor, err := plotter.NewLine(c.floor)
	if err != nil {
		return fmt.Errorf("plot: %s: %w", s.Name, err)
	}
	floor.Color, floor.Width, floor.Dashes = colour, 1.2, []vg.Length{5, 3}
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: c.XYs, Labels: c.shares})
	if err != nil {
		return fmt.Errorf("plot: %s: %w", s.Name, err)
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i] = text.Style{Color: colour, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9},
			XAlign: draw.XCenter, Handler: plot.DefaultTextHandler}
	}
	labels.Offset = vg.Point{Y: 6}
	p.Add(floor, line, points, bars, labels)
	p.Legend.Add(s.Name+" (labels: share of the ceiling)", line, points)
	p.Legend.Add("floor: weights and KV read once at the streaming ceiling", floor)
	return nil
}

// plotHead is what the pictures of SVGo begin with, of which plots and heat maps are.
var plotHead = regexp.MustCompile(`^<\?xml version="1\.0"\?>\n<!-- Generated by SVGo`)

// IsPlot says whether a file may be a plot, or a heat map of a sweep, by its first 64 bytes
// or more. They name the library that writes them and not mkgen, so another program's
// picture by that library is taken for one.
func IsPlot(head []byte) bool { return plotHead.Match(head) }

// WriteSVG draws into a file, written whole or not at all; its directory is made.
func WriteSVG(path string, series []Series) error {
	data, err := SVG(series)
	if err != nil {
		return err
	}
	return whole.Write(path, data)
}
