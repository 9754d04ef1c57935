package reference

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/models/half"
	"github.com/stretchr/testify/require"
)

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

// bf packs values that bf16 holds exactly.
func bf(vs ...float64) []half.BF16 {
	out := make([]half.BF16, len(vs))
	for i, v := range vs {
		out[i] = half.ExactBF16(float32(v))
	}
	return out
}

func TestBF16RoundsToNearestEven(t *testing.T) {
	for _, c := range []struct{ in, want float64 }{
		{1, 1}, {1 + 1.0/256, 1}, {1 + 3.0/256, 1 + 4.0/256}, {1 + 1.0/256 + 1e-15, 1 + 2.0/256},
		{-1 - 3.0/256, -1 - 4.0/256},
		{0, 0}, {0x1.ffp0, 2}, {0x1.fep127, 0x1.fep127}, {0x1.fefp127, 0x1.fep127}, {0x1.ffp127, inf}, {-1e300, -inf},
		{0x1p-133, 0x1p-133}, {0x1p-134, 0}, {0x1.8p-133, 0x1p-132}, {0x1.ffp-127, 0x1p-126}, {0x1.01p-126, 0x1p-126},
		{inf, inf}, {-inf, -inf},
	} {
		require.Equal(t, c.want, RoundBF16(c.in), "%b", c.in)
	}
	require.True(t, math.IsNaN(RoundBF16(nan)))
	require.True(t, math.Signbit(RoundBF16(math.Copysign(0, -1))))
}

func TestBF16KeepsEveryPattern(t *testing.T) {
	for b := range 1 << 16 {
		if x := FromBF16(half.BF16(b)); x == x {
			require.Equal(t, half.BF16(b), ToBF16(x))
		}
	}
}

func TestEmbeddingTakesItsRow(t *testing.T) {
	require.Equal(t, []float64{3, -4}, Embedding(bf(1, 2, 3, -4), 2, 1))
	require.Panics(t, func() { Embedding(bf(1, 2), 2, 1) })
}

func TestRMSNormByHand(t *testing.T) {
	require.InDeltaSlice(t, []float64{3 / math.Sqrt(12.5), 8 / math.Sqrt(12.5)}, RMSNorm([]float64{3, 4}, bf(1, 2), 0),
		1e-15)
	require.InDeltaSlice(t, []float64{0.5, 4.0 / 6}, RMSNorm([]float64{3, 4}, bf(1, 1), 36-12.5), 1e-15)
	require.Panics(t, func() { RMSNorm([]float64{1}, bf(1, 1), 0) })
}

func TestMatVecIsRowMajor(t *testing.T) {
	require.Equal(t, []float64{8, 18, 28}, MatVec(bf(1, 2, 3, 4, 5, 6), []float64{2, 3}))
	require.Panics(t, func() { MatVec(bf(1, 2, 3), []float64{1, 1}) })
}

func TestSwiGLUByHand(t *testing.T) {
	got := SwiGLU([]float64{0, 1, -800, 800}, []float64{5, 2, 1, 3})
	require.InDeltaSlice(t, []float64{0, 2 / (1 + math.Exp(-1)), 0, 2400}, got, 1e-12)
}

func TestArgmaxTakesTheLowestOfEqual(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want int
	}{
		{nil, -1}, {[]float64{1, 3, 3, 2}, 1}, {[]float64{-inf, -inf}, 0}, {[]float64{nan, 1, nan, 2}, 3},
		{[]float64{nan, nan}, 0},
		{[]float64{2, inf, inf}, 1}, {[]float64{math.Copysign(0, -1), 0}, 0},
	} {
		require.Equal(t, c.want, Argmax(c.in), "%v", c.in)
	}
}

func TestRopeTurnsHalvesTogether(t *testing.T) {
	x := []float64{1, 2, 0, 0, 0, 0, 3, 4} // two heads of four
	got := Rope(x, 2, []float32{0.5, 0.25})
	c1, s1, c2, s2 := math.Cos(1), math.Sin(1), math.Cos(0.5), math.Sin(0.5)
	require.InDeltaSlice(t, []float64{c1, 2 * c2, s1, 2 * s2, -3 * s1, -4 * s2, 3 * c1, 4 * c2}, got, 1e-15)
	require.Equal(t, x, Rope(x, 0, []float32{0.5, 0.25}))
	require.Panics(t, func() { Rope(make([]float64, 6), 1, []float32{1, 1}) })
}

func TestRopeScoresDependOnDistanceOnly(t *testing.T) {
	freqs := []float32{1, 0.125}
	dot := func(a, b []float64) (sum float64) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	q, k := []float64{1, -2, 3, 0.5}, []float64{-1, 4, 2, 1}
	require.InDelta(t, dot(Rope(q, 7, freqs), Rope(k, 3, freqs)), dot(Rope(q, 104, freqs), Rope(k, 100, freqs)), 1e-12)
	require.Greater(t, math.Abs(dot(Rope(q, 7, freqs), Rope(k, 3, freqs))-dot(Rope(q, 8, freqs), Rope(k, 3, freqs))), 0.1)
}

func TestRopeAngleIsRoundedToFloat32(t *testing.T) {
	f, pos := float32(0.7498942), 131071
	angle := float64(float32(pos) * f)
	require.NotEqual(t, float64(pos)*float64(f), angle, "the case must need rounding")
	require.Equal(t, []float64{math.Cos(angle), math.Sin(angle)}, Rope([]float64{1, 0}, pos, []float32{f}))
}

func TestInvFreqScalesByBand(t *testing.T) {
	plain := InvFreq(10000, 32, nil)
	scaled := InvFreq(10000, 32, &Scaling{8, 1, 4, 64})
	require.Equal(t, float32(1), plain[0])
	for i, f := range plain {
		turns := 64 * float64(f) / (2 * math.Pi)
		switch {
		case turns > 4:
			require.Equal(t, f, scaled[i])
		case turns < 1:
			require.InEpsilon(t, f/8, scaled[i], 1e-7)
		default:
			require.Greater(t, scaled[i], f/8)
			require.Less(t, scaled[i], f)
		}
	}
	// 3 turns lie halfway between LowFreqFactor 1 and HighFreqFactor 5: the mean of 1/4 and 1.
	require.InEpsilon(t, 0.625, (&Scaling{4, 1, 5, 3000}).multiplier(1000), 1e-12)
}
