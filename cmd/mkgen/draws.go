package main

import (
	"errors"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/spf13/pflag"
)

// drawFlags say how tokens are drawn.
type drawFlags struct {
	temperature factor
	topP, minP  factor
	topK        count
}

func (d *drawFlags) flags(f *pflag.FlagSet) {
	f.Var(&d.temperature, "temperature", "0 takes the most probable token, more draws (default 0)")
	f.Var(&d.topK, "top-k", "draw from this many of the most probable tokens")
	f.Var(&d.topP, "top-p", "draw from the fewest that together are this probable")
	f.Var(&d.minP, "min-p", "draw from those this many times as probable as the first")
	for _, name := range []string{"temperature", "top-k", "top-p", "min-p"} {
		f.Lookup(name).DefValue = ""
	}
}

// params are what the flags say. It refuses those that no request can have.
func (d *drawFlags) params(seed uint64) (sampling.Params, error) {
	p := sampling.Params{Temperature: float64(d.temperature), TopK: int(d.topK), TopP: float64(d.topP),
		MinP: float64(d.minP), Seed: seed}
	var refused *sampling.RangeError
	if errors.As(p.Check(), &refused) {
		flag := map[string]string{"Temperature": "temperature", "TopK": "top-k", "TopP": "top-p",
			"MinP": "min-p"}[refused.Field]
		return p, usagef("--%s: %s", flag, refused.Problem)
	}
	return p, nil
}
