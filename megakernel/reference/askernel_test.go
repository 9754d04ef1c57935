package reference

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

func TestAsKernelRoundsANormBeforeItsScale(t *testing.T) {
	s := models.Config{HeadDim: 4}
	at := AsKernel(s).At
	x := []float64{3, -1.00390625, 0, 5} // the second lies halfway between two bf16
	at(0, AttnResidual, x)
	scale := 1 / math.Sqrt((9+1.00390625*1.00390625+25)/4)
	v := []float64{x[0] * scale, x[1] * scale, 0, x[3] * scale}
	at(0, MLPNorm, v)
	for i, want := range []float64{3, -1, 0, 5} { // the tie goes to the even one
		require.InDelta(t, want*scale, v[i], 1e-12)
	}
}

func TestAsKernelRoundsQueriesInBase2(t *testing.T) {
	factor := math.Log2E / 8 // of a head of 64
	q := []float64{1 / factor, (1 + 1.0/512) / factor}
	AsKernel(models.Config{HeadDim: 64}).At(0, Query, q)
	require.InDeltaSlice(t, []float64{1 / factor, 1 / factor}, q, 1e-12)
}

func TestAsKernelLeavesTheResidualAlone(t *testing.T) {
	at := AsKernel(models.Config{HeadDim: 2}).At
	for _, p := range []Point{Embedded, AttnResidual, MLPResidual, Gate, Up, Logits} {
		v := []float64{1.0001, 2.0002}
		at(0, p, v)
		require.Equal(t, []float64{1.0001, 2.0002}, v, p)
	}
	v := []float64{1.0001}
	at(0, Activated, v)
	require.Equal(t, []float64{1}, v)
}

func TestAProductOfOnesOwnIsUsedForEveryMatrix(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	s := c
	w := Synthetic(s, 1)
	plain, err := NewModel(s, w, Hooks{})
	require.NoError(t, err)
	calls := 0
	counted, err := NewModel(s, w, Hooks{Product: func(w []half.BF16, x []float64) []float64 {
		calls++
		return MatVec(w, x)
	}})
	require.NoError(t, err)
	require.Equal(t, plain.Step(7), counted.Step(7))
	require.Equal(t, 7*s.Layers+1, calls)
}

// Tokens put into the cache count like tokens stepped.
func TestAppendedTokensAreAttendedTo(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	s := c
	w := Synthetic(s, 1)
	stepped, err := NewModel(s, w, Hooks{})
	require.NoError(t, err)
	appended, err := NewModel(s, w, Hooks{})
	require.NoError(t, err)
	tokens := synth.Tokens(1, 0, 6, c.Vocab)
	for _, id := range tokens[:5] {
		stepped.Step(id)
	}
	for l := range s.Layers {
		keys, values := stepped.Cache(l)
		for i := range keys {
			appended.Append(l, keys[i], values[i])
		}
	}
	require.Equal(t, 5, appended.Len())
	require.Equal(t, stepped.Step(tokens[5]), appended.Step(tokens[5]))
	require.Panics(t, func() { appended.Append(0, nil, nil) })
}
