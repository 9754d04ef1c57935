package product_test

import (
	"fmt"
	"math"
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

// columns is Y = W·X in a kernel of its own, for n of at most t tokens.
type columns struct {
	gemvCase
	t, n, batch int
}

func (c columns) String() string {
	return fmt.Sprintf("%d of %d tokens, %v, batches of %d", c.n, c.t, c.gemvCase, c.batch)
}

// filled is a buffer's content in fragment order: row t of x for the first tokens,
// and NaN wherever a template must not look.
func filled(tb testing.TB, a product.Activations, x [][]half.BF16) []byte {
	all := rig.BF16Bytes(slices.Repeat([]half.BF16{0x7fc1}, a.Len()))
	for t, row := range x {
		data := asInput(tb, a.Format, row)
		for k := range row {
			copy(all[2*a.Index(t, k):], data[2*k:2*k+2])
		}
	}
	return all
}

// gemmRig multiplies one matrix (bf16, rows·k) with the rows of x, of which there
// are n, and stores all rows of the results, as [t][rows padded to 2].
func gemmRig(t testing.TB, c columns, w []half.BF16, x [][]half.BF16) *rig.Rig {
	r := rig.New(t, rig.Setup{SMs: c.sms, Consumers: c.consumers, Stage: c.stage, Stages: c.stages, InFlight: c.inFlight,
		Batch: c.batch, Wide: c.wide, Matrices: []pipeline.Matrix{{Name: "w", Rows: c.rows, K: c.k, Format: c.format}}})
	m := &r.Plan.Layer[0]
	packed := c.packed(t, r.Plan, w)
	weights := rig.In[dsl.B128](r, "w", packed, len(packed)/16)
	a := product.Activations{K: c.k, T: c.t, Format: c.of}
	g := &product.GEMM{Name: "w", M: m, In: a, X: rig.InOut[dsl.BF16](r, "x", filled(t, a, x), a.Len()),
		Part: product.Partials{Buf: dsl.Shared[dsl.F32](r.K, "partials", product.ColumnPartialsLen(c.consumers, a.Padded(),
			c.batch), dsl.Align(16))}}
	g.Scales = product.RowScales(r.K, m, weights, r.From(0))
	even := (c.rows + 1) / 2 * 2
	y := rig.Out[dsl.F32](r, "y", c.t*even)
	n := r.Scalar("n", uint32(c.n))
	r.Body(func(cons *pipeline.Consumer) {
		g.Consume(r.Env, cons, r.Ring, r.Share(0), n, nil, func(row, token dsl.Val[dsl.U32], y0, y1 dsl.Val[dsl.F32]) {
			y.StoreN(token.MulC(even).Add(row), []dsl.Val[dsl.F32]{y0, y1})
		})
	}, func(p *pipeline.Producer) { g.Produce(r.Env, p, r.Share(0), weights, r.From(0)) })
	return r
}

// check compares with the float64 product; rows of tokens beyond n are not written.
func (c columns) check(t *testing.T) {
	rng := rig.Rand(uint64(c.rows*c.k + c.sms))
	w := rig.Normals(rng, c.rows*c.k, 1)
	var x [][]half.BF16
	as := c.gemvCase
	if c.of != "" {
		as.format = c.of
	}
	for range c.n {
		x = append(x, as.input(rng))
	}
	got := gemmRig(t, c, w, x).Run()["y"]
	w = c.rounded(w)
	even := (c.rows + 1) / 2 * 2
	for i, v := range x {
		exact := rig.Wide(v)
		product.RoundColumns(c.of, c.format, exact)
		rig.Near(t, reference.MatVec(w, exact), rig.F32s(got)[i*even:][:c.rows], rig.GemvTolerance(w, exact),
			"token %d of %s", i, c)
	}
	for i, bits := range rig.U32s(got)[c.n*even:] {
		require.EqualValues(t, math.MaxUint32, bits, "element %d of a token beyond the step's", i)
	}
}

func TestGEMM(t *testing.T) {
	for _, c := range []columns{
		{gemvCase{rows: 8, k: 32, sms: 1, consumers: 1}, 2, 2, 1},
		{gemvCase{rows: 8, k: 32, sms: 1, consumers: 1}, 16, 16, 4},
		{gemvCase{rows: 8, k: 40, sms: 1, consumers: 2}, 8, 8, 4},                 // k padded to 64
		{gemvCase{rows: 24, k: 1032, sms: 1, consumers: 3, stage: 2048}, 9, 9, 2}, // padded, in a tail
		{gemvCase{rows: 16, k: 96, sms: 1, consumers: 2}, 3, 2, 2},                // 3 groups over 2 warps
		{gemvCase{rows: 24, k: 352, sms: 3, consumers: 4}, 9, 9, 14},              // 11 groups over 4 warps
		// 33 groups: 8 chunks of 4 and a tail of 1
		{gemvCase{rows: 40, k: 1056, sms: 2, consumers: 8, stage: 2048}, 16, 5, 14},
		{gemvCase{rows: 40, k: 1056, sms: 3, consumers: 4, stage: 2048 + 512}, 8, 7, 3}, // chunks of 5, tail 3
		{gemvCase{rows: 16, k: 1056, sms: 1, consumers: 2, stage: 512}, 4, 4, 2},        // a group a chunk
		{gemvCase{rows: 16, k: 1056, sms: 1, consumers: 8, stage: 17408}, 16, 16, 8},    // the whole tile in a stage
		{gemvCase{rows: 13, k: 64, sms: 1, consumers: 2}, 8, 1, 4},                      // rows not a multiple of 8, odd
		{gemvCase{rows: 50, k: 64, sms: 3, consumers: 2}, 12, 12, 2},                    // nor over several SMs
		{gemvCase{rows: 16, k: 64, sms: 5, consumers: 2}, 8, 8, 4},                      // 3 SMs without a tile
		// 35 tiles: 3 batches of 12, 12, 11
		{gemvCase{rows: 280, k: 32, sms: 1, consumers: 4}, 8, 8, 14},
		{gemvCase{rows: 280, k: 32, sms: 1, consumers: 8}, 16, 13, 14},                     // rounds of 4 tiles
		{gemvCase{rows: 280, k: 64, sms: 1, consumers: 8, stage: 512}, 8, 3, 28},           // and of 8
		{gemvCase{rows: 72, k: 96, sms: 2, consumers: 1, stage: 1024}, 16, 16, 3},          // two tokens a thread
		{gemvCase{rows: 416, k: 96, sms: 3, consumers: 8, stage: 1024}, 2, 2, 7},           // 17 or 18 tiles an SM
		{gemvCase{rows: 64, k: 96, sms: 1, consumers: 2, stages: 1, inFlight: 1}, 8, 8, 5}, // one stage: no overlap
		{gemvCase{rows: 64, k: 352, sms: 1, consumers: 3, stages: 7, inFlight: 4, stage: 1024}, 16, 9, 3},
	} {
		t.Run(c.String(), c.check)
	}
}

func TestGEMMOfE4M3(t *testing.T) {
	for _, c := range []columns{
		{gemvCase{rows: 8, k: 64, sms: 1, consumers: 1}, 2, 2, 1},
		{gemvCase{rows: 24, k: 192, sms: 1, consumers: 2}, 16, 16, 4},
		{gemvCase{rows: 40, k: 2112, sms: 2, consumers: 8, stage: 2048}, 16, 5, 14}, // chunks of 2 groups
		{gemvCase{rows: 50, k: 704, sms: 3, consumers: 4}, 8, 7, 3},
		{gemvCase{rows: 280, k: 128, sms: 1, consumers: 8}, 8, 8, 14},
	} {
		c.format = pipeline.FormatE4M3
		t.Run(c.String(), c.check)
	}
}

func TestGEMMOfIntegers(t *testing.T) {
	for _, c := range []columns{
		{gemvCase{rows: 8, k: 128, sms: 1, consumers: 1, format: "i4g128", wide: 1}, 2, 2, 1},
		{gemvCase{rows: 24, k: 512, sms: 1, consumers: 2, format: "i4g32", wide: 1}, 16, 16, 4},
		// a block a warp, and two
		{gemvCase{rows: 40, k: 2048, sms: 2, consumers: 8, stage: 8448, format: "i4g128", wide: 2}, 8, 5, 14},
		{gemvCase{rows: 40, k: 4096, sms: 2, consumers: 8, stage: 16896, format: "i4g128", wide: 1}, 16, 12, 10},
		// a last stage of two tiles of four
		{gemvCase{rows: 96, k: 4096, sms: 2, consumers: 8, stage: 16896, format: "i4g128", wide: 1}, 16, 12, 10},
		// padded to 6 blocks
		{gemvCase{rows: 50, k: 672, sms: 3, consumers: 4, format: "i4g64", wide: 2}, 8, 7, 3},
		// of which the last is short
		{gemvCase{rows: 13, k: 1440, sms: 1, consumers: 3, format: "i4", wide: 1}, 12, 12, 2},
		// warps without a block
		{gemvCase{rows: 280, k: 128, sms: 1, consumers: 8, format: "i4g32", wide: 4}, 8, 8, 14},
		{gemvCase{rows: 72, k: 1664, sms: 2, consumers: 5, stage: 5120, format: "i4g64", wide: 4}, 9, 9, 5}, // and a tail
		{gemvCase{rows: 40, k: 1024, sms: 2, consumers: 4, format: "i4g32-zeros-f16", wide: 2}, 8, 6, 4},
		{gemvCase{rows: 40, k: 1024, sms: 2, consumers: 4, format: "nvfp4", wide: 2}, 8, 8, 4},
		{gemvCase{rows: 13, k: 352, sms: 1, consumers: 3, format: "nvfp4", wide: 1}, 16, 11, 3},
		{gemvCase{rows: 40, k: 1024, sms: 2, consumers: 4, format: "mxfp4", wide: 2}, 8, 8, 4},
		{gemvCase{rows: 13, k: 352, sms: 1, consumers: 3, format: "mxfp4", wide: 1}, 16, 11, 3},
		{gemvCase{rows: 96, k: 4096, sms: 2, consumers: 8, stage: 18432, format: "mxfp4", wide: 1}, 16, 12, 10},
		{gemvCase{rows: 24, k: 640, sms: 1, consumers: 3, format: "i4g64-zeros", wide: 2}, 11, 11, 3},
		{gemvCase{rows: 24, k: 384, sms: 1, consumers: 3, format: "i4g128-zeros", wide: 1}, 3, 3, 3},
		// two blocks a warp
		{gemvCase{rows: 40, k: 4096, sms: 2, consumers: 8, stage: 16384, format: "i8", wide: 2}, 8, 5, 14},
		{gemvCase{rows: 40, k: 2080, sms: 2, consumers: 8, stage: 16384, format: "i8", wide: 1}, 16, 12, 10},
		{gemvCase{rows: 24, k: 640, sms: 1, consumers: 3, format: "i8g64-zeros", wide: 2}, 11, 11, 3},
		{gemvCase{rows: 13, k: 384, sms: 1, consumers: 2, format: "i8g32-f16", wide: 1}, 3, 3, 3},
		{gemvCase{rows: 24, k: 96, sms: 1, consumers: 2, of: "i4g32"}, 9, 9, 2}, // bf16, as the LM head may be
		{gemvCase{rows: 24, k: 352, sms: 1, consumers: 2, format: "i8", wide: 1, of: "bf16"}, 8, 7, 2},
		{gemvCase{rows: 40, k: 672, sms: 2, consumers: 3, format: "i8", wide: 1, of: "e4m3"}, 16, 11, 3},
		{gemvCase{rows: 24, k: 1024, sms: 1, consumers: 4, format: "i8", wide: 2, of: "i4g32-zeros"}, 3, 3, 4},
		{gemvCase{rows: 24, k: 352, sms: 1, consumers: 3, format: "e4m3", of: "i4g32"}, 9, 8, 2},
		{gemvCase{rows: 24, k: 352, sms: 1, consumers: 3, format: "i4g64", wide: 2, of: "bf16"}, 5, 5, 2},
		{gemvCase{rows: 24, k: 352, sms: 1, consumers: 3, of: "i4g128"}, 8, 7, 2},
	} {
		if c.of == "" {
			c.of = c.format
		}
		t.Run(c.String(), c.check)
	}
}

// wholes are the whole numbers that a format has as weights where its scales are 1, or a power of two with which the
// codes are exact. The last is in every 16 columns, so that scales of all groups are that.
func wholes(f pipeline.Format) (list []int) {
	most := 127
	switch {
	case f.E2M1():
		return []int{0, 1, 2, 3, 4, 6}
	case f.Bits() == 4:
		most = 7
	case f == pipeline.FormatE4M3 || f.Blocks(): // of four digits
		most = 14
	}
	for i := range most + 1 {
		list = append(list, i)
	}
	return list
}

// Whole numbers as input and as weights make whole numbers, exactly, in every format: whatever type and order the input
// comes in.
func TestGEMMOfWholeNumbersIsExact(t *testing.T) {
	wide := func(most int, f, of pipeline.Format) columns {
		return columns{gemvCase{rows: 24, k: 352, sms: 1, consumers: 3, format: f, wide: 1, of: of}, most, most - 1, 2}
	}
	i4 := func(most, wide, batch int, f pipeline.Format) columns { // stages of several tiles, and a last of fewer
		stage := f.StageOf(8192)
		return columns{gemvCase{rows: 56, k: 2048, sms: 1, consumers: 4, stage: stage, format: f, of: f, wide: wide}, most,
			most - 1, batch}
	}
	for i, c := range []columns{wide(8, "i8", "bf16"), wide(16, "i8", "e4m3"), wide(8, "i8", "i4g32"),
		wide(16, "i8", "i8"), wide(8, "i8g32-zeros", "i8"), wide(8, "e4m3", "e4m3"), wide(16, "e4m3", "i4g32"), wide(16, "e4m3b128", "e4m3b128"),
		i4(8, 2, 28, "i4g128"), i4(16, 1, 12, "i4g128"), i4(16, 1, 4, "i4g64"), i4(8, 1, 3, "i4g32"), i4(16, 1, 12, "i4g32"),
		i4(8, 2, 14, "i4"), i4(16, 1, 4, "i4"), i4(8, 1, 4, "i4g64-zeros"), i4(16, 1, 12, "i4g32-zeros-f16"),
		i4(8, 2, 14, "mxfp4"), i4(16, 1, 4, "mxfp4"), i4(8, 2, 14, "nvfp4"), i4(16, 1, 4, "nvfp4")} {
		t.Run(c.String(), func(t *testing.T) {
			rng, list := rig.Rand(uint64(70+i)), wholes(c.format)
			var w []half.BF16
			for at := range c.rows * c.k {
				v := list[rng.IntN(len(list))] * (1 - 2*rng.IntN(2))
				if at%16 == 0 {
					v = list[len(list)-1]
				}
				w = append(w, reference.ToBF16(float64(v)))
			}
			require.Equal(t, w, c.rounded(w))
			var x [][]half.BF16
			for token := range c.n { // of unlike sums
				var row []half.BF16
				for j := range c.k {
					v := rng.IntN(201) - 100
					if j%3 == 0 {
						v = 5 * token
					}
					row = append(row, reference.ToBF16(float64(v)))
				}
				x = append(x, row)
			}
			got := rig.F32s(gemmRig(t, c, w, x).Run()["y"])
			for token, v := range x {
				require.Equal(t, reference.MatVec(w, rig.Wide(v)), got[token*c.rows:][:c.rows], "token %d", token)
			}
		})
	}
}

func TestGEMMOfRandomShapes(t *testing.T) {
	rng := rig.Rand(2028)
	cases := 30
	if !deep.On() {
		cases = 6
	}
	for range cases {
		c := columns{gemvCase: gemvCase{rows: 1 + rng.IntN(200), k: 8 * (1 + rng.IntN(60)), sms: 1 + rng.IntN(6),
			consumers: 1 + rng.IntN(8), stage: 512 + 128*rng.IntN(20), stages: 1 + rng.IntN(6)}, t: 2 + rng.IntN(15),
			batch: 1 + rng.IntN(16)}
		c.inFlight, c.n = 1+rng.IntN(c.stages), 1+rng.IntN(c.t)
		t.Run(c.String(), c.check)
	}
}

// What a token gets is the same bits alone and among others, whatever those are.
func TestGEMMOfOneTokenDoesNotDependOnTheOthers(t *testing.T) {
	for i, most := range []int{8, 16, 8, 16, 8} {
		c := columns{gemvCase: gemvCase{rows: 40, k: 352, sms: 2, consumers: 3, stage: 1024}, t: most, n: most, batch: 2}
		if i > 1 {
			c.format, c.of, c.stage = "i4g32", "i4g32", 4096
		}
		if i > 3 {
			c.format, c.of = "i8", "i8"
		}
		rng := rig.Rand(11)
		w := rig.Normals(rng, c.rows*c.k, 1)
		var x [][]half.BF16
		for range c.n {
			x = append(x, c.input(rng))
		}
		all := gemmRig(t, c, w, x).Run()["y"]
		for _, n := range []int{1, 2, most - 1} {
			c.n = n
			require.Equal(t, all[:4*n*c.rows], gemmRig(t, c, w, x[:n]).Run()["y"][:4*n*c.rows], "%d of %d tokens", n, most)
		}
		c.n = most
		last := x[most-1]
		for i := range most - 1 { // infinities and NaN everywhere else
			if x[i] = c.input(rng); c.of == "" {
				x[i] = rig.Normals(rng, c.k, 1e38)
			}
			x[i][i] = 0x7fc0
		}
		got := gemmRig(t, c, w, x).Run()["y"]
		require.Equal(t, all[4*(most-1)*c.rows:], got[4*(most-1)*c.rows:])
		require.True(t, math.IsNaN(rig.F32s(got)[0]))
		x[most-1] = last
	}
}

// A NaN in one row of the matrix must stay in that row.
func TestGEMMOfNaN(t *testing.T) {
	for _, most := range []int{2, 16} {
		c := columns{gemvCase: gemvCase{rows: 24, k: 64, sms: 1, consumers: 2}, t: most, n: 2, batch: 3}
		rng := rig.Rand(3)
		w, x := rig.Normals(rng, c.rows*c.k, 1), [][]half.BF16{rig.Normals(rng, c.k, 1), rig.Normals(rng, c.k, 1)}
		w[13*64+7] = 0x7fc0
		for i, v := range rig.F32s(gemmRig(t, c, w, x).Run()["y"])[:2*24] {
			require.Equal(t, i%24 == 13, math.IsNaN(v), "row %d", i)
		}
	}
}

func TestGEMMReadsNoUninitialisedInput(t *testing.T) {
	c := columns{gemvCase: gemvCase{rows: 8, k: 64, sms: 1, consumers: 2}, t: 8, n: 3, batch: 1}
	r := gemmRig(t, c, rig.Normals(rig.Rand(1), 8*64, 1), nil)
	delete(r.Data, "x")
	_, err := r.Once(r.Load(), 0)
	require.ErrorContains(t, err, "uninitialised")
}

func TestDroppedChunksOfAGEMMAreDrained(t *testing.T) {
	r := rig.New(t, rig.Setup{SMs: 2, Consumers: 2, Stage: 1024, Stages: 2, InFlight: 1, Batch: 2,
		Matrices: []pipeline.Matrix{{Name: "w", Rows: 72, K: 160}}})
	a := product.Activations{K: 160, T: 4}
	g := &product.GEMM{Name: "w", M: &r.Plan.Layer[0], In: a}
	weights := rig.In[dsl.B128](r, "w", make([]byte, r.Plan.PackedBytes), int(r.Plan.PackedBytes/16))
	r.Body(func(cons *pipeline.Consumer) { g.Drop(r.Env, cons, r.Share(0)) }, func(p *pipeline.Producer) {
		g.Produce(r.Env, p, r.Share(0), weights, r.From(0))
	})
	r.Run() // hangs, and says so, where a chunk is left in the ring: it has fewer stages than there are chunks
}

func TestActivationsAreInFragmentOrder(t *testing.T) {
	for _, a := range []product.Activations{{K: 32, T: 2}, {K: 40, T: 8}, {K: 96, T: 9}, {K: 64, T: 16},
		{K: 64, T: 9, Format: "i4"}} {
		seen := make([]bool, a.Len())
		for i := range a.T {
			for k := range a.K {
				at := a.Index(i, k)
				require.False(t, seen[at])
				seen[at] = true
				require.Equal(t, k/32, at/(32*a.Padded()))
				require.Equal(t, i, at/32%a.Padded())
			}
		}
	}
	require.Equal(t, 8, product.Activations{T: 8}.Padded())
	require.Equal(t, 16, product.Activations{T: 9}.Padded())
}
