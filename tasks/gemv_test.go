package tasks_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// product is y = W·x in a kernel of its own.
type product struct {
	rows, k                 int
	sms, consumers          int
	stage, stages, inFlight int
	held                    int // chunks held in registers before the input is staged
	format                  pipeline.Format
}

func (c product) String() string {
	if c.format != "" {
		return fmt.Sprintf("%s of %s", c.bf16(), c.format)
	}
	return fmt.Sprintf("%dx%d on %d SMs, %d warps, ring %d of %d, %d in flight", c.rows, c.k, c.sms, c.consumers, c.stages, c.stage, c.inFlight)
}

func (c product) bf16() product { c.format = ""; return c }

// rounded are the weights as the format has them.
func (c product) rounded(w []uint16) []uint16 {
	w = slices.Clone(w)
	for row := range c.rows {
		c.format.RoundRow(w[row*c.k:][:c.k])
	}
	return w
}

// input is a random input whose elements a product of the format takes as they are: e4m3's none
// below 2⁻¹⁰, where f16 of a sixteenth has fewer digits than bf16.
func (c product) input(rng *rand.Rand) []uint16 {
	x := normals(rng, c.k, 1)
	for i, v := range wide(x) {
		if c.format == pipeline.FormatE4M3 && math.Abs(v) < 0x1p-10 {
			x[i] = 0
		}
	}
	return x
}

// asInput is x, of bf16, in the type of a product's input of a format: what tasks.InputValue undoes.
func asInput(t testing.TB, f pipeline.Format, x []uint16) []uint16 {
	if f != pipeline.FormatE4M3 {
		return x
	}
	out := make([]uint16, len(x))
	for i, v := range wide(x) {
		if math.IsNaN(v) {
			out[i] = 0x7e00
			continue
		}
		bits := math.Float64bits(v / 16) // f16 has exponents of bias 15 and 10 bits of mantissa
		if v != 0 {
			out[i] = uint16(bits>>63)<<15 | uint16(int(bits>>52&2047)-1023+15)<<10 | uint16(bits>>42&1023)
		}
		require.Equal(t, v, tasks.InputValue(f, out[i]))
	}
	return out
}

// gemvRig multiplies one matrix (bf16, rows·k) with x and stores all rows.
func gemvRig(t testing.TB, c product, w, x []uint16) *rig {
	r := newRig(t, setup{sms: c.sms, consumers: c.consumers, stage: c.stage, stages: c.stages, inFlight: c.inFlight,
		matrices: []pipeline.Matrix{{Name: "w", Rows: c.rows, K: c.k, Format: c.format}}})
	m := &r.plan.Layer[0]
	packed := make([]byte, r.plan.PackedBytes)
	require.NoError(t, r.plan.Pack(packed, 0, 0, pipeline.Permuted(w, c.k, nil)))
	weights := in[dsl.B128](r, "w", packed, len(packed)/16)
	xIn := in[dsl.BF16](r, "x", bf16Bytes(asInput(t, c.format, x)), len(x))
	y := out[dsl.F32](r, "y", (c.rows+1)/2*2)
	g := &tasks.GEMV{Name: "w", M: m,
		X:    dsl.Shared[dsl.BF16](r.k, "input", m.KPadded, dsl.Align(16)),
		Part: tasks.Partials{Buf: dsl.Shared[dsl.F32](r.k, "partials", tasks.PartialsLen(c.consumers), dsl.Align(16))}}
	g.Scales = tasks.RowScales(r.k, m, weights, r.from(0))
	if c.held > 0 {
		g.Held = &tasks.Held{Chunks: c.held}
	}
	r.body(func(cons *pipeline.Consumer) {
		g.Held.Start(r.e, r.ring)
		g.Hold(r.e, cons, r.ring, r.share(0))
		plain := tasks.PlainInput{N: c.k, X: xIn, Dst: g.X, Format: c.format}
		plain.Emit(r.e)
		g.Consume(r.e, cons, r.ring, r.share(0), func(row dsl.Val[dsl.U32], y0, y1 dsl.Val[dsl.F32]) {
			y.StoreN(row, []dsl.Val[dsl.F32]{y0, y1})
		})
	}, func(p *pipeline.Producer) { g.Produce(r.e, p, r.share(0), weights, r.from(0)) })
	return r
}

// gemvTolerance: products of bf16 are exact in f32, so only the sums round, in
// at most K/16 + a few steps of at most 2⁻²⁴ of the partial sum each. 2⁻²⁰ of
// Σ|w·x| is above that for K up to 256 in the worst case and far above for
// random signs.
func gemvTolerance(w []uint16, x []float64) []float64 {
	abs := make([]uint16, len(w))
	for i, b := range w {
		abs[i] = b &^ 0x8000
	}
	ax := make([]float64, len(x))
	for i, v := range x {
		ax[i] = math.Abs(v)
	}
	return scaled(reference.MatVec(abs, ax), 0x1p-20, 0)
}

func TestGEMV(t *testing.T) {
	for _, c := range []product{
		{rows: 8, k: 32, sms: 1, consumers: 1},
		{rows: 8, k: 40, sms: 1, consumers: 2},                          // k padded to 64
		{rows: 16, k: 96, sms: 1, consumers: 2},                         // 3 groups over 2 warps
		{rows: 24, k: 352, sms: 3, consumers: 4},                        // 11 groups over 4 warps
		{rows: 40, k: 1056, sms: 2, consumers: 8, stage: 2048},          // 33 groups: 8 chunks of 4 and a tail of 1
		{rows: 40, k: 1056, sms: 3, consumers: 4, stage: 2048 + 512},    // chunks of 5, tail 3
		{rows: 16, k: 1056, sms: 1, consumers: 2, stage: 512},           // a group a chunk
		{rows: 16, k: 1056, sms: 1, consumers: 8, stage: 17408},         // the whole tile in a stage
		{rows: 13, k: 64, sms: 1, consumers: 2},                         // rows not a multiple of 8, odd
		{rows: 50, k: 64, sms: 3, consumers: 2},                         // nor over several SMs
		{rows: 16, k: 64, sms: 5, consumers: 2},                         // 3 SMs without a tile
		{rows: 8, k: 64, sms: 3, consumers: 1},                          // 2 SMs without a tile
		{rows: 280, k: 32, sms: 1, consumers: 4},                        // 35 tiles: 3 batches
		{rows: 128, k: 32, sms: 1, consumers: 2},                        // exactly one batch
		{rows: 136, k: 32, sms: 1, consumers: 1},                        // one more
		{rows: 416, k: 96, sms: 3, consumers: 8, stage: 1024},           // 17 or 18 tiles an SM
		{rows: 64, k: 96, sms: 1, consumers: 2, stages: 1, inFlight: 1}, // one stage: no overlap
		{rows: 64, k: 352, sms: 1, consumers: 2, stages: 3, inFlight: 1, stage: 1024},
		{rows: 64, k: 352, sms: 1, consumers: 2, stages: 2, inFlight: 2, stage: 1024},
		{rows: 64, k: 352, sms: 1, consumers: 3, stages: 7, inFlight: 4, stage: 1024},
	} {
		t.Run(c.String(), c.check)
	}
}

// Of 8 bits a tile group has 64 columns, and a thread multiplies two k groups of each.
func TestGEMVOfE4M3(t *testing.T) {
	for _, c := range []product{
		{rows: 8, k: 64, sms: 1, consumers: 1},
		{rows: 16, k: 192, sms: 1, consumers: 2},                       // 3 groups over 2 warps
		{rows: 40, k: 2112, sms: 2, consumers: 8, stage: 2048},         // 33 groups: 8 chunks of 4 and a tail of 1
		{rows: 13, k: 128, sms: 1, consumers: 2},                       // rows not a multiple of 8, odd; pairs loaded late
		{rows: 416, k: 192, sms: 3, consumers: 8, stage: 1024},         // 17 or 18 tiles an SM
		{rows: 64, k: 704, sms: 1, consumers: 8, stage: 1024, held: 3}, // chunks held
	} {
		c.format = pipeline.FormatE4M3
		t.Run(c.String(), c.check)
	}
}

// Where one warp has all columns the order of the sums is that of bf16, and the results are the same
// bits as of the weights that the codes stand for: zeros, numbers of all sizes, and subnormals.
func TestE4M3ProductsAreThoseOfWhatTheCodesStandFor(t *testing.T) {
	c := product{rows: 24, k: 320, sms: 1, consumers: 1, format: pipeline.FormatE4M3}
	rng := newRand(7)
	w, x := normals(rng, c.rows*c.k, 1), c.input(rng)
	clear(w[:c.k])       // a row of zeros
	for i := range c.k { // of powers of two, most of them subnormal
		w[c.k+i] = uint16(127+8-i%20) << 7
	}
	for i := range 256 { // of all codes, largest first
		w[2*c.k+i] = uint16(math.Float32bits(pipeline.FromE4M3(byte(i))) >> 16)
		if i&0x7f == 0x7f {
			w[2*c.k+i] = 0
		}
	}
	require.Equal(t, w[2*c.k:][:256], c.rounded(w)[2*c.k:][:256])
	got, want := gemvRig(t, c, w, x).run()["y"], gemvRig(t, c.bf16(), c.rounded(w), x).run()["y"]
	require.Equal(t, f32s(want), f32s(got))
}

func (c product) check(t *testing.T) {
	rng := newRand(uint64(c.rows*c.k + c.sms))
	w, x := normals(rng, c.rows*c.k, 1), c.input(rng)
	got := f32s(gemvRig(t, c, w, x).run()["y"])
	w = c.rounded(w)
	near(t, reference.MatVec(w, wide(x)), got[:c.rows], gemvTolerance(w, wide(x)), "%s", c)
	for _, v := range got[c.rows:] {
		require.Zero(t, v, "the row beyond an odd number is padding")
	}
}

func TestGEMVOfRandomShapes(t *testing.T) {
	rng := newRand(2027)
	cases := 30
	if !deep.On() {
		cases = 6
	}
	for range cases {
		c := product{rows: 1 + rng.IntN(200), k: 8 * (1 + rng.IntN(60)), sms: 1 + rng.IntN(6), consumers: 1 + rng.IntN(8),
			stage: 512 + 128*rng.IntN(20), stages: 1 + rng.IntN(6)}
		c.inFlight = 1 + rng.IntN(c.stages)
		t.Run(c.String(), c.check)
	}
}

// A NaN in one row must stay in that row, and one in the input reach all rows.
func TestGEMVOfNaN(t *testing.T) {
	c := product{rows: 16, k: 64, sms: 1, consumers: 2}
	rng := newRand(3)
	w, x := normals(rng, c.rows*c.k, 1), normals(rng, c.k, 1)
	w[5*64+7] = 0x7fc0
	for row, v := range f32s(gemvRig(t, c, w, x).run()["y"]) {
		require.Equal(t, row == 5, math.IsNaN(v), "row %d", row)
	}
	x[63] = 0x7fc0
	for row, v := range f32s(gemvRig(t, c, w, x).run()["y"]) {
		require.True(t, math.IsNaN(v), "row %d", row)
	}
}
