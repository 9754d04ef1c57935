package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
)

// result is how far a variant's logits are from float64's, over the positions
// of a run.
type result struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	// RelRMS is the rms of the difference of logits over the rms of float64's.
	RelRMS float64 `json:"rel_rms"`
	// KL is the mean of KL(float64 ‖ variant), in nats.
	KL float64 `json:"kl"`
	// Margin is the median share of float64's top-2 margin that the error of
	// these two logits' difference uses up; 1 would be a tie.
	Margin float64 `json:"margin_use"`
	// Flips are positions with another top token.
	Flips int `json:"flips"`
}

// cache is the keys and values of a context that no model computed: normal
// variates of the size that the weights of package synth make, [layer][token].
type cache struct{ keys, values [][][]float64 }

// keySD makes the scores' standard deviation keySD², as synth's weights do.
const keySD = 1.85

func newCache(s models.Config, tokens int, seed uint64) cache {
	r := rand.New(rand.NewPCG(seed, uint64(tokens)))
	normal := func(sd float64) []float64 {
		v := make([]float64, s.KVHeads*s.HeadDim)
		for i := range v {
			v[i] = sd * r.NormFloat64()
		}
		return v
	}
	c := cache{make([][][]float64, s.Layers), make([][][]float64, s.Layers)}
	for l := range s.Layers {
		for range tokens {
			c.keys[l], c.values[l] = append(c.keys[l], normal(keySD)), append(c.values[l], normal(1))
		}
	}
	return c
}

// rounded is rows in a format.
func rounded(rows [][][]float64, f format) [][][]float64 {
	out := make([][][]float64, len(rows))
	for l, layer := range rows {
		for _, row := range layer {
			row = slices.Clone(row)
			roundAll(row, f.round)
			out[l] = append(out[l], row)
		}
	}
	return out
}

// run is one context of one model.
type run struct {
	shape   models.Config
	weights reference.Weights
	tokens  []int
	caches  map[format]cache
}

// newRun is positions steps from a context on, which is their mean nearly: the
// cache holds context tokens before the first.
func newRun(s models.Config, w reference.Weights, context, positions int, seed uint64) *run {
	c := newCache(s, context, seed)
	caches := map[format]cache{}
	for _, f := range formats {
		caches[f] = cache{rounded(c.keys, f), rounded(c.values, f)}
	}
	return &run{s, w, synth.Tokens(seed, context, positions, s.Vocab), caches}
}

// logits are those of every position, [position][vocab].
// keys and values are the formats of the cache that it begins with.
func (r *run) logits(h reference.Hooks, keysIn, valuesIn format) [][]float64 {
	m, err := reference.NewModel(r.shape, r.weights, h)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	keys, values := r.caches[keysIn].keys, r.caches[valuesIn].values
	for l := range r.shape.Layers {
		for t := range keys[l] {
			m.Append(l, keys[l][t], values[l][t])
		}
	}
	out := make([][]float64, len(r.tokens))
	for i, token := range r.tokens {
		out[i] = m.Step(token)
	}
	return out
}

// measure compares variants with float64, workers at a time.
func (r *run) measure(vs []variant, workers int) []result {
	want := r.logits(reference.Hooks{Product: product}, inFloat64, inFloat64)
	out := make([]result, len(vs))
	var wg sync.WaitGroup
	slots := make(chan struct{}, workers)
	for i, v := range vs {
		slots <- struct{}{}
		wg.Go(func() {
			out[i] = compare(want, r.logits(v.hooks(r.shape), v.keys(), v.values()))
			out[i].Group, out[i].Name = v.Group, v.Name
			<-slots
		})
	}
	wg.Wait()
	return out
}

// compare measures logits got against want, [position][vocab].
func compare(want, got [][]float64) result {
	var r result
	var difference, size float64
	var uses []float64
	for p, o := range want {
		k := got[p]
		for i := range o {
			difference += (k[i] - o[i]) * (k[i] - o[i])
			size += o[i] * o[i]
		}
		r.KL += divergence(o, k) / float64(len(want))
		first := reference.Argmax(o)
		second := runnerUp(o, first)
		margin := o[first] - o[second]
		uses = append(uses, math.Abs(k[first]-k[second]-margin)/margin)
		if reference.Argmax(k) != first {
			r.Flips++
		}
	}
	slices.Sort(uses)
	r.RelRMS, r.Margin = math.Sqrt(difference/size), uses[len(uses)/2]
	return r
}

// runnerUp is the index of the greatest value but that at first.
func runnerUp(v []float64, first int) int {
	best := -1
	for i, x := range v {
		if i != first && (best < 0 || x > v[best]) {
			best = i
		}
	}
	return best
}

// divergence is KL(o‖k) of the distributions that logits give, in nats.
func divergence(o, k []float64) float64 {
	ol, kl := logSumExp(o), logSumExp(k)
	sum := 0.0
	for i := range o {
		// With d the difference of log-probabilities, p·(e^-d − 1 + d) is never
		// negative and sums to the same; it does not cancel.
		d := (o[i] - ol) - (k[i] - kl)
		sum += math.Exp(o[i]-ol) * (math.Expm1(-d) + d)
	}
	return sum
}

func logSumExp(v []float64) float64 {
	top, sum := slices.Max(v), 0.0
	for _, x := range v {
		sum += math.Exp(x - top)
	}
	return top + math.Log(sum)
}
