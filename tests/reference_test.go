package tests

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/mkgen/mkgen/tests/families"
	"github.com/stretchr/testify/require"
)

// The kernel's own roundings in torch, float32, cost what they cost in Go, float64: KL(o‖s) of tests/gpu/reference.py
// against reference.AsKernel on the same weights and positions. The two are not the same bits: what falls on a border
// of bf16 goes either way.
func TestRoundingsOfThePythonReferenceAreTheKernels(t *testing.T) {
	t.Run("tiny", func(t *testing.T) { compareRoundings(t, "tiny.json", nil, "bf16", "bf16", "120,64:20", 0.15) })
	t.Run("tiny, 4 bits", func(t *testing.T) { compareRoundings(t, "tiny.json", nil, "i4g32", "bf16", "60", 0.15) })
	t.Run("tiny, a head of 8 bits", func(t *testing.T) { compareRoundings(t, "tiny.json", nil, "bf16", "i8", "60", 0.15) })
	if !deep.On() { // float64 takes a minute
		return
	}
	half := map[string]any{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8,
		"num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 4096, "bos_token_id": 0, "eos_token_id": 1}
	t.Run("half of 1B", func(t *testing.T) { compareRoundings(t, "llama3.2-1b.json", half, "bf16", "bf16", "96", 0.15) })
}

// compareRoundings wants the means over all positions to agree within a part. Single positions need not: see above.
func compareRoundings(t *testing.T, config string, change map[string]any, format, head pipeline.Format,
	sequences string, within float64) {
	python, dir := pythonWithTorch(t), t.TempDir()
	data, err := os.ReadFile(filepath.Join("../models/testdata/configs", config))
	require.NoError(t, err)
	settings := map[string]any{}
	require.NoError(t, json.Unmarshal(data, &settings))
	maps.Copy(settings, change)
	data, err = json.Marshal(settings)
	require.NoError(t, err)
	path := filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(path, data, 0o666))
	judgeRoundings(t, python, dir, path, []string{"--config", path}, format, head, sequences, within)
}

// The same of every family, by what mkgen describe says of it.
func TestRoundingsOfThePythonReferenceAreTheKernelsInEveryFamily(t *testing.T) {
	python := pythonWithTorch(t)
	all, err := families.All()
	require.NoError(t, err)
	for _, c := range all {
		if !deep.On() && c.Name != "gemma3" { // half a minute each, most of it imports
			continue
		}
		if strings.HasSuffix(c.Name, "-short") || strings.HasPrefix(c.Name, "llama-dynamic") {
			continue // frequencies of a shorter context than the model's
		}
		t.Run(c.Name, func(t *testing.T) {
			dir := t.TempDir()
			path, about := filepath.Join(dir, "config.json"), filepath.Join(dir, "about.json")
			require.NoError(t, os.WriteFile(path, c.Published, 0o666))
			text, err := exec.Command("go", "run", "../cmd/mkgen", "describe", "--config", path, "--json").Output()
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(about, text, 0o666))
			judgeRoundings(t, python, dir, path, []string{"--model", about}, "bf16", "bf16", "60", 0.3)
		})
	}
}

// judgeRoundings runs the Python reference of a model, whose config.json is at path, with arguments that say which it
// is.
func judgeRoundings(t *testing.T, python, dir, path string, which []string, format, head pipeline.Format,
	sequences string, within float64) {
	if out, err := exec.Command(python, "-c", "import transformers").CombinedOutput(); err != nil {
		t.Skipf("%s has no transformers: %.200s", python, out)
	}
	out, err := exec.Command(python,
		append([]string{"gpu/reference.py", "--out", dir, "--device", "cpu", "--seed", "3", "--sequences", sequences,
			"--weight-format", string(format), "--head-format", string(head)}, which...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	ref, err := gate.OpenReference(dir)
	require.NoError(t, err)
	require.Equal(t, "bf16", ref.Roundings.KV)
	model, err := models.Reading{}.ParseFile(path)
	require.NoError(t, err)
	shape := model
	require.NoError(t, ref.MatchesFormats(format, head))
	weights := reference.Synthetic(shape, ref.Seed)
	if head != pipeline.FormatBF16 {
		own := weights["lm_head.weight"]
		if shape.TieEmbeddings {
			own = slices.Clone(weights["model.embed_tokens.weight"])
		}
		for row := range slices.Chunk(own, shape.Hidden) {
			head.RoundRow(row)
		}
		weights["lm_head.weight"] = own
	}
	for name, w := range weights {
		if strings.HasSuffix(name, "_proj.weight") {
			columns := shape.Hidden
			switch {
			case strings.HasSuffix(name, "down_proj.weight"):
				columns = shape.Intermediate
			case strings.HasSuffix(name, "o_proj.weight"):
				columns = shape.Heads * shape.HeadDim
			}
			for row := range slices.Chunk(w, columns) {
				format.RoundRow(row)
			}
		}
	}
	var torch, ours []float64
	for q := range ref.Sequences {
		own, err := ref.Own(q)
		require.NoError(t, err)
		torch = append(torch, own...)
		rows := asKernel(t, shape, weights, format, head, synth.Tokens(ref.Seed, q, ref.Sequences[q].Length, model.Vocab))
		require.NoError(t, ref.EachRow(q, func(p int, o, _ []float32) error {
			m, err := gate.Measure(o, o, rows[p], 0)
			ours = append(ours, m.KLOurs)
			return err
		}))
	}
	near := 0
	for i := range torch {
		if math.Abs(math.Log(torch[i]/ours[i])) < math.Log(1.5) {
			near++
		}
	}
	t.Logf("mean KL(o‖s): torch's %.4g, float64's %.4g; %d of %d positions within a factor of 1.5", mean(torch),
		mean(ours), near, len(torch))
	require.InEpsilon(t, mean(ours), mean(torch), within)
}

// asKernel are the logits at every position with the kernel's roundings, in float64.
func asKernel(t *testing.T, shape models.Config, w reference.Weights, format, head pipeline.Format,
	tokens []int) (rows [][]float32) {
	t.Helper()
	m, err := reference.NewModel(shape, w,
		reference.AsKernelWith(shape, func(matrix string, v []float64) {
			product.RoundInput(format, v, matrix == "o" || matrix == "down")
		},
			func(v []float64) { product.RoundInput(head, v, false) }))
	require.NoError(t, err)
	for _, token := range tokens {
		row := make([]float32, shape.Vocab)
		for i, x := range m.Step(token) {
			row[i] = float32(x)
		}
		rows = append(rows, row)
	}
	return rows
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}
