package checkpoint

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// put writes the element of that index of a tensor in F32 or BF16.
func (t *Tensor) put(index int, x float32) {
	if t.DType == models.F32 {
		binary.LittleEndian.PutUint32(t.Data[4*index:], math.Float32bits(x))
		return
	}
	bitsOf(x).Put(t.Data[2*index:])
}

func TestNotFiniteWeightsAreNamedWithTheirPositions(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, dtype := range []models.DType{models.BF16, models.F32} {
		list := full(t, "single_bf16", dtype)
		find(t, list, upName).put(5*16+7, nan)
		find(t, list, upName).put(23*16+15, inf)
		find(t, list, "model.norm.weight").put(15, inf)
		find(t, list, embedName).put(0, inf)
		c := open(t, single(t, "single_bf16", list))
		require.EqualError(t, c.Check(t.Context(), nil),
			`model.safetensors: model.embed_tokens.weight: found -Inf at [0, 0], want finite weights
model.safetensors: model.layers.1.mlp.up_proj.weight: found NaN at [5, 7], want finite weights; the first of 2 such elements
model.safetensors: model.norm.weight: found -Inf at [15], want finite weights`)
	}
}

func TestFiniteNumbersThatRoundToInfinityAreNamed(t *testing.T) {
	list := full(t, "single_bf16", models.F32)
	largest := math.Float32frombits(0x7f7f7fff) // rounds down to the largest bf16
	find(t, list, upName).put(9, -largest)
	require.NoError(t, open(t, single(t, "single_bf16", list)).Check(t.Context(), nil))
	find(t, list, upName).put(9, math.Float32frombits(0xff7f8000))
	require.EqualError(t, open(t, single(t, "single_bf16", list)).Check(t.Context(), nil),
		"model.safetensors: model.layers.1.mlp.up_proj.weight: found -3.39617753e+38 at [0, 9], want finite weights below 3.3961775e38, which bf16 can hold")
}

// TestScanFindsEveryBitPattern compares the scan of 8 bytes with single elements,
// for every 16-bit pattern in each of the four places.
func TestScanFindsEveryBitPattern(t *testing.T) {
	for _, from := range []models.DType{models.BF16, models.F16, models.F32} {
		size := from.Bytes()
		mask, carry, sign := lanes(from)
		for pattern := range 1 << 16 {
			for place := 0; place < 8/size; place++ {
				for _, rest := range []uint64{0, math.MaxUint64} { // the other elements: zeros, or the largest finite number
					x, element := fill(rest, from), uint64(pattern)<<(8*size-16)
					shift := 8 * size * place
					x = x&^((1<<(8*size)-1)<<shift) | element<<shift
					bad := notFinite(element, from)
					if got := (x&mask+carry)&sign != 0; got != bad {
						require.Equal(t, bad, got, "%s %016x", from, x)
					}
				}
			}
		}
	}
}

// fill repeats zero, or the largest finite number that stays finite as bf16.
func fill(rest uint64, from models.DType) uint64 {
	if rest == 0 {
		return 0
	}
	return map[models.DType]uint64{models.BF16: 0xff7fff7fff7fff7f, models.F16: 0xfbfffbfffbfffbff,
		models.F32: 0xff7f7fffff7f7fff}[from]
}

func notFinite(element uint64, from models.DType) bool {
	switch from {
	case models.F16:
		return element>>10&31 == 31
	case models.F32:
		return nearest(math.Abs(clamp(float64(math.Float32frombits(uint32(element)))))) == 0x7f80
	}
	return element>>7&255 == 255
}

// clamp makes a NaN an infinity, and an infinity 2^128.
func clamp(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0x1p128
	}
	return x
}

func TestScanReachesElementsBeyondTheLastEightBytes(t *testing.T) {
	data := BF16Bytes([]half.BF16{0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x7f80, 0xffff})
	b := block{t: &tensor{file: &file{data: data}, from: models.BF16}, end: int64(len(data))}
	require.NoError(t, b.scan())
	require.Equal(t, []int64{2, 5}, []int64{b.bad, b.first})
	require.Equal(t, math.Inf(1), b.value)
}

func TestCheckOfManyBlocksCountsThemAll(t *testing.T) {
	dir := big(t, models.F32, 400)
	c := open(t, dir)
	require.Greater(t, c.tensors["model.layers.0.mlp.up_proj.weight"].end-
		c.tensors["model.layers.0.mlp.up_proj.weight"].begin, int64(40*checkBlock))
	poke(t, c, dir, "model.layers.0.mlp.up_proj.weight", 4096*14335+4095)
	poke(t, c, dir, "model.layers.0.mlp.up_proj.weight", 4096*7000+1)
	var calls, last int64
	var busy sync.Mutex
	err := c.Check(t.Context(), func(done, total int64) {
		require.True(t, busy.TryLock())
		defer busy.Unlock()
		require.Greater(t, done, last)
		require.Equal(t, c.Bytes(), total)
		calls, last = calls+1, done
	})
	require.Equal(t, c.Bytes(), last)
	require.Greater(t, calls, int64(100))
	require.EqualError(t, err,
		"model.safetensors: model.layers.0.mlp.up_proj.weight: found NaN at [7000, 1], want finite weights; the first of 2 such elements")
}

func TestCheckEndsWithItsContext(t *testing.T) {
	c := open(t, big(t, models.BF16, 400))
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := c.Check(ctx, func(int64, int64) { calls++; cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, calls, 30)
	require.ErrorIs(t, c.Check(ctx, nil), context.Canceled)
}
