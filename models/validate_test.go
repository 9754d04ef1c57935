package models

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidateNamesEachFault(t *testing.T) {
	cases := []struct {
		message string
		spoil   func(*Config)
	}{
		{`name: found "", want 1 to 64 of a-z 0-9 . _ - starting with a letter or digit`, func(c *Config) { c.Name = "" }},
		{`name: found "../x", want 1 to 64 of a-z 0-9 . _ - starting with a letter or digit`,
			func(c *Config) { c.Name = "../x" }},
		{`name: found "A", want 1 to 64 of a-z 0-9 . _ - starting with a letter or digit`, func(c *Config) { c.Name = "A" }},
		{"num_hidden_layers: found 0, want an integer from 1 to 1024", func(c *Config) { c.Layers = 0 }},
		{"hidden_size: found -1, want an integer from 1 to 1048576", func(c *Config) { c.Hidden = -1 }},
		{"intermediate_size: found 1048577, want an integer from 1 to 1048576",
			func(c *Config) { c.Intermediate = MaxIntermediate + 1 }},
		{"num_key_value_heads: found 0, want an integer from 1 to 4096", func(c *Config) { c.KVHeads = 0 }},
		{"num_key_value_heads: found 4, want a divisor of num_attention_heads 6", func(c *Config) { c.KVHeads = 4 }},
		{"head_dim: found 31, want an even number; rotary embedding turns pairs of elements",
			func(c *Config) { c.HeadDim = 31 }},
		{"rms_norm_eps: found NaN, want a number from 1e-30 to 1", func(c *Config) { c.NormEps = math.NaN() }},
		{"rope_theta: found +Inf, want a number from 1 to 1e+12", func(c *Config) { c.Rope.Theta = math.Inf(1) }},
		{"rope_scaling.factor: found NaN, want a number from 1 to 10000",
			func(c *Config) { c.Rope.Scaling.Factor = math.NaN() }},
		{"rope_scaling.high_freq_factor: found 1, want 1.1 times low_freq_factor 1 or more",
			func(c *Config) { c.Rope.Scaling.HighFreqFactor = 1 }},
		{"rope_scaling.original_max_position_embeddings: found 0, want an integer from 1 to 16777216",
			func(c *Config) { c.Rope.Scaling.OriginalPositions = 0 }},
		{"bos_token_id: found -2, want an integer from 0 to 319; the id must lie in the vocabulary",
			func(c *Config) { c.BOS = -2 }},
		{"eos_token_id: found 320, want an integer from 0 to 319; the id must lie in the vocabulary",
			func(c *Config) { c.EOS = []int{320} }},
		{"eos_token_id: found 3 twice, want each id once", func(c *Config) { c.EOS = []int{3, 3} }},
		{"eos_token_id: found 65 ids, want at most 64", func(c *Config) { c.EOS = make([]int, 65) }},
		{"dtype: found float16, want bfloat16; the kernel reads no other weights yet", func(c *Config) { c.DType = F16 }},
		{"dtype: found unstated, want bfloat16; the kernel reads no other weights yet", func(c *Config) { c.DType = 0 }},
		{`torch_dtype: found DType(9), want "bfloat16", "float16" or "float32"`, func(c *Config) { c.CheckpointDType = 9 }},
	}
	for _, k := range cases {
		c, err := Lookup("tiny")
		require.NoError(t, err)
		k.spoil(&c)
		require.EqualError(t, c.Validate(), k.message)
	}
}

func TestValidateOfTheZeroConfigListsEverything(t *testing.T) {
	message := Config{}.Validate().Error()
	for _, field := range []string{"name", "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
		"num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "dtype"} {
		require.Contains(t, "\n"+message, "\n"+field+": found ")
	}
	require.Equal(t, 12, strings.Count(message, ": found "))
}

// TestLargestConfigDoesNotOverflow holds the promise on the Max constants.
func TestLargestConfigDoesNotOverflow(t *testing.T) {
	c, err := Lookup("tiny")
	require.NoError(t, err)
	for _, s := range c.sizes() {
		*s.value = s.max
	}
	require.NoError(t, c.Validate())
	require.Equal(t, 1<<22, c.QRows())
	require.Greater(t, c.WeightBytes(), int64(1)<<54)
	require.Less(t, c.WeightBytes(), int64(1)<<60)
	require.Less(t, c.ParamCount(), int64(1)<<60)
	require.Equal(t, int64(1)<<62, c.KVBytesPerToken()*MaxMaxPositions*16)
}

func TestModelWithoutTokensIsValid(t *testing.T) {
	c, err := Lookup("tiny")
	require.NoError(t, err)
	c.BOS, c.EOS = NoToken, nil
	require.NoError(t, c.Validate())
}

func TestDTypeSizesAndNames(t *testing.T) {
	for d, want := range map[DType]int{BF16: 2, F16: 2, F32: 4} {
		require.Equal(t, want, d.Bytes())
		back, ok := dtypeByName(d.String())
		require.True(t, ok)
		require.Equal(t, d, back)
	}
	require.Panics(t, func() { DTypeUnstated.Bytes() })
	_, ok := dtypeByName("unstated")
	require.False(t, ok)
}
