package product_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// gemvCase is y = W·x in a kernel of its own.
type gemvCase struct {
	rows, k                 int
	sms, consumers          int
	stage, stages, inFlight int
	held                    int // chunks held in registers before the input is staged
	format                  pipeline.Format
	of                      pipeline.Format // of a GEMM: whose input there is, bf16 unless given
	wide                    int             // of a GEMM: pipeline.Request.BatchWide
	coded                   []*pipeline.Int4Row
	idle                    uint32 // what idle lanes read, 1 for zeros; 0: copies of what others read
	together                bool   // warps wait for each other's parts of the input, whatever they could
}

func (c gemvCase) String() string {
	if c.format != "" {
		return fmt.Sprintf("%s of %s", c.bf16(), c.format)
	}
	return fmt.Sprintf("%dx%d on %d SMs, %d warps, ring %d of %d, %d in flight", c.rows, c.k, c.sms, c.consumers, c.stages,
		c.stage, c.inFlight)
}

func (c gemvCase) bf16() gemvCase { c.format = ""; return c }

// rounded are the weights as the format has them.
func (c gemvCase) rounded(w []half.BF16) []half.BF16 {
	w = slices.Clone(w)
	c.format.RoundRows(w, c.k)
	return w
}

// inHalf is whether the format's input comes as f16 of a sixteenth.
func (c gemvCase) inHalf() bool { return c.format.Parts() > 1 }

// input is a random input whose elements come to a product of the format as they are: in f16 none
// below 2⁻¹⁰, where a sixteenth has fewer digits than bf16.
func (c gemvCase) input(rng *rand.Rand) []half.BF16 {
	x := rig.Normals(rng, c.k, 1)
	for i, v := range rig.Wide(x) {
		if c.inHalf() && math.Abs(v) < 0x1p-10 {
			x[i] = 0
		}
	}
	return x
}

// asInput is x as the bytes of a product's input of a format: what product.InputValue undoes.
func asInput(t testing.TB, f pipeline.Format, x []half.BF16) (data []byte) {
	if f.Parts() == 1 {
		return rig.BF16Bytes(x)
	}
	for _, v := range rig.Wide(x) {
		bits := uint16(half.F16Of(v / 16))
		if got := product.InputValue(f, bits); got != v && !math.IsNaN(v) {
			require.Equal(t, v, got)
		}
		data = binary.LittleEndian.AppendUint16(data, bits)
	}
	return data
}

// packed is the image of the matrix.
func (c gemvCase) packed(t testing.TB, p *pipeline.Plan, w []half.BF16) []byte {
	image := make([]byte, p.PackedBytes)
	if c.coded == nil {
		require.NoError(t, p.Pack(image, 0, 0, pipeline.Permuted(w, c.k, nil)))
		return image
	}
	m := &p.Layer[0]
	for tile := range m.Tiles {
		var rows [pipeline.TileRows]*pipeline.Int4Row
		copy(rows[:], c.coded[tile*pipeline.TileRows:])
		require.NoError(t, m.PackCoded(image[m.ChunkStart(tile, 0):][:m.TileBytes()], &rows))
	}
	return image
}

// gemvRig multiplies one matrix (bf16, rows·k) with x and stores all rows.
func gemvRig(t testing.TB, c gemvCase, w, x []half.BF16) *rig.Rig {
	r := rig.New(t, rig.Setup{SMs: c.sms, Consumers: c.consumers, Stage: c.stage, Stages: c.stages, InFlight: c.inFlight,
		Matrices: []pipeline.Matrix{{Name: "w", Rows: c.rows, K: c.k, Format: c.format}}})
	m := &r.Plan.Layer[0]
	packed := c.packed(t, r.Plan, w)
	weights := rig.In[dsl.B128](r, "w", packed, len(packed)/16)
	xIn := rig.In[dsl.BF16](r, "x", asInput(t, c.format, x), len(x))
	y := rig.Out[dsl.F32](r, "y", (c.rows+1)/2*2)
	g := &product.GEMV{Name: "w", M: m, Fixed: fixedInput(r, m),
		X:    dsl.Shared[dsl.BF16](r.K, "input", m.KPadded+c.idleLen(m), dsl.Align(16)),
		Part: product.Partials{Buf: dsl.Shared[dsl.F32](r.K, "partials", product.PartialsLen(c.consumers), dsl.Align(16))}}
	if c.together && g.Fixed != nil {
		g.Fixed.Order = nil
	}
	g.Scales = product.RowScales(r.K, m, weights, r.From(0))
	if c.held > 0 {
		g.Prefetch = &product.RegisterPrefetch{Chunks: c.held, Registers: product.PrefetchRegisters(r.Plan, c.consumers)}
	}
	r.Body(func(cons *pipeline.Consumer) {
		g.Prefetch.Start(r.Env)
		g.Hold(r.Env, cons, r.Ring, r.Share(0))
		c.fillIdle(r, g)
		plain := product.PlainInput{N: c.k, X: xIn, Dst: g.X, Format: c.format, Fixed: g.Fixed}
		plain.Emit(r.Env)
		g.Consume(r.Env, cons, r.Ring, r.Share(0), product.Epilogue(func(row dsl.Val[dsl.U32], y0, y1 dsl.Val[dsl.F32]) {
			y.StoreN(row, []dsl.Val[dsl.F32]{y0, y1})
		}))
	}, func(p *pipeline.Producer) { g.Produce(r.Env, p, r.Share(0), weights, r.From(0)) })
	return r
}

// idleLen is how many elements idle lanes read.
func (c gemvCase) idleLen(m *pipeline.MatrixPlan) int {
	if c.idle == 0 {
		return 0
	}
	return max(m.ChunkK, 512)
}

// fillIdle writes what idle lanes read behind the input.
func (c gemvCase) fillIdle(r *rig.Rig, g *product.GEMV) {
	if c.idle == 0 {
		return
	}
	g.Idle = g.M.KPadded / 2
	to, n := dsl.View[dsl.U32](g.X), c.idleLen(g.M)/2
	r.Env.EachConsumer(n, func(i dsl.Val[dsl.U32]) { to.Store(i.AddC(g.Idle), r.K.U32(int(c.idle-1))) })
}

// fixedInput is room for the input of a matrix of 4 bits, nil for another.
func fixedInput(r *rig.Rig, m *pipeline.MatrixPlan) *product.FixedInput {
	if !m.Format.Integers() {
		return nil
	}
	words, units, sums := product.FixedLen(m.KPadded)
	f := &product.FixedInput{K: m.KPadded, Bytes: dsl.Shared[dsl.U32](r.K, "fixed", words, dsl.Align(16)),
		Units: dsl.Shared[dsl.F32](r.K, "units", units, dsl.Align(16)), Wide: m.Format.Bits() == 8,
		Order: product.OwnOrder(r.Env.Consumers, m)}
	if shape, _ := m.Format.Int4(m.K); shape.Zeros {
		s := dsl.Shared[dsl.I32](r.K, "sums", sums, dsl.Align(16))
		f.Sums = &s
	}
	return f
}

func TestGEMV(t *testing.T) {
	for _, c := range []gemvCase{
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
	for _, c := range []gemvCase{
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

// An operand has columns or rows of which the products are not used: whatever lanes read there, zeros or NaN, the
// results have the same bits as with copies of the others' input.
func TestWhatIdleLanesReadIsNotUsed(t *testing.T) {
	for _, f := range []pipeline.Format{"", "e4m3", "e4m3b128"} {
		c := gemvCase{rows: 40, k: 4096, sms: 2, consumers: 8, stage: 18432, stages: 4, held: 1, format: f}
		t.Run(c.String(), func(t *testing.T) {
			rng := rig.Rand(22)
			w, x := rig.Normals(rng, c.rows*c.k, 1), c.input(rng)
			want := gemvRig(t, c, w, x).Run()["y"]
			for _, c.idle = range []uint32{1, 0x7fff7fff + 1} {
				require.Equal(t, want, gemvRig(t, c, w, x).Run()["y"], "idle lanes read %#x", c.idle-1)
			}
		})
	}
}

// Of 4 bits a tile group has 128 columns, and warps share runs of groups.
func TestGEMVOfInt4(t *testing.T) {
	for i, c := range []gemvCase{
		{rows: 8, k: 128, sms: 1, consumers: 1},
		// 3 blocks over 2 warps, the last not whole
		{rows: 16, k: 352, sms: 1, consumers: 2},
		{rows: 24, k: 96, sms: 2, consumers: 4}, // less than a block
		// 8 runs, a chunk a tile: the input stays in registers
		{rows: 40, k: 4096, sms: 2, consumers: 8, stage: 18432},
		// a chunk of 32 blocks and one of 24
		{rows: 16, k: 7168, sms: 1, consumers: 8, stage: 18432, held: 2},
		{rows: 40, k: 2176, sms: 2, consumers: 8, stage: 2048}, // 17 blocks in chunks of 3, tail 2
		// 2 chunks of 2 runs, shared by 8 warps
		{rows: 64, k: 2048, sms: 1, consumers: 8, stage: 4736, held: 3},
		{rows: 13, k: 256, sms: 1, consumers: 2},                                       // rows not a multiple of 8, odd
		{rows: 416, k: 384, sms: 3, consumers: 8, stage: 1280, held: 5},                // 17 or 18 tiles an SM
		{rows: 64, k: 1032, sms: 1, consumers: 3, stages: 7, inFlight: 4, stage: 1152}, // 9 blocks, the last has 8 columns
		// held, with the input in registers
		{rows: 40, k: 4096, sms: 2, consumers: 8, stage: 18432, held: 2, stages: 4},
		{rows: 280, k: 512, sms: 1, consumers: 4, stage: 2304, held: 1, format: "i4g128"}, // 3 batches of tiles
	} {
		for j, format := range pipeline.Formats()[2:9] {
			c := c.packedIn(format)
			if i%6 == j || deep.On() {
				t.Run(fmt.Sprintf("%s, %d held", c, c.held), c.check)
			}
		}
		for j, format := range pipeline.OwnFormats() {
			if c := c; i == j || i+9 == j || deep.On() {
				c.stage = (c.stage*9/8 + 127) / 128 * 128 // scales take more room
				c = c.packedIn(format)
				t.Run(fmt.Sprintf("%s, %d held", c, c.held), c.check)
			}
		}
	}
}

// Of 32 blocks 12 warps take three or two each, and keep the input of three.
func TestGEMVOfFloatsOf4BitsWhereSomeWarpsHaveFewerBlocks(t *testing.T) {
	for _, format := range []pipeline.Format{pipeline.FormatMXFP4, pipeline.FormatNVFP4} {
		c := gemvCase{rows: 24, k: 4096, sms: 1, consumers: 12, stage: 18432, format: format}
		t.Run(c.String(), c.check)
	}
}

// Warps that stage what they multiply have all of the input among them, and the results of those that wait.
func TestWarpsStageWhatTheyMultiply(t *testing.T) {
	for _, x := range []struct {
		gemvCase
		own bool
	}{
		{gemvCase{rows: 40, k: 2048, sms: 2, consumers: 8, stage: 18432, format: "i4g128"}, true},          // of 1B
		{gemvCase{rows: 24, k: 8192, sms: 1, consumers: 8, stage: 18432, held: 2, format: "i4g128"}, true}, // two chunks
		{gemvCase{rows: 16, k: 4096, sms: 1, consumers: 4, stage: 18432, format: pipeline.FormatI8}, true},
		{gemvCase{rows: 16, k: 512, sms: 1, consumers: 4, stage: 4608, format: "i4g32-zeros"}, true},
		{gemvCase{rows: 16, k: 6144, sms: 1, consumers: 8, stage: 18432, format: "i4g128"}, false}, // pieces of two sizes
		{gemvCase{rows: 16, k: 640, sms: 1, consumers: 2, stage: 4608, format: "i4g128"}, false},   // 5 groups
		{gemvCase{rows: 16, k: 520, sms: 1, consumers: 2, stage: 4608, format: "i4g128"}, false},   // the last one in part
		{gemvCase{rows: 16, k: 512, sms: 3, consumers: 2, stage: 4608, format: "i4g128"}, false},   // an SM without a tile
		{gemvCase{rows: 16, k: 512, sms: 1, consumers: 2, stage: 4608, format: pipeline.FormatMXFP4}, false},
	} {
		t.Run(fmt.Sprintf("%s, %d held", x, x.held), func(t *testing.T) {
			r := rig.New(t, rig.Setup{SMs: x.sms, Consumers: x.consumers, Stage: x.stage,
				Matrices: []pipeline.Matrix{{Name: "w", Rows: x.rows, K: x.k, Format: x.format}}})
			order := product.OwnOrder(x.consumers, &r.Plan.Layer[0])
			require.Equal(t, x.own, order != nil)
			if order != nil {
				var groups []int
				for w := range x.consumers {
					for _, behind := range order.Offsets {
						groups = append(groups, w*order.Stride+behind)
					}
				}
				slices.Sort(groups)
				for i, g := range groups {
					require.Equal(t, i, g)
				}
				require.Len(t, groups, x.k/128)
			}
			rng := rig.Rand(5)
			w, v := rig.Normals(rng, x.rows*x.k, 1), x.input(rng)
			own := gemvRig(t, x.gemvCase, w, v).Run()["y"]
			x.together = true
			require.Equal(t, gemvRig(t, x.gemvCase, w, v).Run()["y"], own)
		})
	}
}

// packedIn is the product in a format, with room for one of its runs at least.
func (c gemvCase) packedIn(f pipeline.Format) gemvCase {
	c.format = f
	if c.stage != 0 && f.Bits() == 8 {
		c.stage = max(c.stage, 4608)
	}
	return c
}

// Results are those of the weights that the codes stand for: zeros, numbers of all sizes, and subnormals. A row of
// zeros but for one column is that column's product, exactly, whichever it is.
func TestE4M3ProductsAreThoseOfWhatTheCodesStandFor(t *testing.T) {
	c := gemvCase{rows: 24, k: 320, sms: 1, consumers: 1, format: pipeline.FormatE4M3}
	rng := rig.Rand(7)
	w, x := rig.Normals(rng, c.rows*c.k, 1), c.input(rng)
	clear(w[:c.k])       // a row of zeros
	for i := range c.k { // of powers of two, most of them subnormal
		w[c.k+i] = half.BF16(127+8-i%20) << 7
	}
	for i := range 256 { // of all codes, largest first
		w[2*c.k+i] = half.BF16(math.Float32bits(pipeline.FromE4M3(byte(i))) >> 16)
		if i&0x7f == 0x7f {
			w[2*c.k+i] = 0
		}
	}
	require.Equal(t, w[2*c.k:][:256], c.rounded(w)[2*c.k:][:256])
	for row := 3; row < c.rows; row++ {
		clear(w[row*c.k:][:c.k])
		w[row*c.k+row*13] = rig.ToBF16(float64(row) - 11.5)
	}
	got, exact := rig.F32s(gemvRig(t, c, w, x).Run()["y"]), rig.Wide(x)
	w = c.rounded(w)
	rig.Near(t, reference.MatVec(w, exact), got, rig.GemvTolerance(w, exact), "%s", c)
	for row := 3; row < c.rows; row++ {
		require.Equal(t, rig.Wide(w[row*c.k+row*13:][:1])[0]*exact[row*13], got[row], "row %d", row)
	}
}

func (c gemvCase) check(t *testing.T) {
	rng := rig.Rand(uint64(c.rows*c.k + c.sms))
	w, x := rig.Normals(rng, c.rows*c.k, 1), c.input(rng)
	got := rig.F32s(gemvRig(t, c, w, x).Run()["y"])
	w = c.rounded(w)
	exact := rig.Wide(x)
	if c.format.Parts() > 1 { // bf16 as it is
		product.RoundInput(c.format, exact, true)
	}
	rig.Near(t, reference.MatVec(w, exact), got[:c.rows], rig.GemvTolerance(w, exact), "%s", c)
	for _, v := range got[c.rows:] {
		require.Zero(t, v, "the row beyond an odd number is padding")
	}
}

func TestGEMVOfRandomShapes(t *testing.T) {
	rng := rig.Rand(2027)
	cases := 30
	if !deep.On() {
		cases = 6
	}
	for range cases {
		c := gemvCase{rows: 1 + rng.IntN(200), k: 8 * (1 + rng.IntN(60)), sms: 1 + rng.IntN(6), consumers: 1 + rng.IntN(8),
			stage: 512 + 128*rng.IntN(20), stages: 1 + rng.IntN(6)}
		c.inFlight = 1 + rng.IntN(c.stages)
		t.Run(c.String(), c.check)
	}
}

// A NaN in one row must stay in that row, and one in the input reach all rows.
func TestGEMVOfNaN(t *testing.T) {
	c := gemvCase{rows: 16, k: 64, sms: 1, consumers: 2}
	rng := rig.Rand(3)
	w, x := rig.Normals(rng, c.rows*c.k, 1), rig.Normals(rng, c.k, 1)
	w[5*64+7] = 0x7fc0
	for row, v := range rig.F32s(gemvRig(t, c, w, x).Run()["y"]) {
		require.Equal(t, row == 5, math.IsNaN(v), "row %d", row)
	}
	x[63] = 0x7fc0
	for row, v := range rig.F32s(gemvRig(t, c, w, x).Run()["y"]) {
		require.True(t, math.IsNaN(v), "row %d", row)
	}
}
