package bench

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/mkgen/mkgen/internal/picture"
)

// RatePlot is a picture of TFLOP/s against a number of tokens.
type RatePlot struct{ picture.Chart }

func newRatePlot(title, x string) *RatePlot {
	return &RatePlot{picture.Chart{Title: title, X: x, Y: "TFLOP/s"}}
}

// curve is the curve of a name, which is added without points where there is none.
func (r *RatePlot) curve(name, labels string) *picture.Curve {
	name += " (labels: " + labels + ")"
	i := slices.IndexFunc(r.Curves, func(k picture.Curve) bool { return k.Name == name })
	if i < 0 {
		i, r.Curves = len(r.Curves), append(r.Curves, picture.Curve{Name: name})
	}
	return &r.Curves[i]
}

// point adds a rate to a curve: of flop in rounds of µs.
func point(k *picture.Curve, tokens int, tflops, flop float64, rounds []float64, label string) {
	k.X, k.Y, k.Labels = append(k.X, float64(tokens)), append(k.Y, tflops), append(k.Labels, label)
	k.Low = append(k.Low, flop/slices.Max(rounds)/1e6)
	k.High = append(k.High, flop/slices.Min(rounds)/1e6)
}

// milliseconds writes a time of µs with three digits, or all of those before the point.
func milliseconds(us float64) string {
	if us >= 999.5e3 {
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.3g ms", us/1e3)
}

// Plot is the picture of a file of prompts: a curve for each system, whose labels are times to the first token.
func (f *PrefillFile) Plot() *RatePlot {
	p := newRatePlot("Prompts: time to the first token, as TFLOP/s", "tokens of the prompt")
	mark := ""
	if !f.Gated {
		mark = ", " + Ungated
	}
	for _, c := range f.Cases {
		name := fmt.Sprintf("%s %s, %s, %s", c.System, c.Model, c.DType, f.GPU)
		if c.System == SystemMkgen {
			name += mark
		}
		point(p.curve(name, "time to the first token"), c.Prompt, c.TFLOPS, c.FLOP, c.Rounds,
			milliseconds(c.First))
	}
	if f.Product > 0 {
		p.Levels = append(p.Levels, picture.Level{Name: "PyTorch's product of large matrices, same run", Y: f.Product})
	}
	if f.Peak > 0 {
		p.Levels = append(p.Levels, picture.Level{Name: "the datasheet's peak", Y: f.Peak})
	}
	return p
}

// SVG draws the picture. It is an error when there is nothing to draw. The same curves give the same bytes.
func (r *RatePlot) SVG() ([]byte, error) { return r.Chart.SVG(PlotGenerator) }

// Write draws into a file, written whole or not at all; its directory is made.
func (r *RatePlot) Write(path string) error {
	data, err := r.SVG()
	if err != nil {
		return err
	}
	return atomicfile.Write(path, data)
}
