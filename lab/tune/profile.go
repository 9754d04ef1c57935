package tune

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
)

// Format is the version of the files that this package writes and reads; 1 had no leads and
// queries, 2 its setup's options beside the other fields and not among options. A program from before
// an option refuses the files that have it.
const Format = 3

// Profile is what a search found, and all that it measured. It is no record: no gate
// judged the kernels.
type Profile struct {
	Format int `json:"format"`
	Setup
	// Kept are the options that were not searched, by mkgen's flags in the order of
	// Dimensions: those that a flag gave. Absent: all that there are were.
	Kept     []string `json:"kept,omitempty"`
	Start    Choice   `json:"start"`    // what the search began with
	Chosen   Choice   `json:"chosen"`   // the best found so far
	Finished bool     `json:"finished"` // a whole round changed nothing; else the time ended, the rounds, or the run
	Trials   []Trial  `json:"trials"`   // in the order in which they were made
}

// Check says what is wrong with a profile.
func (p *Profile) Check() error {
	if p.Format != Format {
		return fmt.Errorf("format is %d, want %d", p.Format, Format)
	}
	if err := p.Setup.check(); err != nil {
		return err
	}
	if err := p.Start.check(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	all := Dimensions(p.Rows(), p.Setup.Options.Launch)
	for _, name := range p.Kept {
		if !slices.Contains(all, name) {
			return fmt.Errorf("kept has %q, want some of %s", name, plural.Or(all))
		}
	}
	known := p.Chosen == p.Start
	for i, t := range p.Trials {
		if err := t.check(len(p.Contexts)); err != nil {
			return fmt.Errorf("trial %d: %w", i, err)
		}
		known = known || t.Better && t.Options == p.Chosen
	}
	if err := p.Chosen.check(); err != nil {
		return fmt.Errorf("chosen: %w", err)
	}
	if !known {
		return errors.New("chosen is neither start nor a trial's options that were better")
	}
	return nil
}

// kind is what a profile is.
var kind = jsonfile.Kind{Name: "a profile of mkgen tune", Mark: "trials", Format: Format}

// ReadFile reads a profile strictly: an unknown field, something behind it, and what Check finds, is an error. Errors
// name the file. One that is not there is fs.ErrNotExist.
func ReadFile(path string) (*Profile, error) { return jsonfile.ReadChecked[Profile](path, kind) }

// WriteFile checks the profile and writes it whole or not at all; its directory is made.
func (p *Profile) WriteFile(path string) error {
	if err := p.Check(); err != nil {
		return fmt.Errorf("no profile is written: %w", err)
	}
	return jsonfile.Write(path, p)
}

// Fits refuses a profile of a model of another shape, of other query rows (0 means 1), or
// of steps that are launched in another way ("" means one kernel).
func (p *Profile) Fits(c models.Config, rows int, launch megakernel.Launching) error {
	if want := ShapeOf(c); p.Shape != want {
		return fmt.Errorf("it is of %s (shape %s), want one of %s (shape %s)", p.Model, p.Shape, c.Name, want)
	}
	if rows = max(1, rows); p.Rows() != rows {
		return fmt.Errorf("it is of steps of %s, want one of %d", plural.Of(p.Rows(), "query row"), rows)
	}
	one := megakernel.LaunchSingle
	if found, want := cmp.Or(p.Setup.Options.Launch, one), cmp.Or(launch, one); found != want {
		return fmt.Errorf("it is of steps launched as %q, want %q", found, want)
	}
	return nil
}

// FitsFormats refuses a profile of layers or of an LM head in other formats ("" is bf16, as in files that say nothing):
// stages, chunks held and vectors are chosen by what a stage holds and how long its product takes.
func (p *Profile) FitsFormats(weights, head pipeline.Format) error {
	bf16, of := pipeline.FormatBF16, p.Setup.Options
	if !megakernel.SameFormats(of.Weights, weights) {
		return fmt.Errorf("it is of weights in %s, want %s", cmp.Or(of.Weights, bf16), cmp.Or(weights, bf16))
	}
	if found, want := cmp.Or(of.Head, bf16), cmp.Or(head, bf16); found != want {
		return fmt.Errorf("it is of an LM head in %s, want %s", found, want)
	}
	return nil
}
