package models

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is what make_rope_golden.py wrote.
type golden struct {
	Cases []struct {
		Config     string
		Parameters int64
		InvFreq    []float64 `json:"inv_freq"`
	}
}

func readGolden(t *testing.T) golden {
	text, err := os.ReadFile("testdata/rope_golden.json")
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(text, &g))
	require.Len(t, g.Cases, 8)
	return g
}

func TestRegisteredModelsAreValidAndSorted(t *testing.T) {
	require.True(t, slices.IsSorted(Names()))
	require.Equal(t, len(Names()), len(slices.Compact(Names())))
	for _, c := range All() {
		require.NoError(t, c.Validate(), c.Name)
		found, err := Lookup(c.Name)
		require.NoError(t, err)
		require.Equal(t, c, found)
	}
}

func TestDerivedFiguresOfRegisteredModels(t *testing.T) {
	cases := []struct {
		name                            string
		group, qRows, kvRows            int
		params, weightBytes, kvPerToken int64
	}{
		{"llama3-8b", 4, 4096, 1024, 8_030_261_248, 15_009_857_536, 131_072},
		{"llama3-70b", 8, 8192, 1024, 70_553_706_496, 139_006_083_072, 327_680},
		{"llama3.2-1b", 4, 2048, 512, 1_235_814_400, 2_471_632_896, 32_768},
		{"llama3.2-3b", 3, 3072, 1024, 3_212_749_824, 6_425_505_792, 114_688},
		{"tiny", 3, 192, 64, 332_256, 664_704, 512},
	}
	for _, want := range cases {
		c, err := Lookup(want.name)
		require.NoError(t, err)
		require.Equal(t, want.group, c.GroupSize(), want.name)
		require.Equal(t, want.qRows, c.QRows(), want.name)
		require.Equal(t, want.kvRows, c.KVRows(), want.name)
		require.Equal(t, want.params, c.ParamCount(), want.name)
		require.Equal(t, want.weightBytes, c.WeightBytes(), want.name)
		require.Equal(t, want.kvPerToken, c.KVBytesPerToken(), want.name)
	}
}

func TestParamCountAgreesWithTransformers(t *testing.T) {
	for _, g := range readGolden(t).Cases {
		c, err := Reading{}.ParseFile(filepath.Join("testdata/configs", g.Config))
		require.NoError(t, err)
		require.Equal(t, g.Parameters, c.ParamCount(), g.Config)
	}
}

func TestTinyIsAwkwardOnPurpose(t *testing.T) {
	c, err := Lookup("tiny")
	require.NoError(t, err)
	require.NotEqual(t, c.Hidden, c.QRows())
	require.NotEqual(t, c.HeadDim, c.Hidden/c.Heads)
	require.Zero(t, c.Hidden%c.Heads)
	require.Equal(t, 1, c.GroupSize()%2)
	require.NotZero(t, c.Intermediate%64)
	require.Zero(t, c.Intermediate%32)
	unscaled := c
	unscaled.Rope.Scaling = nil
	var kept, divided, between int
	plain := RopeInvFreq(unscaled)
	for i, f := range RopeInvFreq(c) {
		switch f {
		case plain[i]:
			kept++
		case plain[i] / 8:
			divided++
		default:
			between++
		}
	}
	require.Equal(t, []int{2, 3, 11}, []int{kept, between, divided})
}

func TestRegistryHandsOutFreshValues(t *testing.T) {
	before, err := Lookup("tiny")
	require.NoError(t, err)
	spoiled, err := Lookup("tiny")
	require.NoError(t, err)
	spoiled.EOS[0] = 99
	spoiled.Rope.Scaling.Factor = 99
	after, err := Lookup("tiny")
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestAliasesAreRegisteredModels(t *testing.T) {
	for alias, name := range aliases() {
		require.NotContains(t, Names(), alias)
		want, err := Lookup(name)
		require.NoError(t, err)
		got, err := Lookup(alias)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, Text(name), Text(alias))
	}
}

func TestLookupOfUnknownNameNamesTheClosest(t *testing.T) {
	_, err := Lookup("llama-3.2-3b")
	require.EqualError(t, err, `model: found "llama-3.2-3b", want one that mkgen models lists; closest is llama3.2-3b`)
	for asked, want := range map[string]string{
		"": "tiny", "Tiny": "tiny", "llama3-7b": "llama2-7b", "lama3-8b": "llama3-8b", "llama3-1-8b": "llama3-8b",
	} {
		_, err := Lookup(asked)
		require.ErrorContains(t, err, "closest is "+want, asked)
	}
	_, err = Lookup(strings.Repeat("\x00x\n", 1<<20))
	require.Error(t, err)
	require.Less(t, len(err.Error()), 400)
	require.NotContains(t, err.Error(), "\n")
}

func TestRopeInvFreqEqualsTransformers(t *testing.T) {
	for _, g := range readGolden(t).Cases {
		c, err := Reading{}.ParseFile(filepath.Join("testdata/configs", g.Config))
		require.NoError(t, err)
		var want []float32
		for _, f := range g.InvFreq {
			want = append(want, float32(f))
		}
		require.Equal(t, want, RopeInvFreq(c), g.Config)
	}
}

// TestRopeScalingMeetsItsDefinition checks the three bands of llama3 against the formula
// in float64, independent of the order of float32 operations.
func TestRopeScalingMeetsItsDefinition(t *testing.T) {
	for _, c := range Checked() {
		s := c.Rope.Scaling
		for i, f := range RopeInvFreq(c) {
			plain := math.Pow(c.Rope.Theta, -2*float64(i)/float64(c.HeadDim))
			turns := float64(s.OriginalPositions) * plain / (2 * math.Pi)
			smooth := min(max((turns-s.LowFreqFactor)/(s.HighFreqFactor-s.LowFreqFactor), 0), 1)
			require.InEpsilon(t, plain*(smooth+(1-smooth)/s.Factor), f, 2e-6, "%s %d", c.Name, i)
		}
	}
}

func TestRopeInvFreqDecreases(t *testing.T) {
	for _, c := range All() {
		freqs := RopeInvFreq(c)
		require.Len(t, freqs, c.Rope.over(c.HeadDim).Dims/2)
		if c.Rope.Scaling == nil || c.Rope.Scaling.Type == ScalingLlama3 {
			require.Equal(t, float32(1), freqs[0])
		}
		slices.Reverse(freqs)
		require.True(t, slices.IsSorted(freqs), c.Name)
	}
}

// The numbers of parameters that the models' publishers and the Hugging Face hub state.
func TestParametersOfPublishedModels(t *testing.T) {
	for name, want := range map[string]int64{
		"llama2-7b": 6_738_415_616, "tinyllama-1.1b": 1_100_048_384, "smollm2-1.7b": 1_711_376_384,
		"yi-1.5-9b":  8_829_407_232,
		"falcon3-7b": 7_455_550_464, "mistral-7b": 7_248_023_552, "mistral-nemo-12b": 12_247_782_400,
		"mistral-small-24b": 23_572_403_200,
		"ministral-8b":      8_019_808_256, "qwen2.5-7b": 7_615_616_512, "qwen2.5-72b": 72_706_203_648,
		"qwen3-8b":  8_190_735_360,
		"qwen3-32b": 32_762_123_264, "phi-3-mini-4k": 3_821_079_552, "phi-4": 14_659_507_200, "phi-4-mini": 3_836_021_760,
		"gemma-2-9b":  9_241_705_984,
		"gemma-2-27b": 27_227_128_320, "gemma-3-1b": 999_885_952, "glm-4-9b": 9_400_279_040, "glm-4-32b": 32_566_081_536,
		"smollm3-3b": 3_075_098_624,
	} {
		c, err := Lookup(name)
		require.NoError(t, err)
		require.Equal(t, want, c.ParamCount(), name)
	}
}
