package pipeline_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/mkgen/mkgen/pipeline"
)

// TestGoldens runs the files under testdata/plan. Rewrite them with
//
//	go test ./pipeline -run TestGoldens -rewrite
//
// Every command takes model=, sms=, and the settings of a Request as arguments, or
// instead of model= a body of lines "layer NAME ROWS K", "final NAME ROWS K" and "fixed
// NAME BYTES [ALIGN]".
//
//   - plan: the plan's description, or the error
//   - shares: how many tiles of each matrix the SMs own, SMs with equal shares in one line
//   - chunks sm= layer=: the chunks of one SM, one a line
//   - evenness: one line of figures
func TestGoldens(t *testing.T) {
	datadriven.Walk(t, "testdata/plan", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			commands := map[string]func(*testing.T, *datadriven.TestData, pipeline.Request, *pipeline.Plan) string{
				"plan": func(_ *testing.T, _ *datadriven.TestData, _ pipeline.Request, p *pipeline.Plan) string {
					return p.String()
				},
				"shares": func(_ *testing.T, _ *datadriven.TestData, _ pipeline.Request, p *pipeline.Plan) string {
					return shares(p)
				},
				"chunks":   chunks,
				"evenness": evenness,
			}
			command, ok := commands[d.Cmd]
			if !ok {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			r := request(t, d)
			p, err := pipeline.New(r)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return command(t, d, r, p)
		})
	})
}

func request(t *testing.T, d *datadriven.TestData) pipeline.Request {
	r := pipeline.Request{SMs: 132, Layers: 1, SharedLimit: 232448}
	if d.HasArg("model") {
		var name string
		d.ScanArgs(t, "model", &name)
		r = shapeNamed(name).request(132)
	}
	for _, arg := range d.CmdArgs {
		into := map[string]*int{
			"sms": &r.SMs, "layers": &r.Layers, "stage-bytes": &r.StageBytes, "stages": &r.Stages,
			"in-flight": &r.InFlight, "limit": &r.SharedLimit, "kv": &r.KVTokenBytes, "batch": &r.BatchTiles,
		}[arg.Key]
		if into != nil && len(arg.Vals) == 1 {
			*into = number(t, d, arg.Vals[0])
		} else if into != nil || !slices.Contains([]string{"model", "sm", "layer"}, arg.Key) {
			d.Fatalf(t, "argument %s", arg)
		}
	}
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		switch {
		case len(f) == 4 && f[0] == "layer":
			r.Layer = append(r.Layer, pipeline.Matrix{Name: unquote(f[1]), Rows: number(t, d, f[2]), K: number(t, d, f[3])})
		case len(f) == 4 && f[0] == "final":
			r.Final = append(r.Final, pipeline.Matrix{Name: unquote(f[1]), Rows: number(t, d, f[2]), K: number(t, d, f[3])})
		case (len(f) == 3 || len(f) == 4) && f[0] == "fixed":
			g := pipeline.Region{Name: unquote(f[1]), Bytes: number(t, d, f[2])}
			if len(f) == 4 {
				g.Align = number(t, d, f[3])
			}
			r.Fixed = append(r.Fixed, g)
		default:
			d.Fatalf(t, "line %q", line)
		}
	}
	return r
}

// unquote lets a body say "" for an empty name.
func unquote(s string) string { return strings.Trim(s, `"`) }

func number(t *testing.T, d *datadriven.TestData, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}

func shares(p *pipeline.Plan) string {
	var b strings.Builder
	for layer, name := range []string{"layer", "final"} {
		layer, from := -layer, 0 // 0, then FinalLayer
		for s := 1; s <= p.SMs; s++ {
			if s < p.SMs && share(p, layer, s) == share(p, layer, from) {
				continue
			}
			fmt.Fprintf(&b, "%s SM %d to %d: %s\n", name, from, s-1, share(p, layer, from))
			from = s
		}
	}
	return b.String()
}

func share(p *pipeline.Plan, layer, sm int) string {
	text := ""
	for _, m := range p.Matrices(layer) {
		text += fmt.Sprintf("%d %s, ", m.Count[sm], m.Name)
	}
	return text + fmt.Sprintf("%d B", p.SMBytes(sm, layer))
}

func chunks(t *testing.T, d *datadriven.TestData, _ pipeline.Request, p *pipeline.Plan) string {
	var b strings.Builder
	var sm, layer int
	d.ScanArgs(t, "sm", &sm)
	d.ScanArgs(t, "layer", &layer)
	for c := range p.LayerChunks(sm, layer) {
		fmt.Fprintf(&b, "%d B at %d: %s tile %d columns %d to %d\n", c.Bytes, c.Offset, p.Matrices(layer)[c.Matrix].Name,
			c.Tile, c.K, c.K+c.Columns-1)
	}
	return b.String()
}

func evenness(_ *testing.T, _ *datadriven.TestData, _ pipeline.Request, p *pipeline.Plan) string {
	var b strings.Builder
	e := p.Efficiency()
	fmt.Fprintf(&b, "layer %.2f %% (", 100*e.Layer)
	sep := ""
	for i, m := range p.Layer {
		fmt.Fprintf(&b, "%s%s %.1f", sep, m.Name, 100*e.LayerMatrix[i])
		sep = ", "
	}
	fmt.Fprintf(&b, "), final %.2f %%, step %.2f %%\n", 100*e.Final, 100*e.Step)
	return b.String()
}
