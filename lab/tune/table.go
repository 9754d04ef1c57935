package tune

import (
	"fmt"
	"io"
	"strings"

	"github.com/mkgen/mkgen/internal/table"
)

// WriteTable prints dimension by dimension what was tried against what, µs at each
// context, the ratio to the incumbent, and what was chosen.
func WriteTable(w io.Writer, p *Profile, steps []Step) error {
	head := []string{">round", "dimension", ">value", ">against"}
	for _, n := range p.Contexts {
		head = append(head, fmt.Sprintf(">µs at %d", n))
	}
	t := table.New(append(head, ">ratio", ">noise", "")...)
	for _, s := range steps {
		for _, trial := range s.Trials {
			t.Row(row(s, trial, len(p.Contexts))...)
		}
	}
	return t.Write(w, "")
}

// row is a trial's.
func row(s Step, t Trial, contexts int) []any {
	cells := []any{s.Round, s.Dimension, t.Options.Value(s.Dimension), t.Against.Value(s.Dimension)}
	for i := range contexts {
		if t.Error != "" {
			cells = append(cells, "")
			continue
		}
		cells = append(cells, fmt.Sprintf("%.1f", t.Micros[i]))
	}
	switch {
	case t.Error != "":
		return append(cells, "", "", t.outcome())
	case t.Options == s.Chosen:
		return append(cells, ratio(t), noise(t), "chosen")
	case t.Better:
		return append(cells, ratio(t), noise(t), "better")
	}
	return append(cells, ratio(t), noise(t), "")
}

// outcome is a trial in a few words.
func (t Trial) outcome() string {
	if t.Error != "" {
		line, _, _ := strings.Cut(strings.TrimSpace(t.Error), "\n")
		return "failed: " + line
	}
	return fmt.Sprintf("%s × the incumbent's time, noise %s", ratio(t), noise(t))
}

func ratio(t Trial) string { return fmt.Sprintf("%.4f", t.Ratio) }

func noise(t Trial) string { return fmt.Sprintf("%.4f", t.Noise) }

// Gain is the part of the time that the choices of all steps saved together, as their
// ratios say: 0 where nothing was better than what the search began with.
func Gain(steps []Step) float64 {
	left := 1.0
	for _, s := range steps {
		for _, t := range s.Trials {
			if t.Options == s.Chosen {
				left *= t.Ratio
			}
		}
	}
	return 1 - left
}
