package prefill_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/prefill"
	"github.com/stretchr/testify/require"
)

// Every weight is its code, less the zero point, times the scale, rounded to bf16: whatever the format, with rows and
// columns that pad the tiles, of the layer that is asked for.
func TestDequantizeWritesCodesTimesScales(t *testing.T) {
	formats := slices.Concat(pipeline.Formats()[1:], pipeline.OwnFormats())
	shapes := [][2]int{{12, 384}, {20, 1024}}
	for i, format := range formats {
		for j, shape := range shapes {
			if !deep.On() && (i+j)%2 == 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s %d×%d", format, shape[0], shape[1]),
				func(t *testing.T) { dequantizes(t, format, shape[0], shape[1]) })
		}
	}
}

func dequantizes(t *testing.T, format pipeline.Format, rows, columns int) {
	const layers, layer = 2, 1
	plan, err := pipeline.New(pipeline.Request{SMs: 2, Layers: layers, SharedLimit: 131072, Layer: []pipeline.Matrix{
		{Name: "other", Rows: 8, K: 128, Format: format}, {Name: "w", Rows: rows, K: columns, Format: format}}})
	require.NoError(t, err)
	m, image := &plan.Layer[1], plan.InBF16()
	packed := make([]byte, plan.PackedBytes)
	want := randomCodes(t, m, packed[layer*plan.LayerBytes+m.Start:])

	k := dsl.New("dequantize", dsl.Options{Warps: 2, Grid: 2, SharedLimit: 1024})
	e := grid.NewEnv(k, 2, 2, dsl.Shared[dsl.F32](k, "scratch", 2))
	d := &prefill.Dequantize{M: m, Plan: plan, To: &image.Layer[1],
		Weights: dsl.Global[dsl.B128](k, "w", plan.PackedBytes/16, dsl.ReadOnly()),
		Dst:     dsl.Global[dsl.BF16](k, "to", image.LayerBytes/2)}
	d.Emit(e, dsl.Scalar[dsl.U32](k, "layer", ""))
	kernel, err := k.Finish()
	require.NoError(t, err)
	program, err := interp.Load(kernel)
	require.NoError(t, err)
	mem := interp.NewMemory()
	mem.Bind("w", packed)
	mem.Bind("to", make([]byte, image.LayerBytes))
	_, err = program.Run(mem, interp.Options{Seed: 1, Params: map[string]uint64{"layer": layer}})
	require.NoError(t, err)
	got := make([]half.BF16, rows*columns)
	require.NoError(t, image.Unpack(got, mem.Bytes("to"), 0, 1))
	for i, x := range want {
		if x != got[i] {
			require.Equal(t, x, got[i], "row %d, column %d: %g", i/columns, i%columns, rig.FromBF16(x))
		}
	}
	require.Zero(t, slices.Max(mem.Bytes("to")[:image.Layer[1].Start]), "the matrix before")
}

// randomCodes packs random codes, scales and zero points of all that the format has, and returns what they mean.
func randomCodes(t *testing.T, m *pipeline.MatrixPlan, dst []byte) (want []half.BF16) {
	rng := rig.Rand(uint64(m.K))
	shape, integers := m.Format.Int4(m.K)
	group := m.K
	if shape.Group != i4.Whole {
		group = shape.Group
	}
	if m.Format.Blocks() {
		group = pipeline.BlockSize
	}
	least, most, zero := shape.Range()
	for tile := range m.Tiles {
		var of [pipeline.TileRows]*pipeline.Int4Row
		for r := range min(pipeline.TileRows, m.Rows-tile*pipeline.TileRows) {
			row := &pipeline.Int4Row{}
			for range (m.K + group - 1) / group {
				scale := float32(rng.NormFloat64()) // as f32, or as the 16 bits of the format
				if shape.Group != i4.Whole {
					scale = math.Float32frombits(math.Float32bits(scale)&^0xffff | 1<<16)
				}
				switch {
				case shape.Exponents():
					scale = math.Float32frombits(math.Float32bits(scale) & 0x7f800000)
				case m.Format == pipeline.FormatNVFP4:
					scale = pipeline.FromE4M3(pipeline.ToE4M3(scale))
				}
				row.Scales = append(row.Scales, scale)
				row.Zeros = append(row.Zeros, int8(rng.IntN(2*zero)-zero))
			}
			if m.Format.Blocks() && r > 1 { // every other row is of one block
				row.Scales = of[r-2].Scales
			}
			factor := float32(1)
			if m.Format == pipeline.FormatNVFP4 {
				factor = float32(tile*8+r+3) / 7
				factor = math.Float32frombits(math.Float32bits(factor) &^ 0xffff) // so that float32 has all digits of a weight
			}
			for c := range m.K {
				g := c / group
				code := int8(int(least) + rng.IntN(int(most)-int(least)+1))
				value := float64(shape.Halves(code)) / 2
				if !integers {
					if code = int8(rng.IntN(256)); code&0x7f == 0x7f {
						code--
					}
					value = float64(pipeline.FromE4M3(byte(code)))
				}
				if shape.Zeros {
					value -= float64(row.Zeros[g])
				}
				row.Codes = append(row.Codes, code)
				want = append(want, rig.ToBF16(value*float64(row.Scales[g])*float64(factor)))
			}
			if m.Format == pipeline.FormatNVFP4 {
				row.Scales = append(row.Scales, factor)
			}
			of[r] = row
		}
		size := int(m.TileBytes())
		require.NoError(t, m.PackCoded(dst[tile*size:][:size], &of))
	}
	return want
}
