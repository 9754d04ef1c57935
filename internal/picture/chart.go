package picture

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Chart shows curves over a logarithmic axis. The vertical axis begins at 0.
type Chart struct {
	Title, X, Y string // X and Y name the axes, with their units
	Curves      []Curve
	Levels      []Level
}

// Curve is a line through points in the order of X, each with its spread and a label above it. All lists have one
// length.
type Curve struct {
	Name      string // in the legend
	X, Y      []float64
	Low, High []float64 // the spread of Y
	Labels    []string
	Floor     []float64 // a dashed line of the same colour; nil: none
	FloorName string
}

// Level is a horizontal dashed line.
type Level struct {
	Name string
	Y    float64
}

// The chart's measures, in pixels.
const (
	chartWidth  = 756.0
	chartHeight = 491.0
	chartLeft   = 74.0
	chartRight  = chartWidth - 20
	chartTop    = 44.0
	chartBottom = chartHeight - 54
	chartLegend = 16.0 // height of a line of the legend
)

// drawing is a chart on its way to a picture.
type drawing struct {
	*Picture
	c                *Chart
	least, most, top float64 // of the axes
	legend           int     // lines drawn of it
}

// SVG draws the chart. generator names what writes it. A chart without points is an error. The same chart gives the
// same bytes.
func (c *Chart) SVG(generator string) ([]byte, error) {
	d := &drawing{Picture: New(), c: c}
	var xs []float64
	lines := len(c.Curves) + len(c.Levels)
	for _, k := range c.Curves {
		xs = append(xs, k.X...)
		d.top = max(d.top, slices.Max(append(k.High, 0)), slices.Max(append(k.Y, 0)))
		if k.Floor != nil {
			lines++
		}
	}
	for _, l := range c.Levels {
		d.top = max(d.top, l.Y)
	}
	if len(xs) == 0 || d.top == 0 {
		return nil, errors.New("plot: no cases to draw")
	}
	xs = slices.Compact(slices.Sorted(slices.Values(xs)))
	d.least, d.most = math.Log(xs[0]/1.3), math.Log(xs[len(xs)-1]*1.3)
	d.top *= (chartBottom - chartTop) / (chartBottom - chartTop - 28 - chartLegend*float64(lines)) // room for the legend
	d.axes(xs)
	for i, l := range c.Levels {
		grey := uint8(60 + 60*min(i, 2))
		style := Stroke(RGB{grey, grey, grey}, 1.6)
		d.Line(chartLeft, d.y(l.Y), chartRight, d.y(l.Y), style, Dashes)
		d.entry(l.Name, style, true, nil)
	}
	for i := range c.Curves {
		d.curve(&c.Curves[i], CurveHue(i))
	}
	return d.Finish(generator, chartWidth, chartHeight, c.Title), nil
}

func (d *drawing) x(v float64) float64 {
	return chartLeft + (math.Log(v)-d.least)/(d.most-d.least)*(chartRight-chartLeft)
}

func (d *drawing) y(v float64) float64 { return chartBottom - v/d.top*(chartBottom-chartTop) }

// axes draws the title, the grid, and the axes with their names; below the horizontal one stand xs themselves.
func (d *drawing) axes(xs []float64) {
	d.Text(chartWidth/2, 24, d.c.Title, `font-size="18" text-anchor="middle" `+Fill(Ink))
	last := math.Inf(-1)
	for _, v := range xs {
		x, label := d.x(v), strconv.FormatFloat(v, 'f', -1, 64)
		d.Rule(x, chartTop, x, chartBottom, Grid, 1)
		if half := TextWidth(label, 12) / 2; x-half > last {
			d.Label(x, chartBottom+18, 12, Middle, Ink, label)
			last = x + half + 4
		}
	}
	at, decimals := Ticks(d.top, 10)
	for _, v := range at {
		d.Rule(chartLeft, d.y(v), chartRight, d.y(v), Grid, 1)
		d.Label(chartLeft-8, d.y(v)+4, 12, Right, Ink, fmt.Sprintf("%.*f", decimals, v))
	}
	d.Rule(chartLeft, chartBottom, chartRight, chartBottom, Ink, 1)
	d.Rule(chartLeft, chartTop, chartLeft, chartBottom, Ink, 1)
	d.Label((chartLeft+chartRight)/2, chartHeight-12, 14, Middle, Ink, d.c.X)
	d.Upwards(22, (chartTop+chartBottom)/2, 14, d.c.Y)
}

// curve draws the floor, the line, the points with their spread, and the labels.
func (d *drawing) curve(k *Curve, colour RGB) {
	solid, thin := Stroke(colour, 2), Stroke(colour, 1.5)
	xs, ys, floor := make([]float64, len(k.X)), make([]float64, len(k.X)), make([]float64, len(k.Floor))
	for i, v := range k.X {
		xs[i], ys[i] = d.x(v), d.y(k.Y[i])
	}
	for i, v := range k.Floor {
		floor[i] = d.y(v)
	}
	if len(floor) > 0 {
		d.Polyline(xs, floor, thin, Dashes)
	}
	d.Polyline(xs, ys, solid)
	for i, x := range xs {
		low, high := d.y(k.Low[i]), d.y(k.High[i])
		d.Line(x, low, x, high, thin)
		d.Line(x-4, low, x+4, low, thin)
		d.Line(x-4, high, x+4, high, thin)
		d.Circle(x, ys[i], 3.5, Fill(colour))
		d.Label(x, min(ys[i]-9, high-5), 11.5, Middle, colour, k.Labels[i]) // above point and spread
	}
	d.entry(k.Name, solid, false, &colour)
	if k.Floor != nil {
		d.entry(k.FloorName, thin, true, nil)
	}
}

// entry adds a line to the legend at the upper left: a piece of the line, with a point on it, and its name.
func (d *drawing) entry(name, style string, dashed bool, point *RGB) {
	y := chartTop + 16 + chartLegend*float64(d.legend)
	d.legend++
	styles := []string{style}
	if dashed {
		styles = append(styles, Dashes)
	}
	d.Line(chartLeft+12, y-4, chartLeft+40, y-4, styles...)
	if point != nil {
		d.Circle(chartLeft+26, y-4, 3.5, Fill(*point))
	}
	d.Label(chartLeft+48, y, 12.5, Left, Ink, name)
}
