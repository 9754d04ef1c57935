package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/stretchr/testify/require"
)

// bench/attention.py runs on a CPU: mkgen on the executor and PyTorch compute the same of the same inputs, with heads
// in groups.
func TestAttentionOfPromptsIsComparedOnACPU(t *testing.T) {
	if testing.Short() {
		t.Skip("builds mkgen and starts PyTorch")
	}
	python := pythonWithTorch(t)
	dir := t.TempDir()
	mkgen, out := filepath.Join(dir, "mkgen"), filepath.Join(dir, "attention.json")
	built, err := exec.Command("go", "build", "-o", mkgen, "../cmd/mkgen").CombinedOutput()
	require.NoError(t, err, string(built))
	said, err := exec.Command(python, "../bench/attention.py", "--mkgen", mkgen, "--device", "sim", "--heads", "4",
		"--kv-heads", "2", "--head-dim", "32", "--sequences", "2", "--lengths", "40,70", "--pages", "16,1", "--systems",
		"math", "--attention", "causal,alibi", "--rounds", "1", "--passes", "2", "--out", out).CombinedOutput()
	require.NoError(t, err, string(said))
	require.FileExists(t, filepath.Join(dir, "attention.svg"))
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	f, err := bench.ParseAttentionBeside(data)
	require.NoError(t, err)
	require.Len(t, f.Cases, 12)
	for i, c := range f.Cases {
		require.Equal(t, []string{"mkgen", "mkgen", "math", "mkgen", "mkgen", "flex"}[i%6], c.System)
		require.Equal(t, []string{"", "alibi"}[i/3%2], c.Attention)
		require.Equal(t, []int{16, 1, 0}[i%3], c.Page)
		require.Equal(t, []int{40, 70}[i/6], c.Tokens)
		require.Len(t, c.Rounds, 2)
		if c.System != bench.SystemMkgen {
			require.Less(t, c.Apart, 0.02)
		}
	}
}

// Figures that do not follow from each other, and outputs that are wrong, are no file of attention.
func TestAFileOfAttentionWhoseFiguresDisagreeIsRefused(t *testing.T) {
	good := func() *bench.AttentionBeside {
		flop := 16.0 * 1024 * 1025 * 2 * 2048
		header := bench.AttentionHeader{What: bench.AttentionBesideWhat, GPU: "NVIDIA H100", Heads: 16, KVHeads: 16,
			HeadDim: 128, Sequences: 16}
		return &bench.AttentionBeside{AttentionHeader: header, Cases: []bench.AttentionBesideCase{
			{System: bench.SystemMkgen, Page: 16, Tokens: 1024, FLOP: flop, Micros: 200, TFLOPS: flop / 200e6, OfBest: 0.8,
				Error: 0.002, Rounds: []float64{200}},
			{System: "cudnn", Tokens: 1024, FLOP: flop, Micros: 160, TFLOPS: flop / 160e6, OfBest: 1, Apart: 0.003,
				Rounds: []float64{160}}}}
	}
	require.NoError(t, good().Check())
	picture, err := good().Plot().SVG()
	require.NoError(t, err)
	require.Contains(t, string(picture), "mkgen, pages of 16 tokens")
	require.Contains(t, string(picture), "PyTorch, cudnn")
	for want, spoil := range map[string]func(f *bench.AttentionBeside){
		"case 0: flop is":                 func(f *bench.AttentionBeside) { f.Sequences = 8 },
		"case 1: device_us is 160":        func(f *bench.AttentionBeside) { f.Cases[1].Rounds = []float64{161} },
		"case 0: of_best is 0.9, from":    func(f *bench.AttentionBeside) { f.Cases[0].OfBest = 0.9 },
		"case 0: error is 0.01, want at":  func(f *bench.AttentionBeside) { f.Cases[0].Error = 0.01 },
		"case 0: flop is 6.87865856e":     func(f *bench.AttentionBeside) { f.Cases[0].Attention = "window=512" },
		"case 0: error is 0, want at mos": func(f *bench.AttentionBeside) { f.Cases[0].Error = 0 },
	} {
		f := good()
		spoil(f)
		require.ErrorContains(t, f.Check(), want)
	}
}
