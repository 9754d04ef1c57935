package megakernel

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/require"
)

func TestAttentionHasOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "causal": "", "causal/causal": "", " window=8 / causal ": "window=8/causal",
		"sinks=4+window=8":        "window=8+sinks=4",
		"window=8/window=8":       "window=8",
		"window=8/window=9":       "window=8/window=9",
		"sigmoid=-5.50+softcap=3": "softcap=3+sigmoid=-5.5",
		"alibi+softcap=3":         "alibi+softcap=3",
		"softcap=3+alibi":         "softcap=3+alibi",
		"alibi+window=1e3":        "window=1000+alibi",
		"head-scale+mask/streaming=64+sinks=4+head-scale": "head-scale+mask/head-scale+streaming=64+sinks=4",
	} {
		specs, pattern, err := parseAttention(text, 2)
		require.NoError(t, err, text)
		require.Equal(t, want, attentionText(specs, pattern), text)
	}
}

// Two windows are two classes, equal layers one.
func TestClassesOfLayersAreTheirKindsOfAttention(t *testing.T) {
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	mk, err := Build(c, Options{Tokens: 2, Attention: "window=64/window=128+sinks=4/causal/window=64/streaming=32",
		Selection: true})
	require.NoError(t, err)
	require.Equal(t, []kv.Class{{Window: 64}, {Window: 128, Sinks: 4}, {Select: true}, {Window: 32}}, mk.Classes())
	require.Equal(t, []int{0, 1, 2, 0, 3}, mk.pattern)
	require.True(t, mk.Unrotated(9))
	require.False(t, mk.Unrotated(8))
	require.Nil(t, mk.LayerAttention(7, Tables{}))
	require.Equal(t, 128, mk.LayerAttention(6, Tables{}).Window)
}

func TestAttentionThatCannotBeIsRefused(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for text, want := range map[string]string{
		"windows=3":                 "found \"windows\", want one of causal, head-scale, streaming, window, sinks, mask, softcap, alibi, sigmoid",
		"window":                    "found \"window\", want window=N, N a whole number from 1 to 1048576",
		"window=0":                  "found \"window=0\", want window=N, N a whole number from 1 to 1048576",
		"window=2.5":                "found \"window=2.5\", want window=N, N a whole number from 1 to 1048576",
		"streaming=-1":              "found \"streaming=-1\", want streaming=N, N a whole number from 1 to 1048576",
		"softcap=0":                 "found \"softcap=0\", want softcap=N, N a number from 0.001 to 10000",
		"softcap=1e-300":            "found \"softcap=1e-300\", want softcap=N, N a number from 0.001 to 10000",
		"softcap=1e6":               "found \"softcap=1e6\", want softcap=N, N a number from 0.001 to 10000",
		"softcap=NaN":               "found \"softcap=NaN\", want softcap=N, N a number from 0.001 to 10000",
		"sigmoid=NaN":               "found \"sigmoid=NaN\", want sigmoid=N, N a number",
		"alibi=2":                   "found \"alibi=2\", want alibi without a number",
		"sinks=4":                   "sinks without a window in \"sinks=4\"; want window=N+sinks=N or streaming=N+sinks=N",
		"window=4+window=5":         "window twice in \"window=4+window=5\"",
		"window=4+streaming=5":      "window and streaming, which is a window, too, in \"window=4+streaming=5\"; want one",
		"causal+alibi":              "causal, which is attention without anything else, with something else in \"causal+alibi\"",
		"causal/":                   "found \"\", want one of causal, head-scale, streaming, window, sinks, mask, softcap, alibi, sigmoid",
		"causal/alibi/softcap=2":    "3 kinds in turn in \"causal/alibi/softcap=2\", the model has 2 layers",
		"alibi/mask":                "mask in \"alibi/mask\", but steps of one row, which have none; want several",
		strings.Repeat("alibi/", 2): "found \"\", want one of",
	} {
		_, err := Build(c, Options{Attention: text})
		var refused *OptionError
		require.ErrorAs(t, err, &refused, text)
		require.Equal(t, "Attention", refused.Option)
		require.Contains(t, refused.Problem, want)
	}
	c.Layers = 8
	_, err = Build(c, Options{Attention: "window=1/window=2/window=3/window=4/window=5"})
	require.EqualError(t, err, "options: 5 kinds in \"window=1/window=2/window=3/window=4/window=5\", want at most 4")
	_, err = Build(c, Options{Selection: true})
	require.EqualError(t, err, "options: selected pages, but steps of one row, which have none; want several")
}

// What a host fills is there when some layer's attention needs it, and its content with it.
func TestTheLayoutHasWhatAttentionReads(t *testing.T) {
	mk := build(t, "tiny", Options{SMs: 4, Tokens: 4, Attention: "alibi+head-scale/mask", Selection: true})
	l := readLayout(t, mk)
	require.Equal(t, "head-scale+alibi/mask", l.Options.Attention)
	require.True(t, l.Options.Selection)
	have := map[string]string{}
	for _, f := range l.Params {
		have[f.Name] = f.Fill
	}
	for _, name := range []string{BufferSlopes, BufferHeadScales, BufferMask, BufferPositions} {
		require.NotEmpty(t, have[name], name)
	}
	tables := map[string]int{}
	for _, table := range l.Tables {
		tables[table.Name] = len(table.Words)
	}
	require.Equal(t, 6, tables[BufferSlopes])
	require.Equal(t, 6, tables[BufferHeadScales])
	var text strings.Builder
	require.NoError(t, mk.Explain(&text, machine.H200()))
	require.Contains(t, text.String(), "Attention, the layers in turn: head-scale+alibi / mask.")
	require.Contains(t, text.String(), "query rows")
}
