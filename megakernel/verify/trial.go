package verify

import (
	"math"
	"math/rand/v2"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
)

// Trial is what every schedule runs: a kernel with random weights, a cache that
// holds some tokens, and the tokens fed in, with what must come out. It is
// read-only once made, so several goroutines may Run it at once.
type Trial struct {
	mk      *megakernel.Kernel
	weights *synth.Weights
	context int // tokens in the cache at first
	steps   int
	tokens  []int
	cache   [][]kvToken // [layer][token], the first context ones
	scales  []float32   // of an e4m3 cache
	heads   []float32   // factors of query heads, where attention has them
	want    [][]float64 // logits after each step
	fresh   [][]kvToken // [layer][step]: what the steps must append
	scale   float64     // how large logits are
	epoch   uint32      // of the first launch
	wish    wishes
}

// kvToken is a token's keys and values in one layer, [KV heads × head dimension].
type kvToken struct{ k, v []float64 }

const weightSeed = 1

// kvScales are the scales of an e4m3 cache in turn: none that is the same in two
// layers or for K and V, and none for which values of this size lose more digits
// than for others.
var kvScales = [...]float32{0.125, 0.0625, 0.03125, 0.1, 0.25}

// Context is the number of tokens in the cache before the first step.
func (t *Trial) Context() int { return t.context }

// Bytes is what the steps together must read through the ring: every weight
// once and every cached token, of the chunks that a window leaves, once for each
// item of its KV head, each step.
func (t *Trial) Bytes() int64 {
	n := int64(t.steps) * t.mk.Plan.StreamedBytes()
	for i := range t.steps {
		for layer := range t.mk.Config.Layers {
			n += int64(t.mk.AttentionItems()*t.read(layer, t.context+i)) * int64(t.mk.KV.TokenBytes())
		}
	}
	return n
}

// NewTrial fixes the inputs for n steps (at least 1) and computes what
// must come out of mk. The cache begins with enough tokens for every split.
func NewTrial(mk *megakernel.Kernel, steps int) (*Trial, error) {
	return newTrial(mk, steps, cachedTokens(mk))
}

// newTrial is NewTrial with n tokens in the cache at first.
func newTrial(mk *megakernel.Kernel, steps, context int) (*Trial, error) {
	shape := mk.Config
	t := &Trial{mk: mk, weights: synth.NewWeights(weightSeed, shape), steps: steps,
		wish: wishes{turns: wantTurns, uneven: 1, tokens: 2}, context: context,
		tokens: synth.Tokens(weightSeed, 0, steps, mk.Config.Vocab)}
	for i := range mk.KV.ScalesLen() {
		t.scales = append(t.scales, kvScales[i%len(kvScales)])
	}
	t.heads = headScales(mk)
	t.fill(shape)
	arrivals := uint32(mk.Barriers() * mk.Options.SMs)
	t.epoch = -(arrivals + arrivals/2) // passes 2³² amid the second step
	hooks := reference.AsKernelWith(shape, mk.RoundInput, mk.RoundHeadInput)
	if t.scales != nil {
		hooks = reference.WithE4M3Cache(hooks, shape, t.scales)
	}
	hooks = withAttention(hooks, mk, t)
	ref, err := reference.NewModel(shape, syntheticOf(mk, shape), hooks)
	if err != nil {
		return nil, err
	}
	for l, tokens := range t.cache {
		for _, kv := range tokens {
			ref.Append(l, kv.k, kv.v)
		}
	}
	for _, id := range t.tokens {
		t.want = append(t.want, ref.Step(id))
	}
	// The root mean square of a few logits may be small by chance, the error is not.
	t.scale = max(rms(t.want...), synth.LogitSD(shape.Vocab))
	t.fresh = make([][]kvToken, shape.Layers)
	for l := range t.fresh {
		keys, values := ref.Cache(l)
		for i := t.context; i < t.context+steps; i++ {
			t.fresh[l] = append(t.fresh[l], kvToken{keys[i], values[i]})
		}
	}
	return t, nil
}

// syntheticOf are the weights as the kernel's format has them.
func syntheticOf(mk *megakernel.Kernel, shape models.Config) reference.Weights {
	w := reference.Synthetic(shape, weightSeed)
	rounded := mk.Rounded(synth.NewWeights(weightSeed, shape))
	round := func(name string, columns int) {
		for row := range len(w[name]) / columns {
			if err := rounded.Row(name, row, w[name][row*columns:][:columns]); err != nil {
				panic("BUG: " + err.Error())
			}
		}
	}
	for _, t := range synth.Tensors(shape) {
		round(t.Name, t.Shape[len(t.Shape)-1])
	}
	if mk.OwnHead() {
		head := shape.TensorName(models.RoleHead)
		w[head] = make([]half.BF16, shape.Vocab*shape.Hidden)
		round(head, shape.Hidden)
	}
	return w
}

// rms is the root mean square of all the values.
func rms(rows ...[]float64) float64 {
	sum, n := 0.0, 0
	for _, row := range rows {
		for _, x := range row {
			sum, n = sum+x*x, n+1
		}
	}
	return math.Sqrt(sum / float64(n))
}

// cachedTokens is the number of tokens the cache holds at first: enough for every
// split to have some, the last of them not a whole stage, and one short of
// filling a page, so that the first step fills it and the second begins another.
func cachedTokens(mk *megakernel.Kernel) int {
	stage := mk.Plan.KVTokensPerStage
	n := mk.Options.Splits*stage + stage/2 + 1
	page := mk.KV.Page
	return (n+page-1)/page*page - 1
}

// fill makes the tokens of the cache at random, as large as the weights make
// keys and values, in numbers that the cache has.
func (t *Trial) fill(s models.Config) {
	rng := rand.New(rand.NewPCG(weightSeed, 0x6b76))
	t.cache = make([][]kvToken, s.Layers)
	for l := range t.cache {
		for range t.context {
			t.cache[l] = append(t.cache[l], t.random(rng, l))
		}
	}
}

// random is a token's keys and values in a layer.
func (t *Trial) random(rng *rand.Rand, layer int) kvToken {
	vector := func(which int, sd float64) []float64 {
		v := make([]float64, t.mk.KV.Heads*t.mk.KV.D)
		for i := range v {
			head := i / t.mk.KV.D
			v[i] = t.value(layer, head, which, t.bits(layer, head, which, sd*rng.NormFloat64()))
		}
		return v
	}
	return kvToken{vector(0, 1.85), vector(1, 1)}
}

// bits is x as the cache stores it: K (which = 0) or V of a head.
func (t *Trial) bits(layer, head, which int, x float64) []byte {
	if t.scales == nil {
		return reference.ToBF16(x).Append(nil)
	}
	return []byte{reference.ToE4M3(x / t.scaleOf(layer, head, which))}
}

// value is what the cache's bits stand for.
func (t *Trial) value(layer, head, which int, bits []byte) float64 {
	if t.scales == nil {
		return reference.FromBF16(half.BF16At(bits))
	}
	return reference.FromE4M3(bits[0]) * t.scaleOf(layer, head, which)
}

func (t *Trial) scaleOf(layer, head, which int) float64 {
	return float64(t.scales[(layer*t.mk.KV.Heads+head)*2+which])
}

// step is the distance to the next number above that an e4m3 cache has at x, for
// element i of a layer's keys (which = 0) or values; 0 for a bf16 cache.
func (t *Trial) step(layer, i, which int, x float64) float64 {
	if t.scales == nil {
		return 0
	}
	scale := t.scaleOf(layer, i/t.mk.KV.D, which)
	code := reference.ToE4M3(math.Abs(x) / scale)
	if next := reference.FromE4M3(code + 1); next == next {
		return (next - reference.FromE4M3(code)) * scale
	}
	return 32 * scale
}

// elementBytes is the size of an element of the cache.
func (t *Trial) elementBytes() int { return t.mk.KV.TokenBytes() / (2 * t.mk.KV.D) }
