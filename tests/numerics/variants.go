package main

import (
	"maps"
	"slices"

	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
)

// rounding is one place where the kernel is less exact than float64.
type rounding string

// The kernel's roundings. Each of those to bf16 is one reference.Point, but for
// the weights of tokens.
const (
	inQKV     rounding = "input of q, k, v"
	query     rounding = "query"
	key       rounding = "keys in the cache"
	value     rounding = "values in the cache"
	weights   rounding = "attention weights"
	inO       rounding = "attention output, input of o"
	inGateUp  rounding = "input of gate, up"
	inDown    rounding = "SwiGLU's output, input of down"
	inHead    rounding = "input of the LM head"
	products  rounding = "float32 sums of matrix products"
	vectors   rounding = "float32 vectors: residual, gate, up, …"
	softmaxes rounding = "float32 scores and partial states"
	merging   rounding = "float32 merge of the splits"
)

// kernelRoundings are all of them, in the order of a step; those to bf16 first.
var kernelRoundings = []rounding{inQKV, query, key, value, weights, inO, inGateUp, inDown, inHead, products, vectors,
	softmaxes, merging}

// points is where the bf16 roundings are.
var points = map[reference.Point]rounding{
	reference.AttnNorm: inQKV, reference.Query: query, reference.Key: key, reference.Value: value, reference.AttnOut: inO,
	reference.MLPNorm: inGateUp, reference.Activated: inDown, reference.FinalNorm: inHead,
}

// variant is a way to compute a step.
type variant struct {
	Group, Name string
	on          map[rounding]bool
	splits      int
	// keysIn and valuesIn, where set, are the formats of the cache.
	keysIn, valuesIn format
	// framework, where set, makes the hooks in place of the above.
	framework func(models.Config) reference.Hooks
}

// Groups of variants.
const (
	groupAlone  = "alone"
	groupWhole  = "kernel"
	groupBut    = "all but"
	groupHF     = "framework"
	groupE4M3   = "e4m3"
	usualSplits = 16 // what mkgen chooses for Llama-3.2-1B on 132 SMs
)

// Names of variants that others refer to.
const (
	kernelWhole  = "the kernel, 16 splits"
	frameworkAll = "all of them"
)

func only(rs ...rounding) map[rounding]bool {
	on := map[rounding]bool{}
	for _, r := range rs {
		on[r] = true
	}
	return on
}

// variants are everything that is measured, in the order of the tables.
func variants() []variant {
	var vs []variant
	for _, r := range kernelRoundings {
		vs = append(vs, variant{Group: groupAlone, Name: string(r), on: only(r), splits: usualSplits})
	}
	all := only(kernelRoundings...)
	vs = append(vs,
		variant{Group: groupWhole, Name: kernelWhole, on: all, splits: usualSplits},
		variant{Group: groupWhole, Name: "the kernel, 1 split", on: all, splits: 1},
		variant{Group: groupWhole, Name: "the kernel, 64 splits", on: all, splits: 64})
	for _, r := range kernelRoundings {
		on := maps.Clone(all)
		delete(on, r)
		vs = append(vs, variant{Group: groupBut, Name: string(r), on: on, splits: usualSplits})
	}
	return append(append(vs, frameworkVariants()...), e4m3Variants()...)
}

// frameworkVariants are what a framework that stores every operation's result in
// bf16 rounds and the kernel does not, one at a time, then all that it rounds.
func frameworkVariants() []variant {
	at := func(points ...reference.Point) func(models.Config) reference.Hooks {
		return func(models.Config) reference.Hooks {
			return reference.Hooks{At: func(_ int, p reference.Point, v []float64) {
				if slices.Contains(points, p) {
					roundAll(v, reference.RoundBF16)
				}
			}}
		}
	}
	list := []struct {
		name  string
		hooks func(models.Config) reference.Hooks
	}{
		{"the residual stream", at(reference.AttnResidual, reference.MLPResidual)},
		{"results of o and of down", at(reference.AttnProj, reference.MLPProj)},
		{"gate, up and SiLU(gate)", at(reference.Gate, reference.Up, reference.SiLUOut)},
		{"a norm's result before its gain", at(reference.Normalised)},
		{"sines, cosines and RoPE's products", func(s models.Config) reference.Hooks {
			return reference.Hooks{Rotate: reference.FrameworkRounding(s).Rotate}
		}},
		{"attention weights, normalised", func(s models.Config) reference.Hooks {
			return reference.Hooks{Attend: reference.FrameworkRounding(s).Attend}
		}},
		{"logits", at(reference.Logits)},
		{frameworkAll, reference.FrameworkRounding},
	}
	var vs []variant
	for _, f := range list {
		vs = append(vs, variant{Group: groupHF, Name: f.name, framework: f.hooks})
	}
	return vs
}

// hooks make a model of shape s compute as the variant does.
func (v variant) hooks(s models.Config) reference.Hooks {
	if v.framework != nil {
		h := v.framework(s)
		h.Product = product
		return h
	}
	h := reference.Hooks{At: v.at(s), Product: product}
	if v.on[products] {
		h.Product = kernelProduct(nearest)
	}
	if v.on[weights] || v.on[softmaxes] || v.on[merging] {
		a := attention{splits: v.splits, partial: exact, merge: exact, weights: exact}
		if v.on[softmaxes] {
			a.partial = nearest
		}
		if v.on[merging] {
			a.merge = nearest
		}
		if v.on[weights] {
			a.weights = bf16
			if v.keysIn != "" {
				a.weights = f16
			}
		}
		h.Attend = func(_ int, q []float64, keys, values [][]float64) []float64 {
			return a.run(q, keys, values, s.Heads, s.KVHeads)
		}
	}
	return h
}

// at rounds vectors. The rounding of norms and queries is reference.AsKernel's,
// which rounds norms before their scale and queries in base 2.
func (v variant) at(s models.Config) func(int, reference.Point, []float64) {
	asKernel := reference.AsKernel(s).At
	return func(layer int, p reference.Point, x []float64) {
		r, stored := points[p]
		if f := map[reference.Point]format{reference.Key: v.keysIn, reference.Value: v.valuesIn}[p]; f != "" {
			roundAll(x, f.round)
			return
		}
		if v.on[vectors] && !stored && p != reference.Normalised {
			roundAll(x, nearest)
		}
		if !stored || v.on[r] { // of the other points it notes the norm's scale and changes nothing
			asKernel(layer, p, x)
		}
	}
}
