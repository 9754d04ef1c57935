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
	require.Equal(t, []string{"llama3-70b", "llama3-8b", "llama3.2-1b", "llama3.2-3b", "tiny"}, Names())
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
		c, err := ParseFile(filepath.Join("testdata/configs", g.Config))
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

func TestLookupOfUnknownNameListsAllAndTheClosest(t *testing.T) {
	_, err := Lookup("llama-3.2-3b")
	require.EqualError(t, err, `model: found "llama-3.2-3b", want one of llama3-70b, llama3-8b, `+
		`llama3.2-1b, llama3.2-3b, tiny; closest is llama3.2-3b`)
	for asked, want := range map[string]string{
		"": "tiny", "Tiny": "tiny", "llama3-7b": "llama3-70b", "lama3-8b": "llama3-8b", "llama3.1-8b": "llama3-8b",
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
		c, err := ParseFile(filepath.Join("testdata/configs", g.Config))
		require.NoError(t, err)
		var want []float32
		for _, f := range g.InvFreq {
			want = append(want, float32(f))
		}
		require.Equal(t, want, RopeInvFreq(c), g.Config)
	}
}

// TestRopeScalingMeetsItsDefinition checks the three bands against the formula
// in float64, independent of the order of float32 operations.
func TestRopeScalingMeetsItsDefinition(t *testing.T) {
	for _, c := range All() {
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
		require.Len(t, freqs, c.HeadDim/2)
		require.Equal(t, float32(1), freqs[0])
		slices.Reverse(freqs)
		require.True(t, slices.IsSorted(freqs), c.Name)
	}
}
