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
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/prefill"
	"github.com/stretchr/testify/require"
)

// The logits of one token of several are the codes times the scales times its vector in float64, whatever the format:
// with rows and columns that pad the tiles, and NaN in the other tokens' vectors.
func TestAPrefillHeadMultipliesCodesByOneToken(t *testing.T) {
	formats := slices.Concat(pipeline.Formats()[1:], pipeline.OwnFormats())
	for i, format := range formats {
		for j, shape := range [][2]int{{12, 96}, {36, 1024}} {
			if !deep.On() && (i+j)%2 == 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s %d×%d", format, shape[0], shape[1]), func(t *testing.T) {
				multipliesHead(t, format, shape[0], shape[1])
			})
		}
	}
}

func multipliesHead(t *testing.T, format pipeline.Format, rows, columns int) {
	const tokens, token = 16, 13
	plan, err := pipeline.New(pipeline.Request{SMs: 2, Layers: 1, SharedLimit: 131072,
		Layer: []pipeline.Matrix{{Name: "other", Rows: 8, K: 128}},
		Final: []pipeline.Matrix{{Name: "lm_head", Rows: rows, K: columns, Format: format}}})
	require.NoError(t, err)
	m, in := &plan.Final[0], prefill.Activations{K: columns, T: tokens}
	packed := make([]byte, plan.PackedBytes)
	weights := rig.Wide(randomCodes(t, m, packed[plan.Image(pipeline.FinalLayer)+m.Start:]))
	x, v := slices.Repeat([]half.BF16{0x7fc1}, in.Len()), rig.Normals(rig.Rand(uint64(rows)), columns, 1)
	for i, e := range v {
		x[in.Index(token, i)] = e
	}

	k := dsl.New("head", dsl.Options{Warps: 2, Grid: 2, SharedLimit: 1024})
	e := grid.NewEnv(k, 2, 2, dsl.Shared[dsl.F32](k, "scratch", 2))
	out := dsl.Global[dsl.F32](k, "logits", int64(rows+8))
	h := &prefill.Head{M: m, Plan: plan, Weights: dsl.Global[dsl.B128](k, "w", plan.PackedBytes/16, dsl.ReadOnly()),
		In: in, X: dsl.Global[dsl.BF16](k, "x", int64(in.Len()), dsl.ReadOnly(), dsl.Align(16))}
	h.Emit(e, dsl.Scalar[dsl.U32](k, "token", ""), func(row dsl.Val[dsl.U32], y0, y1 dsl.Val[dsl.F32]) {
		out.Store(row, y0)
		out.Store(row.AddC(1), y1)
	})
	kernel, err := k.Finish()
	require.NoError(t, err)
	program, err := interp.Load(kernel)
	require.NoError(t, err)
	mem := interp.NewMemory()
	mem.Bind("w", packed)
	mem.Bind("x", rig.BF16Bytes(x))
	mem.Bind("logits", make([]byte, 4*(rows+8)))
	_, err = program.Run(mem, interp.Options{Seed: 1, Params: map[string]uint64{"token": token}})
	require.NoError(t, err)
	got, vector := mem.Bytes("logits"), rig.Wide(v)
	for row := range rows {
		want, size := 0.0, 0.0
		for i, w := range weights[row*columns:][:columns] {
			product := w * vector[i]
			want, size = want+product, size+math.Abs(product)
		}
		have := math.Float32frombits(uint32(got[4*row]) | uint32(got[4*row+1])<<8 | uint32(got[4*row+2])<<16 |
			uint32(got[4*row+3])<<24)
		// the weights of want are rounded to bf16, once
		require.InDelta(t, want, have, size*0x1p-9+1e-30, "row %d", row)
	}
}
