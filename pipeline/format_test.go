package pipeline_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

func bf16Of(x float64) half.BF16 { return half.ExactBF16(float32(x)) }

func ofBF16(v half.BF16) float64 { return float64(v.Float32()) }

// nearest is the e4m3 value nearest to x by search, the even code of two.
func nearest(x float64) byte {
	best := byte(0)
	for code := range byte(127) { // not NaN's
		a, b := math.Abs(float64(pipeline.FromE4M3(code))-math.Abs(x)), math.Abs(float64(pipeline.FromE4M3(best))-math.Abs(x))
		if a < b || a == b && code%2 == 0 {
			best = code
		}
	}
	if math.Signbit(x) {
		best |= 0x80
	}
	return best
}

func TestE4M3RoundsToTheNearest(t *testing.T) {
	for code := range 256 {
		x := float64(pipeline.FromE4M3(byte(code)))
		if code&0x7f == 0x7f {
			require.True(t, math.IsNaN(x))
			continue
		}
		require.Equal(t, byte(code), pipeline.ToE4M3(float32(x)))
		if code&0x7f == 0x7e {
			continue
		}
		middle := (x + float64(pipeline.FromE4M3(byte(code+1)))) / 2
		for _, y := range []float64{middle, math.Nextafter(middle, 0), middle * 1.001} {
			require.Equal(t, nearest(float64(float32(y))), pipeline.ToE4M3(float32(y)), "%g", y)
		}
	}
	for _, x := range []float32{448, 464, 1e9, math.MaxFloat32} {
		require.Equal(t, []byte{0x7e, 0xfe}, []byte{pipeline.ToE4M3(x), pipeline.ToE4M3(-x)})
	}
}

// What is not finite stays so, and does not move the others of its row.
func TestInfinitiesAreNotRounded(t *testing.T) {
	row := []half.BF16{bf16Of(math.Inf(1)), bf16Of(3), bf16Of(math.NaN()), bf16Of(-1)}
	pipeline.FormatE4M3.RoundRow(row)
	require.True(t, math.IsNaN(ofBF16(row[0])) && math.IsNaN(ofBF16(row[2])))
	require.Equal(t, []half.BF16{bf16Of(3), bf16Of(-1)}, []half.BF16{row[1], row[3]})
}

// The scale is the least power of two that keeps the largest in range.
func TestTheScaleOfARow(t *testing.T) {
	require.EqualValues(t, 1, pipeline.E4M3Scale(0))
	for _, most := range []float32{1e-20, 0.001, 1, 447, 448, 448.1, 895, 896, 897, 3e30} {
		s := pipeline.E4M3Scale(most)
		frac, _ := math.Frexp(float64(s))
		require.Equal(t, 0.5, frac, "%g is a power of two", s)
		require.LessOrEqual(t, float64(most), 448*float64(s))
		require.Greater(t, float64(most), 224*float64(s))
	}
}

// A row's values move by a sixteenth at most, or by half the least step of its scale, and
// rounding again changes nothing.
func TestRoundedRows(t *testing.T) {
	for seed := range uint64(50) {
		row := random(96, seed)
		for i := range row { // of all sizes, no NaN
			row[i] = bf16Of(math.Ldexp(float64(row[i])/65536-0.5, int(row[i]%23)-10))
		}
		most := 0.0
		for _, v := range row {
			most = max(most, math.Abs(ofBF16(v)))
		}
		scale := float64(pipeline.E4M3Scale(float32(most)))
		was := append([]half.BF16(nil), row...)
		pipeline.FormatE4M3.RoundRow(row)
		for i, v := range row {
			require.InDelta(t, ofBF16(was[i]), ofBF16(v), max(math.Abs(ofBF16(was[i]))/16, scale*0x1p-10))
		}
		again := append([]half.BF16(nil), row...)
		pipeline.FormatE4M3.RoundRow(again)
		require.Equal(t, row, again)
		pipeline.FormatBF16.RoundRow(was)
		pipeline.Format("").RoundRow(was)
	}
}

// What torch makes of the same rows: `python tests/gpu/formats.py golden`. Zero points change no rounded weight.
func TestRowsRoundAsInTorch(t *testing.T) {
	data, err := os.ReadFile("testdata/formats.json")
	require.NoError(t, err)
	var rows map[pipeline.Format][][]half.BF16
	require.NoError(t, json.Unmarshal(data, &rows))
	require.Greater(t, len(rows[pipeline.FormatBF16]), 5)
	for _, f := range append(pipeline.Formats(), pipeline.OwnFormats()...) {
		want := rows[pipeline.Format(strings.Replace(string(f), "-zeros", "", 1))]
		require.Len(t, want, len(rows[pipeline.FormatBF16]), f)
		for i, row := range rows[pipeline.FormatBF16] {
			got := slices.Clone(row)
			f.RoundRow(got)
			require.Equal(t, want[i], got, f)
		}
	}
}

// What torch makes of a matrix of several blocks: `python tests/gpu/formats.py blocks`.
func TestBlocksRoundAsInTorch(t *testing.T) {
	want, err := os.ReadFile("testdata/e4m3b128.sha256")
	require.NoError(t, err)
	var w []half.BF16
	for i := range 300 {
		for j := range 200 {
			x := math.Ldexp(float64((i*7919+j*10473)%4093-2046), -(i % 37))
			bits := math.Float32bits(float32(x)) // of 12 digits: exact
			w = append(w, half.BF16((bits+0x7fff+bits>>16&1)>>16))
		}
	}
	pipeline.FormatE4M3B128.RoundRows(w, 200)
	hash := sha256.New()
	require.NoError(t, binary.Write(hash, binary.LittleEndian, w))
	require.Equal(t, strings.TrimSpace(string(want)), hex.EncodeToString(hash.Sum(nil)))
}

// Two blocks lie side by side, their scales behind them; what is packed comes back as it was rounded, and a tile whose
// even rows, or odd ones, have more than one scale is refused.
func TestE4M3WithBlocksIsPacked(t *testing.T) {
	r := pipeline.Request{SMs: 3, Layers: 2, SharedLimit: 65536, StageBytes: 4352,
		Layer: []pipeline.Matrix{{Name: "a", Rows: 132, K: 840, Format: pipeline.FormatE4M3B128},
			{Name: "b", Rows: 16, K: 64}}}
	p, err := pipeline.New(r)
	require.NoError(t, err)
	m := &p.Layer[0]
	require.Equal(t, []int{1024, 512, 2, 512}, []int{m.KPadded, m.ChunkK, m.ChunksPerTile, m.TailK})
	require.Equal(t, int64(4*(2048+16)), m.TileBytes())
	require.Equal(t, int64(132*840+2*7*4), m.WeightBytes())
	data := random(132*840, 1)
	for i := range data {
		data[i] &= 0xbfff // no NaN
	}
	pipeline.FormatE4M3B128.RoundRows(data, 840)
	image, got := make([]byte, p.LayerBytes), make([]half.BF16, len(data))
	require.NoError(t, p.Pack(image, 0, 0, pipeline.Permuted(data, 840, nil)))
	require.NoError(t, p.Unpack(got, image, 0, 0))
	require.Equal(t, data, got)
	seen := map[int]bool{}
	for row := range 8 {
		for k := range m.KPadded {
			code, scale := pipeline.E4M3BlockOffset(row, k)
			seen[code] = true
			for i := range 4 {
				seen[scale+i] = true
			}
		}
	}
	require.Len(t, seen, int(m.TileBytes()), "each byte of a tile is one element's, or a scale's")
	var rows [pipeline.TileRows]*pipeline.Int4Row
	for i := range rows {
		rows[i] = &pipeline.Int4Row{Codes: make([]int8, 840), Scales: []float32{1, 2, 3, 4, 5, 6, 7}}
	}
	require.NoError(t, m.PackCoded(image[:m.TileBytes()], &rows))
	rows[6].Scales = []float32{1, 2, 3, 4, 5.5, 6, 7}
	require.EqualError(t, m.PackCoded(image[:m.TileBytes()], &rows),
		`pipeline: "a": rows 0 and 6 of a tile have scales 5 and 5.5 for columns from 512 on, want one: in e4m3b128 every other row of a tile has to be of one block`)
	rows[6].Scales = rows[6].Scales[1:]
	require.EqualError(t, m.PackCoded(image[:m.TileBytes()], &rows),
		`pipeline: row 6 of a tile of "a" has 840 codes and 6 scales, want 840 and 7`)
}

// A plan of e4m3 beside bf16: what is packed comes back as it was rounded.
func TestE4M3IsPacked(t *testing.T) {
	r := pipeline.Request{SMs: 3, Layers: 2, SharedLimit: 65536, StageBytes: 1024,
		Layer: []pipeline.Matrix{{Name: "a", Rows: 43, K: 160, Format: pipeline.FormatE4M3}, {Name: "b", Rows: 16, K: 64}}}
	p, err := pipeline.New(r)
	require.NoError(t, err)
	m := &p.Layer[0]
	require.Equal(t, []int{192, 128, 2, 64}, []int{m.KPadded, m.ChunkK, m.ChunksPerTile, m.TailK})
	require.Equal(t, int64(3*512+512), m.TileBytes())
	require.Equal(t, int64(43*160+43*4), m.WeightBytes())
	require.Equal(t, p.StreamedBytes(), 2*(int64(m.Tiles)*3*512+p.Layer[1].Bytes()))
	data := random(43*160, 1)
	for i := range data {
		data[i] &= 0xbfff // no NaN
	}
	image := make([]byte, p.LayerBytes)
	require.NoError(t, p.Pack(image, 0, 0, pipeline.Permuted(data, 160, nil)))
	got := make([]half.BF16, len(data))
	require.NoError(t, p.Unpack(got, image, 0, 0))
	for row := range 43 {
		pipeline.FormatE4M3.RoundRow(data[row*160:][:160])
	}
	require.Equal(t, data, got)
	seen := map[int]bool{}
	for row := range 8 {
		for k := range 192 {
			seen[pipeline.E4M3Offset(row, k)] = true
		}
	}
	require.Len(t, seen, 3*512, "each byte of a tile is one element's")
}

// A stage that the planner chooses has room for a run, however small the model is.
func TestARunFitsIntoAChosenStage(t *testing.T) {
	for _, f := range append(pipeline.Formats(), pipeline.OwnFormats()...) {
		p, err := pipeline.New(pipeline.Request{SMs: 4, Layers: 1, SharedLimit: 65536,
			Layer: []pipeline.Matrix{{Name: "a", Rows: 64, K: 512, Format: f}}})
		require.NoError(t, err)
		require.LessOrEqual(t, p.Layer[0].ChunkBytes(0), p.StageBytes, f)
	}
}

func TestFormatsThatCannotBe(t *testing.T) {
	r := pipeline.Request{SMs: 1, Layers: 1, SharedLimit: 65536}
	for want, ms := range map[string][]pipeline.Matrix{
		`Format is "e5m2", want one of`: {{Name: "a", Rows: 8, K: 64, Format: "e5m2"}},
		`want bf16 or rows`: {{Name: "a", Rows: 128, K: 64},
			{Name: "b", Rows: 8, K: 64, From: "a", Format: pipeline.FormatE4M3}},
	} {
		r.Layer = ms
		_, err := pipeline.New(r)
		require.ErrorContains(t, err, want)
	}
}
