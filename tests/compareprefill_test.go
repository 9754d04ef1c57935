package tests

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/stretchr/testify/require"
)

// promptRounds are the times in µs of the rounds that the fakes say, by system and tokens of the prompt.
var promptRounds = map[string]map[int][]float64{
	"mkgen":        {128: {9000, 7000, 8000}, 1024: {25000, 26000, 27000}},
	"transformers": {128: {27000, 26000, 28000}, 1024: {39000, 39000, 39500}},
}

// fakePrompts writes programs in place of mkgen and of transformers into dir, whose times are promptRounds, and modules
// in place of PyTorch. The logits of transformers differ from mkgen's by apart standard deviations.
func fakePrompts(t *testing.T, dir string, gated bool, apart float64) {
	t.Helper()
	f := &bench.PrefillFile{What: bench.PrefillWhat, GPU: "NVIDIA H100 80GB HBM3", Driver: "580", CUDA: "13.0",
		Commit: "abc", Gated: gated, Peak: 989.4,
		Options: bench.PrefillOptions{Compiler: "nvcc 13.0.88", Prefill: []int{2048, 128}, Page: 16, SMs: 132}}
	answers := map[string]map[string]any{}
	for _, n := range []int{128, 1024} {
		rounds, flop, ours, theirs := promptRounds["mkgen"][n], 15e9*float64(n), []float32{}, []float64{}
		for i := range 400 {
			x := math.Sin(float64(i))
			ours, theirs = append(ours, float32(x)), append(theirs, x+apart*math.Sqrt2/2)
		}
		middle := slices.Sorted(slices.Values(rounds))[1]
		c := bench.PrefillFigures{System: bench.SystemMkgen, Model: "tiny", DType: "bf16", Batch: 1, Prompt: n, First: middle,
			Rate: 1e6 * float64(n) / middle, FLOP: flop, TFLOPS: flop / middle / 1e6, Share: flop / middle / 1e6 / 989.4,
			Rounds: rounds, Logits: ours}
		if gated {
			c.Gate = &gate.Record{Passed: true}
		}
		f.Cases = append(f.Cases, c)
		answers[fmt.Sprintf("prompt %d 3 61", n)] = map[string]any{"rounds_us": promptRounds["transformers"][n],
			"logits": theirs}
	}
	answers["product 8192"] = map[string]any{"tflop_s": 640.0}
	require.NoError(t, f.Check())
	write := func(name string, v any) string {
		text, ok := v.(string)
		if !ok {
			data, err := json.Marshal(v)
			require.NoError(t, err)
			text = string(data)
		}
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
		return path
	}
	file, table := write("mkgen.json", f), write("answers.json", answers)
	write("mkgen", `#!/bin/sh
echo "called $@"
while [ $# -gt 1 ]; do [ "$1" = --cases ] && cp `+file+` "$2"; shift; done
`)
	write("worker.py", `import json, sys
print(json.dumps({"torch": "none"}), flush=True)
answers = json.load(open("`+table+`"))
for line in sys.stdin:
    print(json.dumps(answers[line.strip()]), flush=True)
`)
	write("torch.py", "")
	write("transformers.py", "StaticCache = None\n")
}

// comparePrompts runs bench/compare.py --prefill between the fakes of dir.
func comparePrompts(t *testing.T, dir string, args ...string) (said string, err error) {
	t.Helper()
	worker := filepath.Join(dir, "worker.py")
	all := append([]string{"-c", "import compare, compare_prefill, pathlib; compare_prefill.WORKER = pathlib.Path(" +
		fmt.Sprintf("%q", worker) + "); compare.main()", "--mkgen", filepath.Join(dir, "mkgen"), "--model", "tiny",
		"--config", "../models/testdata/configs/llama3-8b.json", "--prefill", "2048", "--rounds", "3",
		"--out", filepath.Join(dir, "out.json")}, args...)
	cmd := exec.Command(anyPython(t), all...)
	cmd.Dir = "../bench"
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mkgen and transformers take turns, with the gate in the first one only, and the file has the medians of all rounds.
func TestPromptsAreComparedInTurns(t *testing.T) {
	dir := t.TempDir()
	fakePrompts(t, dir, true, 0.1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(`{"seed": 7}`), 0o644))
	said, err := comparePrompts(t, dir, "--contexts", "128,1024", "--reference", dir)
	require.NoError(t, err, said)
	turn := []string{"mkgen", "prompt 128 3 61", "prompt 1024 3 61", "product 8192"}
	var order []string
	for _, m := range regexp.MustCompile(`(?m)^== (mkgen|transformers: \w+ [\d ]+?): [\d.]+ s$`).
		FindAllStringSubmatch(said, -1) {
		order = append(order, strings.TrimPrefix(m[1], "transformers: "))
	}
	require.Equal(t, append(turn, turn...), order)
	require.Equal(t, 1, strings.Count(said,
		"called bench --config ../models/testdata/configs/llama3-8b.json --name tiny --prefill 2048 --contexts 128,1024 --rounds 3"+
			" --cases "+regexp.MustCompile(`/\S+prefill\.json`).FindString(said)+" --reference "+dir+"\n"), said)
	require.Contains(t, said, " --random 7\n", "the second time without the gate, with the reference's weights")
	require.Contains(t, said, "called plot "+filepath.Join(dir, "out.json")+" -o "+filepath.Join(dir, "out.svg"))
	require.Contains(t, said,
		"128  transformers     27.00 ms  26.00-28.00   4741     71.1    7.2 %      11.1 %         3.375  -\n")
	data, err := os.ReadFile(filepath.Join(dir, "out.json"))
	require.NoError(t, err)
	f, err := bench.ParsePrefill(data)
	require.NoError(t, err)
	require.True(t, f.Gated)
	require.Len(t, f.Cases, 4)
	for i, want := range []struct {
		system      string
		prompt      int
		first, over float64
	}{{"mkgen", 128, 8000, 1}, {"transformers", 128, 27000, 3.375}, {"mkgen", 1024, 26000, 1},
		{"transformers", 1024, 39000, 1.5}} {
		c := f.Cases[i]
		require.Equal(t, want.system, c.System)
		require.Equal(t, want.prompt, c.Prompt)
		require.InDelta(t, want.first, c.First, 0.1)
		require.InDelta(t, want.over, c.Over, 1e-4)
		require.Equal(t, append(promptRounds[want.system][want.prompt], promptRounds[want.system][want.prompt]...), c.Rounds)
		require.InEpsilon(t, c.TFLOPS/640, c.OfProduct, 1e-4)
		if want.system == "transformers" {
			require.InDelta(t, 0.1, c.Apart, 1e-3)
			require.Nil(t, c.Gate)
		}
	}
	picture, err := f.Plot().SVG()
	require.NoError(t, err)
	for _, want := range []string{"mkgen tiny, bf16, NVIDIA H100", "transformers tiny", "27 ms", "the datasheet", ">1024<",
		">TFLOP/s<"} {
		require.Contains(t, string(picture), want)
	}
}

// What cannot be compared ends the comparison, and nothing is written.
func TestPromptsOfOtherLogitsAreNotCompared(t *testing.T) {
	dir := t.TempDir()
	fakePrompts(t, dir, false, 0.5)
	said, err := comparePrompts(t, dir, "--contexts", "128,1024", "--passes", "1")
	require.Error(t, err)
	require.Contains(t, said,
		"compare: transformers' logits behind 128 tokens are 0.501 standard deviations from mkgen's, want at most 0.25\n")
	require.NoFileExists(t, filepath.Join(dir, "out.json"))
	for args, want := range map[string]string{
		"--contexts 200000": "compare: --contexts: a prompt of 200000 tokens, the model was made for",
		"--passes 0":        "compare: --prefill 2048 and --passes 0, want at least 1\n",
		"--tune 5s":         "compare: --tune and --prefill exclude each other\n",
	} {
		said, err := comparePrompts(t, dir, strings.Fields(args)...)
		require.Error(t, err)
		require.Contains(t, said, want)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "worker.py"), []byte("import sys; sys.exit(3)\n"), 0o644))
	said, err = comparePrompts(t, dir, "--contexts", "128")
	require.Error(t, err)
	require.Contains(t, said, "compare: transformers ended with exit code 3\n")
	require.NotContains(t, said, "Traceback")
}

// Both systems run on a CPU, mkgen on the executor, and compute the same logits.
func TestPromptsAreComparedOnACPU(t *testing.T) {
	if testing.Short() {
		t.Skip("builds mkgen and starts PyTorch")
	}
	python := pythonWithTorch(t)
	if out, err := exec.Command(python, "-c", "from transformers import StaticCache").CombinedOutput(); err != nil {
		t.Skipf("%s has no transformers 5: %.200s", python, out)
	}
	dir := t.TempDir()
	mkgen, out := filepath.Join(dir, "mkgen"), filepath.Join(dir, "prompts.json")
	built, err := exec.Command("go", "build", "-o", mkgen, "../cmd/mkgen").CombinedOutput()
	require.NoError(t, err, string(built))
	said, err := exec.Command(python, "../bench/compare.py", "--mkgen", mkgen, "--model", "tiny", "--device", "sim",
		"--prefill", "64", "--contexts", "20,80", "--rounds", "1", "--passes", "1", "--out", out).CombinedOutput()
	require.NoError(t, err, string(said))
	require.Contains(t, string(said), "UNGATED: no record.")
	require.FileExists(t, filepath.Join(dir, "prompts.svg"))
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	f, err := bench.ParsePrefill(data)
	require.NoError(t, err)
	require.Len(t, f.Cases, 4)
	for i, c := range f.Cases {
		require.Equal(t, []string{"mkgen", "transformers"}[i%2], c.System)
		if i%2 == 1 {
			require.Positive(t, c.Apart)
			require.Less(t, c.Apart, 0.15)
		}
	}
}
