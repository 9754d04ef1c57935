package models

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// All returns every registered configuration, sorted by name, as fresh values:
// the caller may change them.
func All() []Config {
	all := append(Checked(), popular()...)
	slices.SortFunc(all, func(a, b Config) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Checked returns those whose kernels every change is checked with: built, verified, compiled, as far as their size allows.
// They are sorted by name and fresh values.
func Checked() []Config {
	return []Config{llama3x70B(), llama3x8B(), llama32x1B(), llama32x3B(), tiny()}
}

// Names returns the names of the registered configurations, sorted.
func Names() []string {
	var names []string
	for _, c := range All() {
		names = append(names, c.Name)
	}
	return names
}

// Lookup returns a fresh copy of the configuration registered under name, which
// must match exactly. The error names the closest one.
func Lookup(name string) (Config, error) {
	for _, some := range []func() []Config{Checked, All} {
		for _, c := range some() {
			if c.Name == name {
				return c, nil
			}
		}
	}
	if hint := Elsewhere(name); hint != "" {
		return Config{}, errors.New("model: " + hint)
	}
	return Config{}, fmt.Errorf("model: found %q, want one that mkgen models lists; closest is %s", shorten(name), closest(name, Names()))
}

// llama31 holds what the Llama 3.1 and 3.2 models share; published as
// meta-llama/Llama-3.1-8B and siblings (the base models).
func llama31(name string, ropeFactor float64) Config {
	return Config{
		Name:         name,
		Family:       "llama",
		KVHeads:      8,
		HeadDim:      128,
		Vocab:        128256,
		MaxPositions: 131072,
		NormEps:      1e-5,
		Rope: Rope{
			Theta: 500000,
			Scaling: &Scaling{
				Type:   ScalingLlama3,
				Factor: ropeFactor, LowFreqFactor: 1, HighFreqFactor: 4, OriginalPositions: 8192,
			},
		},
		BOS:             128000,
		EOS:             []int{128001},
		DType:           BF16,
		CheckpointDType: BF16,
	}
}

func llama3x8B() Config {
	c := llama31("llama3-8b", 8)
	c.Layers, c.Hidden, c.Intermediate, c.Heads = 32, 4096, 14336, 32
	return c
}

func llama3x70B() Config {
	c := llama31("llama3-70b", 8)
	c.Layers, c.Hidden, c.Intermediate, c.Heads = 80, 8192, 28672, 64
	return c
}

func llama32x1B() Config {
	c := llama31("llama3.2-1b", 32)
	c.Layers, c.Hidden, c.Intermediate, c.Heads = 16, 2048, 8192, 32
	c.HeadDim, c.TieEmbeddings = 64, true
	return c
}

func llama32x3B() Config {
	c := llama31("llama3.2-3b", 32)
	c.Layers, c.Hidden, c.Intermediate, c.Heads = 28, 3072, 8192, 24
	c.TieEmbeddings = true
	return c
}

// tiny is the model of the tests on the executor. Its shapes are awkward on
// purpose: attention rows unlike Hidden, an odd number of query heads to a KV
// head, an Intermediate that is no multiple of 64, and a rope whose 16
// frequencies fall into all three bands of the scaling. Hidden is a multiple of
// Heads, which transformers insists on, though HeadDim is not the quotient.
func tiny() Config {
	return Config{
		Name:         "tiny",
		Family:       "llama",
		Layers:       2,
		Hidden:       96,
		Intermediate: 352,
		Heads:        6,
		KVHeads:      2,
		HeadDim:      32,
		Vocab:        320,
		MaxPositions: 512,
		NormEps:      1e-5,
		Rope: Rope{
			Theta: 10000,
			Scaling: &Scaling{
				Type:   ScalingLlama3,
				Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalPositions: 64,
			},
		},
		TieEmbeddings:   true,
		BOS:             0,
		EOS:             []int{1, 2},
		DType:           BF16,
		CheckpointDType: BF16,
	}
}
