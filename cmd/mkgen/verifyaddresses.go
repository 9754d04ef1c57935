package main

import (
	"fmt"
	"io"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/addresses"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
)

// proveAddresses proves the addresses of a model's kernels at their real sizes and writes
// one line, and one for each finding; where prefill is not 0, of the
// prefill kernel of steps of prefill tokens with activations. The error says that something was found.
func proveAddresses(w io.Writer, c models.Config, o megakernel.Options, prefill int,
	activations pipeline.Format) error {
	mk, err := megakernel.Build(c, o)
	if err != nil {
		return err
	}
	r := addresses.Prove(mk, addresses.Positions)
	if prefill > 0 {
		p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: prefill, Sequences: mk.PrefillSequences(),
			Activations: activations})
		if err != nil {
			return err
		}
		r = addresses.CheckPrefill(p, p.IR, addresses.Positions)
	}
	if _, err := fmt.Fprintf(w, "\nAt real sizes: %d accesses, %d values proved up to %d positions\n",
		r.Accesses, r.Values, addresses.Positions); err != nil {
		return err
	}
	for i, f := range r.Findings {
		if _, err := fmt.Fprintf(w, "%d. %s\n", i+1, f); err != nil {
			return err
		}
	}
	if n := len(r.Findings); n > 0 {
		return fmt.Errorf("%s fails verification: %s", c.Name, plural.Of(n, "address finding"))
	}
	return nil
}
