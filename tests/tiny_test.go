package tests

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// Tolerances of logits, relative to their root mean square. Against float64 with
// the kernel's roundings: those that fall the other way move single logits of tiny
// by up to 0.06 of it. Against Hugging Face in float32: all roundings to bf16 move
// them by up to 0.10, those of a framework in bf16 as much.
const (
	referenceTolerance = 0.1
	frameworkTolerance = 0.15
)

// golden is what Hugging Face transformers made of a tiny model.
type golden struct {
	Config struct {
		Hidden       int  `json:"hidden_size"`
		Intermediate int  `json:"intermediate_size"`
		Layers       int  `json:"num_hidden_layers"`
		Heads        int  `json:"num_attention_heads"`
		KVHeads      int  `json:"num_key_value_heads"`
		HeadDim      int  `json:"head_dim"`
		Vocab        int  `json:"vocab_size"`
		Tied         bool `json:"tie_word_embeddings"`
		Scaling      any  `json:"rope_scaling"`
	} `json:"config"`
	Seed          uint64      `json:"seed"`
	Tokens        []int       `json:"tokens"`
	FirstPosition int         `json:"first_position"`
	Logits        [][]float64 `json:"logits"`
}

// readGolden reads a golden and the configuration it was made with.
func readGolden(t *testing.T, file string) (golden, models.Config) {
	t.Helper()
	data, err := os.ReadFile("../megakernel/reference/testdata/" + file)
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(data, &g))
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	h := g.Config
	require.Equal(t, []int{h.Hidden, h.Intermediate, h.Layers, h.Heads, h.HeadDim, h.Vocab},
		[]int{c.Hidden, c.Intermediate, c.Layers, c.Heads, c.HeadDim, c.Vocab})
	c.KVHeads, c.TieEmbeddings = h.KVHeads, h.Tied
	if h.Scaling == nil {
		c.Rope.Scaling = nil
	}
	return g, c
}

// trace is everything a run left behind: the logits and the token of each step,
// and all output memory after the last.
type trace struct {
	logits [][]float64
	next   []int
	memory map[string][]byte // kv in the order of positions, whatever its pages
}

// decode feeds the tokens to a fresh device. The page order is drawn from seed,
// some pages stay unused, and the barrier counter passes 2³² in the middle of the
// middle step.
func decode(t *testing.T, mk *megakernel.Kernel, weightSeed uint64, tokens []int, seed uint64) trace {
	t.Helper()
	sim, err := runtime.NewSim(mk.IR, seed)
	require.NoError(t, err)
	n := (len(tokens) + mk.KV.Page - 1) / mk.KV.Page
	pages := n + 3
	var table []uint32
	for _, p := range rand.New(rand.NewPCG(seed, 1)).Perm(pages)[:n] {
		table = append(table, uint32(p))
	}
	arrivals := uint32(mk.Barriers() * mk.Options.SMs)
	epoch := -(arrivals*uint32(len(tokens)/2) + arrivals/2)
	weights := synth.NewWeights(weightSeed, mk.Config)
	s, err := runtime.NewSequence(mk, sim, weights, pages, table, epoch)
	require.NoError(t, err)
	var tr trace
	logits := make([]float32, mk.Config.Vocab)
	for _, id := range tokens {
		next, err := s.Step(id)
		require.NoError(t, err, "seed %d, position %d", seed, s.Pos())
		require.NoError(t, s.Logits(logits))
		wide := make([]float64, len(logits))
		for i, x := range logits {
			wide[i] = float64(x)
		}
		tr.next, tr.logits = append(tr.next, next), append(tr.logits, wide)
	}
	tr.memory = outputs(t, mk, sim, table, pages, len(tokens))
	counter := binary.LittleEndian.Uint32(tr.memory["barrier"])
	require.Less(t, counter, epoch, "the barrier counter has not passed 2^32")
	require.Equal(t, arrivals*uint32(len(tokens)), counter-epoch)
	return tr
}

// outputs reads every buffer that the kernel writes.
func outputs(t *testing.T, mk *megakernel.Kernel, sim *runtime.Sim, table []uint32, pages,
	tokens int) map[string][]byte {
	t.Helper()
	memory := map[string][]byte{}
	for _, b := range mk.IR.Globals() {
		if b.ReadOnly || b.Name == "times" { // the clock's is not the schedules'
			continue
		}
		data := make([]byte, sim.Size(b.Name))
		require.NoError(t, sim.Read(b.Name, 0, data))
		memory[b.Name] = data
	}
	kv, l := memory["kv"], mk.KV
	var ordered []byte
	for i := range l.Layers * tokens * l.Heads * 2 * l.D {
		d, v, h, token := i%l.D, i/l.D%2, i/l.D/2%l.Heads, i/l.D/2/l.Heads
		at := l.Index(pages, token/tokens, int(table[token%tokens/l.Page]), h, token%tokens%l.Page, v, d)
		size := l.TokenBytes() / (2 * l.D) // of an element
		ordered = append(ordered, kv[size*at:size*(at+1)]...)
	}
	memory["kv"] = ordered
	return memory
}

// requireClose wants every logit within the tolerance, and the same best token
// where the two best are further apart than that allows.
func requireClose(t *testing.T, want, got []float64, tolerance float64, where string) {
	t.Helper()
	sum, worst := 0.0, 0.0
	for i, x := range want {
		sum += x * x
		worst = max(worst, math.Abs(got[i]-x))
	}
	allowed := tolerance * math.Sqrt(sum/float64(len(want)))
	require.LessOrEqual(t, worst, allowed, where) // NaN is not
	best := reference.Argmax(want)
	for i, x := range want {
		require.True(t, i == best || want[best]-x <= 2*allowed || got[best] > got[i], "%s: token %d before %d", where, i,
			best)
	}
}

// The complete tiny models on the executor, token by token, against float64 and
// against Hugging Face, over schedules, page orders, page sizes and numbers of
// SMs: no race, the right values, and for one kernel the same bits each time.
func TestTinyDecodesOnTheExecutor(t *testing.T) {
	for _, test := range []struct {
		file      string
		sms, page int
		seeds     []uint64 // one twice: a run repeats
	}{
		{"tiny_hf.json", 4, 16, []uint64{1, 2, 3, 1}},
		{"tiny_hf.json", 4, 1, []uint64{4, 5}},
		{"tiny_hf.json", 3, 16, []uint64{6, 7}},
		{"tiny_hf.json", 1, 1, []uint64{8}},
		{"tiny_mha_hf.json", 3, 1, []uint64{9}},
		{"tiny_mha_hf.json", 4, 16, []uint64{10, 11}},
	} {
		if !deep.On() && test.sms != 3 {
			continue
		}
		t.Run(fmt.Sprintf("%s, %d SMs, pages of %d", test.file, test.sms, test.page), func(t *testing.T) {
			t.Parallel()
			g, c := readGolden(t, test.file)
			// 16 tokens a stage: 23 cached ones fill both splits
			mk, err := megakernel.Build(c, megakernel.Options{SMs: test.sms, Page: test.page, Splits: 2, StageBytes: 2048})
			require.NoError(t, err)
			first := decode(t, mk, g.Seed, g.Tokens, test.seeds[0])
			for _, seed := range deep.Most(test.seeds[1:], 0) {
				require.True(t, sameTrace(first, decode(t, mk, g.Seed, g.Tokens, seed)), "seeds %d and %d give different bits",
					test.seeds[0], seed)
			}
			requireRight(t, c, g, first)
			all := attention.StateLSE(first.memory[megakernel.BufferStates], c.HeadDim)
			require.Len(t, all, 2*c.Heads)
			for i, lse := range all {
				require.False(t, math.IsInf(float64(lse), 0), "split %d of head %d is empty", i/c.Heads, i%c.Heads)
			}
		})
	}
}

// requireRight compares a run with float64, at every position, and with
// Hugging Face where there is a golden.
func requireRight(t *testing.T, c models.Config, g golden, tr trace) {
	t.Helper()
	shape := c
	ref, err := reference.NewModel(shape, reference.Synthetic(shape, g.Seed), reference.AsKernel(shape))
	require.NoError(t, err)
	for i, id := range g.Tokens {
		requireClose(t, ref.Step(id), tr.logits[i], referenceTolerance, fmt.Sprintf("float64, position %d", i))
		require.Equal(t, reference.Argmax(tr.logits[i]), tr.next[i], "position %d", i)
		if i >= g.FirstPosition {
			requireClose(t, g.Logits[i-g.FirstPosition], tr.logits[i], frameworkTolerance,
				fmt.Sprintf("transformers, position %d", i))
		}
	}
	require.Len(t, g.Logits, len(g.Tokens)-g.FirstPosition)
}

// sameTrace compares bit by bit; no logit is NaN once compared with a reference.
func sameTrace(a, b trace) bool {
	for i := range a.logits {
		for j, x := range a.logits[i] {
			if math.Float64bits(x) != math.Float64bits(b.logits[i][j]) {
				return false
			}
		}
		if a.next[i] != b.next[i] {
			return false
		}
	}
	for name, data := range a.memory {
		if string(data) != string(b.memory[name]) {
			return false
		}
	}
	return len(a.memory) == len(b.memory)
}
