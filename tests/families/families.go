// Package families has a tiny random model of every family, with the logits that Hugging Face transformers computes of
// it (make.py wrote testdata).
package families

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
)

//go:embed testdata/*.json
var files embed.FS

// Seed is that of the weights and tokens of all cases.
const Seed = 7

// Case is one golden.
type Case struct {
	Name      string
	Published json.RawMessage      // a config.json as the family's are published
	Saved     json.RawMessage      // what transformers saves of it
	Listed    [][]any              `json:"tensors"`
	Tokens    []int                // one sequence
	Logits    map[string][]float64 // by position, after the token there
}

// Tensor is a parameter as transformers names it, with the recipe of its weights.
type Tensor = synth.Tensor

// All returns the cases, sorted by name.
func All() ([]Case, error) {
	entries, err := files.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	var all []Case
	for _, e := range entries {
		c, err := Read(files, "testdata/"+e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, *c)
	}
	return all, nil
}

// Read reads a golden that make.py wrote.
func Read(from fs.FS, file string) (*Case, error) {
	text, err := fs.ReadFile(from, file)
	if err != nil {
		return nil, err
	}
	c := &Case{Name: strings.TrimSuffix(path.Base(file), ".json")}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// Config reads the published config.json. Its context is the sequence's: transformers takes the rotary frequencies of a
// context as long as the sequence.
func (c *Case) Config(families []models.Family) (models.Config, error) {
	m, err := models.Reading{Families: families}.Parse(strings.NewReader(string(c.Published)))
	m.Name, m.MaxPositions = c.Name, len(c.Tokens)
	return m, err
}

// Tensors are the parameters that transformers has.
func (c *Case) Tensors() []Tensor {
	var out []Tensor
	for _, l := range c.Listed {
		t := Tensor{Name: l[0].(string), Recipe: synth.Gain()}
		for _, n := range l[1].([]any) {
			t.Shape = append(t.Shape, int(n.(float64)))
		}
		if len(l) == 4 {
			t.Recipe = synth.Recipe{Kind: synth.KindNormal, Mantissa: int(l[2].(float64)), Exp: int(l[3].(float64))}
		}
		out = append(out, t)
	}
	return out
}

// Weights are the weights that transformers computed with.
func (c *Case) Weights() (reference.Weights, error) {
	w := reference.Weights{}
	for _, t := range c.Tensors() {
		w[t.Name] = make([]half.BF16, t.Elems())
		if err := synth.Fill(w[t.Name], Seed, t, 0); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Positions are those with logits, in order.
func (c *Case) Positions() []int {
	var at []int
	for name := range c.Logits {
		p, err := strconv.Atoi(name)
		if err != nil {
			panic("BUG: families: position " + name)
		}
		at = append(at, p)
	}
	slices.Sort(at)
	return at
}

// At returns the logits after the token at a position, nil where it is none of Positions.
func (c *Case) At(position int) []float64 { return c.Logits[strconv.Itoa(position)] }

// Shapes are the shapes of the tensors that transformers has, by name.
func (c *Case) Shapes() map[string][]int {
	shapes := map[string][]int{}
	for _, t := range c.Tensors() {
		shapes[t.Name] = t.Shape
	}
	return shapes
}

// Difference is the greatest difference of the float64 reference's logits from transformers', relative to the standard
// deviation of those at a position.
func (c *Case) Difference(config models.Config) (float64, error) {
	w, err := c.Weights()
	if err != nil {
		return 0, err
	}
	m, err := reference.NewModel(config, w, reference.Hooks{})
	if err != nil {
		return 0, err
	}
	diff := 0.0
	for i, token := range c.Tokens {
		got, want := m.Step(token), c.At(i)
		for j := range want {
			diff = max(diff, math.Abs(got[j]-want[j])/spread(want))
		}
	}
	return diff, nil
}

// spread is the standard deviation.
func spread(v []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range v {
		sum, squares = sum+x, squares+x*x
	}
	n := float64(len(v))
	return math.Sqrt(squares/n - sum/n*sum/n)
}
