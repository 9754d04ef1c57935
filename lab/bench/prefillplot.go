package bench

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"

	"github.com/mkgen/mkgen/internal/whole"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Curve is a line of a RatePlot. Low and High are the spread of Y over the rounds; Labels stand above the points.
type Curve struct {
	Name         string
	X, Y         []float64
	Low, High    []float64
	Labels       []string
	LabelMeaning string
}

// RatePlot is a picture of TFLOP/s against a number of tokens, on a logarithmic axis.
type RatePlot struct {
	Title, X string
	Curves   []Curve
	Levels   []Level // horizontal lines
}

// Level is a horizontal line of a RatePlot.
type Level struct {
	Name string
	Y    float64
}

// Plot is the picture of a file of prompts: a curve for each system, whose labels are times to the first token.
func (f *PrefillFile) Plot() *RatePlot {
	p := &RatePlot{Title: "Prompts: time to the first token, as TFLOP/s", X: "tokens of the prompt"}
	mark := ""
	if !f.Gated {
		mark = ", " + Ungated
	}
	for _, c := range f.Cases {
		name := fmt.Sprintf("%s %s, %s, %s", c.System, c.Model, c.DType, f.GPU)
		if c.System == SystemMkgen {
			name += mark
		}
		i := slices.IndexFunc(p.Curves, func(k Curve) bool { return k.Name == name })
		if i < 0 {
			i, p.Curves = len(p.Curves), append(p.Curves, Curve{Name: name, LabelMeaning: "time to the first token"})
		}
		k := &p.Curves[i]
		k.X, k.Y = append(k.X, float64(c.Prompt)), append(k.Y, c.TFLOPS)
		k.Low = append(k.Low, c.FLOP/slices.Max(c.Rounds)/1e6)
		k.High = append(k.High, c.FLOP/slices.Min(c.Rounds)/1e6)
		k.Labels = append(k.Labels, fmt.Sprintf("%.3g ms", c.First/1e3))
	}
	if f.Product > 0 {
		p.Levels = append(p.Levels, Level{"PyTorch's product of large matrices, same run", f.Product})
	}
	if f.Peak > 0 {
		p.Levels = append(p.Levels, Level{"the datasheet's peak", f.Peak})
	}
	return p
}

// SVG draws the picture. It is an error when there is nothing to draw. The same curves give the same bytes.
func (r *RatePlot) SVG() ([]byte, error) {
	p := newPlot(r.Title, r.X, "TFLOP/s")
	var xs []float64
	top := 0.0
	for _, c := range r.Curves {
		for i, x := range c.X {
			xs, top = append(xs, x), max(top, c.High[i])
		}
	}
	if len(xs) == 0 {
		return nil, errors.New("plot: no cases to draw")
	}
	for i, l := range r.Levels {
		line, err := plotter.NewLine(plotter.XYs{{X: slices.Min(xs) / 1.3, Y: l.Y}, {X: slices.Max(xs) * 1.3, Y: l.Y}})
		if err != nil {
			return nil, fmt.Errorf("plot: %w", err)
		}
		line.Color, line.Width, line.Dashes = color.Gray{uint8(60 + 60*i)}, 1.2, []vg.Length{5, 3}
		p.Add(line)
		p.Legend.Add(l.Name, line)
		top = max(top, l.Y)
	}
	for i, c := range r.Curves {
		if err := c.add(p, palette(i)); err != nil {
			return nil, fmt.Errorf("plot: %s: %w", c.Name, err)
		}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks(xs))
	p.X.Min, p.X.Max = slices.Min(xs)/1.3, slices.Max(xs)*1.3
	p.Y.Max = top * (1.1 + 0.06*float64(len(r.Curves)+len(r.Levels))) // room for the legend
	p.Y.Tick.Marker = plot.ConstantTicks(steps(p.Y.Max))
	return drawn(p)
}

func (c *Curve) add(p *plot.Plot, colour color.Color) error {
	var points struct {
		plotter.XYs
		plotter.YErrors
	}
	for i := range c.X {
		points.XYs = append(points.XYs, plotter.XY{X: c.X[i], Y: c.Y[i]})
		points.YErrors = append(points.YErrors, struct{ Low, High float64 }{math.Max(0, c.Y[i]-c.Low[i]),
			math.Max(0, c.High[i]-c.Y[i])})
	}
	line, glyphs, err := plotter.NewLinePoints(points.XYs)
	if err != nil {
		return err
	}
	bars, err := plotter.NewYErrorBars(points)
	if err != nil {
		return err
	}
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: points.XYs, Labels: c.Labels})
	if err != nil {
		return err
	}
	line.Color, line.Width = colour, 1.6
	glyphs.Color, glyphs.Shape, glyphs.Radius = colour, draw.CircleGlyph{}, 2.6
	bars.Color = colour
	for i := range labels.TextStyle {
		labels.TextStyle[i] = text.Style{Color: colour, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9},
			XAlign: draw.XCenter, Handler: plot.DefaultTextHandler}
	}
	labels.Offset = vg.Point{Y: 6}
	p.Add(line, glyphs, bars, labels)
	p.Legend.Add(c.Name+" (labels: "+c.LabelMeaning+")", line, glyphs)
	return nil
}

// Write draws into a file, written whole or not at all; its directory is made.
func (r *RatePlot) Write(path string) error {
	data, err := r.SVG()
	if err != nil {
		return err
	}
	return whole.Write(path, data)
}
