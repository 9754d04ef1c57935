package megakernel

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/require"
)

func build(t *testing.T, name string, o Options) *Kernel {
	t.Helper()
	c, err := models.Lookup(name)
	require.NoError(t, err)
	mk, err := Build(c, o)
	require.NoError(t, err)
	return mk
}

func TestReportsFitATerminalAndRepeat(t *testing.T) {
	deep.Only(t)
	for _, c := range models.Checked() {
		for _, o := range []Options{{}, {SMs: 1}, {SMs: 7, Page: 64, Splits: 128}, {Held: 1}, {Held: 8}} {
			mk, err := Build(c, o)
			require.NoError(t, err)
			var first, again strings.Builder
			require.NoError(t, mk.Explain(&first, machine.H200()))
			require.NoError(t, mk.Explain(&again, machine.H200()))
			require.Equal(t, first.String(), again.String())
			for line := range strings.Lines(first.String()) {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, "%s: %q", c.Name, line)
			}
		}
	}
}

func TestSummaryNamesEveryPhaseAndEveryRegion(t *testing.T) {
	mk := build(t, "llama3-8b", Options{})
	var b strings.Builder
	require.NoError(t, mk.Summary(&b, machine.H200()))
	for _, p := range mk.Phases {
		require.Regexp(t, fmt.Sprintf(`(?m)^  %s +%d `, p.Name, mk.runs(&p)), b.String())
	}
	for _, g := range mk.Plan.Shared {
		require.Regexp(t, fmt.Sprintf(`(?m)^ +%d +%d  %s `, g.Offset, g.Bytes, g.Name), b.String())
	}
	text := func(mk *Kernel) string {
		var b strings.Builder
		require.NoError(t, mk.Summary(&b, machine.H200()))
		return strings.Join(strings.Fields(b.String()), " ")
	}
	require.Contains(t, text(mk),
		fmt.Sprintf("Behind gate_up, lm_head stands a grid barrier, behind attention, o, down a count of arrivals, as their output is in LL packets: %d a step. What qkv writes is waited for packet by packet.", mk.Barriers()))
	require.Equal(t, 4*mk.Config.Layers+1, mk.Barriers(), "attention, o, gate_up, down; lm_head")
	mk = build(t, "llama3-8b", Options{Vectors: "barrier"})
	require.Contains(t, text(mk),
		fmt.Sprintf("Behind attention, o, gate_up, down, lm_head stands a grid barrier: %d a step. What qkv writes is waited for packet by packet.", mk.Barriers()))
	require.Equal(t, 4*mk.Config.Layers+1, mk.Barriers())
	mk = build(t, "llama3-8b", Options{Queries: SyncBarrier, Merge: MergePhase, Vectors: "barrier"})
	require.Contains(t, text(mk), fmt.Sprintf("Every phase ends in a grid barrier: %d a step.", mk.Barriers()))
	require.Equal(t, 6*mk.Config.Layers+1, mk.Barriers(), "qkv and merge, too")
}

// What a stage holds is what the plan's chunks are, and types are those of the kernel's weights and inputs.
func TestSummaryOfFormats(t *testing.T) {
	for _, x := range []struct {
		o                  Options
		says, stage, input string
	}{
		{Options{}, "8.030 B parameters of bfloat16, 32", "8 × 1024 weights or", "input vector (bf16)"},
		{Options{Weights: "e4m3"}, "8.030 B parameters, 32", "8 × 2048 weights of e4m3, 8 × 1024 of bf16 or",
			"input vector (f16, bf16)"},
		{Options{Weights: "i4g128"}, "matrices are i4g128, the LM head is bf16, embedding and norms are bf16.",
			"8 × 4096 weights of i4g128, 8 × 1024 of bf16 or", "input vector (16-bit fixed point, bf16)"},
		{Options{Weights: "i4g128,down=i8", Head: "i8"}, "matrices are i4g128,down=i8, the LM head is i8, embedding",
			"8 × 4096 weights of i4g128, 8 × 2048 of i8 or", "input vector (16-bit fixed point) or"},
		{Options{Weights: "i8", Head: "i8"}, "8.030 B parameters, 32", "8 × 2048 weights or",
			"input vector (16-bit fixed point) or"},
		// a stage of several tiles
		{Options{Weights: "i4g128", Tokens: 8}, "8.030 B parameters, 32",
			"16 × 2048 weights of i4g128, 8 × 1024 of bf16 or", ""},
	} {
		mk := build(t, "llama3-8b", x.o)
		var b strings.Builder
		require.NoError(t, mk.Summary(&b, machine.H200()))
		text := strings.Join(strings.Fields(b.String()), " ")
		require.Contains(t, text, x.says)
		require.Contains(t, text, "a stage holds "+x.stage+" 32 tokens of a KV head.")
		if x.input != "" {
			require.Contains(t, text, x.input)
		}
	}
}

func TestSummaryWarnsOfTooManyWarpsForTheRegisters(t *testing.T) {
	for consumers, left := range map[int]int{0: 0, 7: 0, 11: 0, 12: 128, 16: 96, 20: 80, 31: 64} {
		var b strings.Builder
		require.NoError(t, build(t, "llama3-8b", Options{Consumers: consumers}).Summary(&b, machine.H200()))
		text := strings.Join(strings.Fields(b.String()), " ")
		if left == 0 {
			require.NotContains(t, text, "spill")
			continue
		}
		require.Contains(t, text, fmt.Sprintf("%d consumer warps leave a thread %d registers", consumers, left))
	}
}

// The busiest SM reads at least the mean, and at most what one chunk more for
// each of its items adds.
func TestBusiestSMsShareOfTheKVCache(t *testing.T) {
	for _, o := range []Options{{}, {SMs: 1}, {SMs: 5, Splits: 3}, {SMs: 132, Splits: 128}} {
		mk := build(t, "llama3-8b", o)
		for _, context := range []int{0, 1, 31, 32, 33, 128, 1000, 6144} {
			mean := float64(context) * float64(mk.kvLayerBytes()) / float64(mk.Plan.SMs)
			busiest := float64(mk.kvBusiest(0, context, 1))
			require.GreaterOrEqual(t, busiest, mean, "%+v context %d", o, context)
			items := float64(pipeline.CeilDiv(mk.KV.Heads*mk.Options.Splits, mk.Plan.SMs))
			each := float64(context) * float64(mk.kvLayerBytes()) / float64(mk.KV.Heads*mk.Options.Splits)
			chunk := float64(kvTokensPerStage(mk.Plan) * mk.KV.TokenBytes())
			require.LessOrEqual(t, busiest, items*(each+chunk), "%+v context %d", o, context)
		}
	}
}

func TestOneOfAThingIsNamedInTheSingular(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Layers, c.Heads, c.KVHeads, c.MaxPositions = 1, 1, 1, 1
	mk, err := Build(c, Options{SMs: 1, Page: 1, Consumers: 1, Stages: 1})
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, mk.Explain(&b, machine.H200()))
	require.NotRegexp(t, `\b1 (layers|KV\s+heads|positions|items|SMs|splits|stages|tokens|CTAs|copies)\b`,
		strings.ReplaceAll(b.String(), "[1 layers][pages][1 KV heads]", ""))
}

func TestAnSMWithoutRowsSaysSo(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Vocab, c.Layers, c.EOS, c.BOS = 8, 1, nil, models.NoToken
	mk, err := Build(c, Options{SMs: 4})
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, mk.ExplainSM(&b, 3))
	require.Contains(t, b.String(), "SM 3 of 4, the final phase\n  It owns no rows.\n")
}

func TestLinesOfAnSMFitATerminal(t *testing.T) {
	var b strings.Builder
	require.NoError(t, build(t, "llama3-70b", Options{}).ExplainSM(&b, 131))
	for line := range strings.Lines(b.String()) {
		require.LessOrEqual(t, len([]rune(line)), 81, "%q", line)
	}
}

func TestChunksOfAnSMThatIsNotThere(t *testing.T) {
	mk := build(t, "tiny", Options{SMs: 4})
	require.EqualError(t, mk.ExplainSM(&strings.Builder{}, 4), "SM 4, want 0 to 3")
	require.EqualError(t, mk.ExplainSM(&strings.Builder{}, -1), "SM -1, want 0 to 3")
}

type fullWriter struct{ room int }

func (w *fullWriter) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, errors.New("full")
	}
	return len(p), nil
}

func TestReportsReturnTheWritersError(t *testing.T) {
	mk := build(t, "tiny", Options{SMs: 4})
	for _, room := range []int{0, 100, 1000, 5000} {
		require.EqualError(t, mk.Explain(&fullWriter{room}, machine.H200()), "full")
	}
	require.EqualError(t, mk.ExplainSM(&fullWriter{200}, 0), "full")
}

func TestNumbersForReaders(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.000 kB", 999949: "999.9 kB", 999950: "1.000 MB",
		15009316864: "15.01 GB", math.MaxInt64: "9.223 EB"} {
		require.Equal(t, want, FormatBytes(n))
	}
	require.Equal(t, "8.030 B", FormatCount(8030261248))
	for x, want := range map[float64]string{4.712: "4.7", 9.94: "9.9", 9.96: "10", 274.4: "274"} {
		require.Equal(t, want, formatRate(x))
	}
	for s, want := range map[float64]string{0: "0.0 µs", 999.9e-6: "999.9 µs", 1e-3: "1.00 ms", 2.5: "2.50 s"} {
		require.Equal(t, want, formatSeconds(s))
	}
}
