package bench_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// What a suite measured makes a file that reads strictly, whose figures agree, and that draws as a curve.
func TestAFileOfPromptsReadsAsItWasWritten(t *testing.T) {
	s := prefillSuite(t, attention.KVBF16, nil)
	s.Lengths, s.Rounds = []int{18}, 2
	out, err := s.Run(t.Context())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "prompts.json")
	require.NoError(t, out.File(s, bench.Facts{GPU: "NVIDIA H100 80GB HBM3", Compiler: "none"}, "abc").Write(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := bench.ParsePrefill(data)
	require.NoError(t, err)
	require.Equal(t, bench.PrefillOptions{Compiler: "none", Prefill: []int{32, 20}, Page: s.Decode[0].KV.Page, SMs: 2},
		f.Options)
	require.Equal(t, 989.4, f.Peak)
	c := f.Cases[0]
	require.Equal(t, []any{"tiny", "bf16", 18}, []any{c.Model, c.DType, c.Prompt})
	require.Len(t, c.Rounds, 2)
	require.Len(t, c.Logits, (320+bench.LogitsEvery-1)/bench.LogitsEvery, "of a vocabulary of 320")
	require.NoError(t, bench.CheckPrefillFile(data, false))
	require.ErrorContains(t, bench.CheckPrefillFile([]byte(`{"cases": []}`), false),
		"it has no field what, want a file of prompts")
	picture, err := f.Plot().SVG()
	require.NoError(t, err)
	require.Contains(t, string(picture), bench.Ungated)
}

func TestAFileOfPromptsWhoseFiguresDisagreeIsRefused(t *testing.T) {
	good := func() *bench.PrefillFile {
		return &bench.PrefillFile{What: bench.PrefillWhat, GPU: "NVIDIA H100", Commit: "abc", Gated: true, Peak: 1000,
			Options: bench.PrefillOptions{Compiler: "none"}, Cases: []bench.PrefillFigures{
				{System: bench.SystemMkgen, Model: "m", Prompt: 1000, First: 2000, Rate: 5e5, FLOP: 1e12, TFLOPS: 500, Share: 0.5,
					Rounds: []float64{2000}, Gate: &gate.Record{Passed: true,
						Launches: &gate.PrefillLaunches{One: 3, Several: 2, Mixed: 1, Sequences: 4}}},
				{System: "other", Model: "m", Prompt: 1000, First: 4000, Rate: 2.5e5, FLOP: 1e12, TFLOPS: 250, Share: 0.25, Over: 2,
					Rounds: []float64{4500, 3500}}}}
	}
	require.NoError(t, good().Check())
	for want, spoil := range map[string]func(f *bench.PrefillFile){
		"case 0: no launch of a prefill kernel has sequences that decode": func(f *bench.PrefillFile) {
			f.Cases[0].Gate.Launches.Mixed = 0
		},
		"commit \"\"":        func(f *bench.PrefillFile) { f.Commit = "" },
		"there are no cases": func(f *bench.PrefillFile) { f.Cases = nil },
		"case 1: first_token_us is 4000, the rounds'": func(f *bench.PrefillFile) {
			f.Cases[1].Rounds = []float64{4100}
		},
		"case 0: tflop_s is 501 and tok_s 500000":            func(f *bench.PrefillFile) { f.Cases[0].TFLOPS = 501 },
		"case 0: share is 0.6, from tflop_s 0.5":             func(f *bench.PrefillFile) { f.Cases[0].Share = 0.6 },
		"case 1: time_over_mkgen is 1, from the times 2":     func(f *bench.PrefillFile) { f.Cases[1].Over = 1 },
		"case 0: it did not pass the gate":                   func(f *bench.PrefillFile) { f.Cases[0].Gate = nil },
		"case 0: model \"m\", 1000 tokens in 0 µs, 1 rounds": func(f *bench.PrefillFile) { f.Cases[0].First = 0 },
	} {
		f := good()
		spoil(f)
		require.ErrorContains(t, f.Check(), want)
	}
}

// A time has three digits, or all of those before the point.
func TestLabelsOfPromptsAreMilliseconds(t *testing.T) {
	for us, want := range map[float64]string{6070: "6.07 ms", 226e3: "226 ms", 999.4e3: "999 ms", 999.6e3: "1000 ms",
		1248.4e3: "1248 ms"} {
		f := bench.PrefillFile{Cases: []bench.PrefillFigures{{Prompt: 1, First: us, FLOP: 1, Rounds: []float64{us}}}}
		require.Equal(t, []string{want}, f.Plot().Curves[0].Labels)
	}
}

// The table has shares of what a GPU is known to reach: e4m3 of twice the peak, and of no product's rate.
func TestTheTableOfPromptsHasShares(t *testing.T) {
	o := &bench.PrefillOutcome{Most: 0.05, Agreed: 75, Error: 0.009, Inputs: pipeline.FormatBF16,
		Cases: []bench.PrefillCase{{Tokens: 1024, FLOP: 14.57e12, First: []time.Duration{26400 * time.Microsecond}}}}
	table := func(gpu string) string {
		var b strings.Builder
		require.NoError(t, o.Write(&b, bench.Facts{GPU: gpu}))
		return b.String()
	}
	require.Contains(t, table("NVIDIA H200"), `
prompt  first token  tokens/s  TFLOP/s  of 989.4    of 665
  1024     26.40 ms     38788    551.9    55.8 %    83.0 %

989.4 TFLOP/s are the datasheet's peak; PyTorch's product of large matrices
sustains 665 on such a GPU.
`)
	require.NotContains(t, table("another GPU"), "%")
	o.Inputs = pipeline.FormatE4M3
	require.Contains(t, table("NVIDIA H200"), "TFLOP/s  of 1978.8\n  1024     26.40 ms     38788    551.9    27.9 %\n")
}
