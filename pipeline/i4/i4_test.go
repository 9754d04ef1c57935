package i4_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/stretchr/testify/require"
)

func shapes() (all []i4.Shape) {
	for _, group := range []int{32, 64, 128, i4.Whole} {
		for _, run := range []int{1, 2, 4, 8} {
			for _, wide := range []bool{false, true} {
				if all = append(all, i4.Shape{Group: group, Run: run, Wide: wide}); group != i4.Whole {
					all = append(all, i4.Shape{Group: group, Run: run, Zeros: true, Wide: wide})
				}
			}
			all = append(all, i4.Shape{Group: group, Run: run, E2M1: true})
		}
	}
	for _, run := range []int{1, 2, 4, 8} {
		all = append(all, i4.Shape{Group: 16, Run: run, E2M1: true})
	}
	return all
}

func random(s i4.Shape, rng *rand.Rand) *i4.Run {
	run := &i4.Run{}
	_, _, half := s.Range()
	for row := range i4.Rows {
		for range s.Run * i4.Columns {
			run.Codes[row] = append(run.Codes[row], int8(rng.IntN(2*half)-half))
		}
		for range s.RowEntries() {
			run.Scales[row] = append(run.Scales[row], uint16(rng.Uint32())>>(16-8*min(s.EntryBytes(), 2)))
			if s.Zeros {
				run.Zeros[row] = append(run.Zeros[row], int8(min(rng.IntN(2*half+1)-half, 127)))
			}
		}
	}
	return run
}

func TestUnpackIsWhatWasPacked(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range shapes() {
		require.Empty(t, s.Problem(), "%+v", s)
		run, dst := random(s, rng), make([]byte, s.RunBytes())
		require.NoError(t, s.Pack(dst, run), "%+v", s)
		require.Equal(t, run, s.Unpack(dst), "%+v", s)
	}
}

// Every nibble and every byte behind them is one weight's or one entry's: no two share a place.
func TestEveryPlaceIsOneWeights(t *testing.T) {
	for _, s := range shapes() {
		taken := make([]int, 2*s.RunBytes()) // nibbles
		for row := range i4.Rows {
			for c := range s.Run * i4.Columns {
				at, high := s.Code(row, c)
				for n := range s.Bits() / 4 {
					if high {
						n++
					}
					taken[2*at+n]++
				}
			}
			for g := range s.RowEntries() {
				for n := range 2 * s.EntryBytes() {
					taken[2*s.Entry(row, g)+n]++
				}
			}
		}
		require.Equal(t, slices.Repeat([]int{1}, len(taken)), taken, "%+v, nibbles", s)
	}
}

// The layout is a format of files on disk to be: these places are fixed.
func TestLayoutIsThis(t *testing.T) {
	for _, c := range []struct {
		group, row, column int
		at                 int
		high               bool
	}{
		{128, 0, 0, 0, false}, {128, 0, 3, 3, false}, {128, 0, 4, 16, false}, {128, 0, 16, 4, false},
		{128, 0, 63, 63, false}, {128, 0, 64, 0, true}, {128, 3, 127, 3*64 + 63, true},
		{128, 7, 128 + 64 + 21, 512 + 7*64 + 16 + 4 + 1, true},
	} {
		at, high := i4.Shape{Group: c.group, Run: 8}.Code(c.row, c.column)
		require.Equal(t, c.at, at, "%+v", c)
		require.Equal(t, c.high, high, "%+v", c)
	}
	for _, c := range []struct{ group, row, g, at int }{ // of runs of 4 blocks, which have 2048 bytes of codes
		{128, 0, 0, 2048}, {128, 0, 3, 2054}, {128, 1, 0, 2056},
		{64, 0, 1, 2048 + 8}, {64, 0, 2, 2048 + 2}, {64, 1, 0, 2048 + 16},
		{32, 0, 1, 2048 + 2}, {32, 0, 2, 2048 + 16}, {32, 0, 4, 2048 + 4}, {32, 1, 0, 2048 + 32},
	} {
		require.Equal(t, c.at, i4.Shape{Group: c.group, Run: 4}.Entry(c.row, c.g), "%+v", c)
	}
	for _, c := range []struct{ row, g, at int }{ // of runs of 4 blocks of E2M1, a byte a scale
		{0, 0, 2048}, {0, 3, 2051}, {0, 4, 2048 + 16}, {0, 8, 2048 + 4}, {1, 0, 2048 + 32}, {7, 31, 2048 + 7*32 + 31},
	} {
		require.Equal(t, c.at, i4.Shape{Group: 16, Run: 4, E2M1: true}.Entry(c.row, c.g), "%+v", c)
	}
	for _, c := range []struct{ row, g, at int }{
		{0, 0, 2048}, {0, 1, 2049}, {0, 2, 2048 + 8}, {0, 4, 2048 + 2}, {1, 0, 2048 + 16}, {7, 15, 2048 + 7*16 + 15},
	} {
		require.Equal(t, c.at, i4.Shape{Group: 32, Run: 4, E2M1: true}.Entry(c.row, c.g), "%+v", c)
	}
	for _, c := range []struct{ row, column, at int }{{0, 0, 0}, {0, 4, 16}, {0, 63, 63}, {0, 64, 512},
		{3, 127, 512 + 3*64 + 63}, {7, 128 + 21, 1024 + 7*64 + 16 + 4 + 1}} {
		at, high := i4.Shape{Group: i4.Whole, Run: 2, Wide: true}.Code(c.row, c.column)
		require.False(t, high)
		require.Equal(t, c.at, at, "%+v", c)
	}
	require.Equal(t, 8*1024+128, i4.Shape{Group: 128, Run: 8, Wide: true}.RunBytes())
	require.Equal(t, 8*512+128, i4.Shape{Group: 128, Run: 8}.RunBytes())
	require.Equal(t, 8*512+256, i4.Shape{Group: 128, Run: 8, Zeros: true}.RunBytes())
	require.Equal(t, 8*512, i4.Shape{Group: i4.Whole, Run: 8}.RunBytes())
	require.Equal(t, 8*512+8*32, i4.Shape{Group: 32, Run: 8, E2M1: true}.RunBytes())
}

func TestBeyondTheirRangesIsRefused(t *testing.T) {
	s := i4.Shape{Group: 128, Run: 1, Zeros: true}
	run, dst := random(s, rand.New(rand.NewPCG(3, 3))), make([]byte, s.RunBytes())
	run.Codes[2][5] = 8
	require.EqualError(t, s.Pack(dst, run), "code 8 in row 2, column 5, want −8 to 7")
	run.Codes[2][5], run.Zeros[3][0] = -8, 9
	require.EqualError(t, s.Pack(dst, run), "zero point 9 in row 3, group 0, want −8 to 8")
	require.Equal(t, "scale groups of 48 columns, want 32, 64, 128, or 0 for a whole row",
		i4.Shape{Group: 48, Run: 1}.Problem())
	require.Equal(t, "scale groups of 16 columns, want codes of E2M1 without zero points beside them",
		i4.Shape{Group: 16, Run: 1}.Problem())
	require.Equal(t, "zero points of whole rows, want scale groups", i4.Shape{Run: 1, Zeros: true}.Problem())
	require.Equal(t, "runs of 0 blocks, want 1 at least", i4.Shape{Group: 128}.Problem())
}

func FuzzUnpackAndPack(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, which uint8) {
		s := shapes()[int(which)%len(shapes())]
		run, dst := random(s, rand.New(rand.NewPCG(seed, 1))), make([]byte, s.RunBytes())
		require.NoError(t, s.Pack(dst, run))
		require.Equal(t, run, s.Unpack(dst))
	})
}

// The largest element decides: at most MaxFixed units, and of half as large a unit it would be more.
func TestFixedPointIsAsFineAsItCanBe(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for n := range 20000 {
		most := float32(math.Ldexp(1+rng.Float64(), rng.IntN(200)-100))
		if n%4 == 0 { // about where the unit changes
			most = math.Float32frombits(uint32(127+rng.IntN(9)-4)<<23 + 0x7efe00 + uint32(rng.IntN(5)) - 2)
		}
		x := []float32{most * float32(rng.Float64()*2-1), most, -most * float32(rng.Float64())}
		q, unit := i4.Fixed(x)
		for i := range x {
			if off := math.Abs(float64(x[i]) - float64(q[i])*float64(unit)); !(off <= float64(unit)/2) {
				require.LessOrEqual(t, off, float64(unit)/2, "%v", x)
			}
			if max(q[i], -q[i]) > i4.MaxFixed {
				require.LessOrEqual(t, max(q[i], -q[i]), int32(i4.MaxFixed), "%v", x)
			}
		}
		if !(2*float64(most) > float64(i4.MaxFixed)*float64(unit)) {
			require.Greater(t, 2*float64(most), float64(i4.MaxFixed)*float64(unit), "%v", x)
		}
	}
}

func TestFixedPointOfEdges(t *testing.T) {
	q, unit := i4.Fixed([]float32{0, 0})
	require.Equal(t, []int32{0, 0}, q)
	require.Positive(t, unit)
	for _, odd := range []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
		_, unit := i4.Fixed([]float32{1, odd})
		require.True(t, math.IsNaN(float64(unit)), "%v", odd)
	}
	q, _ = i4.Fixed([]float32{math.SmallestNonzeroFloat32, math.MaxFloat32})
	require.Equal(t, []int32{0, 16384}, q)
}

// A bf16 is exact as long as it is no less than 1/127 of the largest.
func TestFixedPointOfBF16(t *testing.T) {
	for most := range 256 {
		for bits := range 1 << 15 {
			x := math.Float32frombits(uint32(bits) << 16)
			top := math.Float32frombits(uint32(0x4000+most) << 16)
			if !(x <= top && x >= top/127) { // NaN, too
				continue
			}
			q, unit := i4.Fixed([]float32{x, top})
			if got := float64(q[0]) * float64(unit); got != float64(x) {
				require.Equal(t, float64(x), got, "%v of %v", x, top)
			}
		}
	}
}
