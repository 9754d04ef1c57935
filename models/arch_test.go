package models

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArchOfLlamaPrintsItsLayersOnce(t *testing.T) {
	c, err := Lookup("llama3.2-1b")
	require.NoError(t, err)
	a := c.Arch()
	require.Equal(t, c.Layers, a.Layers())
	lines := strings.Split(strings.TrimSpace(a.String()), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, "layers 0-15: rms 1e-05 → attention 32/8 × 64 ×0.125 rope 500000 over 64 llama3 ×32 beyond 8192 (1 to 4); "+
		"rms 1e-05 → silu mlp 8192", lines[1])
	require.Equal(t, "head rms 1e-05, 128256 × 2048 tied", lines[2])
}

func TestPatternOfKindsRepeats(t *testing.T) {
	c := tiny()
	c.Layers = 5
	c.Traits.Kinds, c.Traits.Pattern = []Kind{{Window: 8}, {NoRope: true}}, []int{0, 0, 1}
	a := c.Arch()
	require.Equal(t, []int{0, 0, 1, 0, 0}, a.Pattern)
	require.Equal(t, 8, a.Layer(3).Attn.Window)
	require.Zero(t, a.Layer(2).Attn.Rope)
	require.Equal(t, c.HeadDim, a.Layer(0).Attn.Rope.Dims)
}

func TestTensorsOfLlamaAreItsParameters(t *testing.T) {
	for _, c := range Checked() {
		total, names := int64(0), map[string]bool{}
		for _, tensor := range c.Tensors() {
			require.False(t, names[tensor.Name], tensor.Name)
			require.Equal(t, tensor.Rows, tensor.Stored)
			names[tensor.Name] = true
			total += tensor.Elements()
		}
		require.Equal(t, c.ParamCount(), total, c.Name)
	}
}

func TestRolesOfOneNameAreStackedInTheirOrder(t *testing.T) {
	c := tiny()
	a := c.Arch()
	names := llamaNames()
	for _, r := range []Role{RoleQ, RoleK, RoleV} {
		names[r] = "model.layers.%d.self_attn.qkv_proj.weight"
	}
	list := a.add(nil, names, RolePreAttn, RolePostMLP, 1)
	first := 0
	for _, tensor := range list[1:4] {
		require.Equal(t, "model.layers.1.self_attn.qkv_proj.weight", tensor.Name)
		require.Equal(t, first, tensor.First, tensor.Role)
		require.Equal(t, c.QRows()+2*c.KVRows(), tensor.Stored)
		first += tensor.Rows
	}
	require.Equal(t, first, list[1].Stored)
}

// tiny is the registered model of that name.
func tiny() Config { return published("tiny", Text("tiny")) }
