package megakernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// packByLayout packs one matrix of one layer with nothing but what layout.json
// says.
func packByLayout(t *testing.T, dst []byte, e emit.PackEntry, layer int, w Tensors) {
	t.Helper()
	require.True(t, strings.Contains(e.Order,
		"(k/32)*512 + r*64 + ((k%32/8) xor (r/2))*16 + (k%8)*2") || strings.Contains(e.Order,
		"columns of all rows") || strings.HasPrefix(e.Order, "e4m3, scaled by") || isInteger(e.Order))
	covered := 0
	row := make([]half.BF16, e.K)
	var sizes integerSizes
	if isInteger(e.Order) {
		sizes = sizesOf(t, e)
	}
	for _, run := range e.Sources {
		tensor, rows := strings.ReplaceAll(run.Tensor, "%d", fmt.Sprint(layer)), 0
		if strings.Contains(e.Order, "scaled by blocks") {
			rows = heightOf(w, tensor)
		}
		for i := range run.Count {
			r := run.Row + i*run.RowStep
			require.NoError(t, w.Row(tensor, run.Source+i*run.SourceStep, row))
			if strings.Contains(e.Order, "columns of all rows") {
				byColumns(dst, e, layer, r, row)
				covered++
				continue
			}
			if rows > 0 {
				blocksByLayout(t, dst, e, layer, r, blockOf{w, tensor, run.Source + i*run.SourceStep, rows}, row)
				covered++
				continue
			}
			if strings.HasPrefix(e.Order, "e4m3") {
				codesByLayout(dst, e, layer, r, row)
				covered++
				continue
			}
			if isInteger(e.Order) {
				integersByLayout(dst[e.Base+int64(layer)*e.LayerStride:], e, sizes, r, row)
				covered++
				continue
			}
			tile, in := r/e.TileRows, r%e.TileRows
			at := e.Base + int64(layer)*e.LayerStride + int64(tile*16*e.KPadded)
			for k, v := range row {
				v.Put(dst[at+int64(k/32*512+in*64+(k%32/8^in/2)*16+k%8*2):])
			}
			covered++
		}
	}
	require.Equal(t, e.Rows, covered)
}

// isInteger is whether a matrix is multiplied in integers.
func isInteger(order string) bool {
	return strings.Contains(order, "bits, two's complement") || strings.Contains(order, "bits, e2m1")
}

// blockOf is the rows of a tensor beside one.
type blockOf struct {
	Tensors
	tensor    string
	row, rows int // one, and how many there are
}

// heightOf is how many rows a tensor of the model of TestLayoutIsEnoughToPackTheWeights has.
func heightOf(w Tensors, tensor string) int {
	for _, s := range w.(shaped).Stored() {
		if s.Name == tensor {
			return s.Shape[0]
		}
	}
	panic(tensor)
}

// blocksByLayout writes a row of e4m3 with blocks.
func blocksByLayout(t *testing.T, dst []byte, e emit.PackEntry, layer, r int, of blockOf, row []half.BF16) {
	value := func(v half.BF16) float32 { return v.Float32() }
	most := make([]float32, e.K/128+1)
	other := make([]half.BF16, len(row))
	for i := of.row / 128 * 128; i < min(of.row/128*128+128, of.rows); i++ {
		require.NoError(t, of.Row(of.tensor, i, other))
		for k, v := range other {
			if x := value(v & 0x7fff); !math.IsInf(float64(x), 0) && x == x {
				most[k/128] = max(most[k/128], x)
			}
		}
	}
	in := r % e.TileRows
	to := dst[e.Base+int64(layer)*e.LayerStride+int64(r/e.TileRows*(e.KPadded/256*2064)):]
	for k, v := range row {
		scale, at := pipeline.E4M3Scale(most[k/128]), k/256*2064
		to[at+k%256/64*512+in*64+(k%32/8^in/2)*16+k%64/32*8+k%8] = pipeline.ToE4M3(value(v) / scale)
		binary.LittleEndian.PutUint32(to[at+2048+in%2*8+k%256/128*4:], math.Float32bits(scale))
	}
}

// codesByLayout writes a row of e4m3.
func codesByLayout(dst []byte, e emit.PackEntry, layer, r int, row []half.BF16) {
	tile, in, most := r/e.TileRows, r%e.TileRows, float32(0)
	value := func(v half.BF16) float32 { return v.Float32() }
	for _, v := range row {
		if x := value(v & 0x7fff); !math.IsInf(float64(x), 0) && x == x {
			most = max(most, x)
		}
	}
	scale := pipeline.E4M3Scale(most)
	to := dst[e.Base+int64(layer)*e.LayerStride+int64(tile*(8*e.KPadded+512)):]
	for k, v := range row {
		to[k/64*512+in*64+(k%32/8^in/2)*16+k%64/32*8+k%8] = pipeline.ToE4M3(value(v) / scale)
	}
	binary.LittleEndian.PutUint32(to[8*e.KPadded+4*in:], math.Float32bits(scale))
}

// integerSizes are the numbers in the Order of a matrix of 4 or 8 bits.
type integerSizes struct {
	columns, runBytes, bits, group int
	tile, behind                   int  // bytes of a tile, and of what stands in it before the factors
	whole, bytes, exponents        bool // an f32 scale for a row; e4m3 scales of groups, of nvfp4; e8m0, of mxfp4
}

func sizesOf(t *testing.T, e emit.PackEntry) (s integerSizes) {
	t.Helper()
	number := func(form string) (n int) {
		m := regexp.MustCompile(form).FindStringSubmatch(e.Order)
		require.NotNil(t, m, "%s in %s", form, e.Order)
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		return n
	}
	s.columns, s.runBytes = number(`runs of (\d+) columns`), number(`columns, of (\d+) bytes`)
	s.bits = number(`^(\d) bits`)
	s.group, s.tile = e.KPadded, e.KPadded/s.columns*s.runBytes
	s.whole, s.bytes = strings.Contains(e.Order, "the f32 scale"), strings.Contains(e.Order, "the e4m3 scale")
	s.exponents = strings.Contains(e.Order, "the e8m0 scale")
	if s.whole {
		s.tile += number(`KPadded\*[48] \+ (\d+) bytes on`)
	} else {
		s.group = number(`group g, of (\d+) columns`)
	}
	if s.behind = s.tile; s.bytes {
		s.tile += number(`the next tile (\d+) bytes behind them`)
	}
	return s
}

// integersByLayout writes a row of 4 or 8 bits, to where the matrix begins, by the numbers in Order and the rule of
// docs/weight-formats.md.
func integersByLayout(dst []byte, e emit.PackEntry, s integerSizes, r int, row []half.BF16) {
	columns, runBytes, bits, group, tile, bytes := s.columns, s.runBytes, s.bits, s.group, s.tile, s.bytes
	factor := 1.0
	if bytes {
		factor = nvfp4Factor(row)
		binary.LittleEndian.PutUint32(dst[r/e.TileRows*tile+s.behind+4*(r%e.TileRows):], math.Float32bits(float32(factor)))
	}
	floats := strings.Contains(e.Order, "bits, e2m1")
	at, in := dst[r/e.TileRows*tile:], r%e.TileRows
	for first := 0; first < len(row); first += group {
		most, value := 0.0, func(v half.BF16) float64 { return float64(v.Float32()) }
		part := row[min(first, len(row)):min(first+group, len(row))]
		finite := true
		for _, v := range part {
			x := math.Abs(value(v))
			finite = finite && x <= math.MaxFloat32
			most = max(most, x)
		}
		scale := 0x1p-97 // the least of five digits
		for bits == 8 && most > 127*scale {
			scale *= 2
		}
		for floats && !bytes && finite && most >= 7*scale {
			scale *= 2
		}
		e4m3 := byte(0x7f)
		if bytes && finite {
			e4m3 = max(pipeline.ToE4M3(float32(most/6/factor)), 1)
			scale = float64(pipeline.FromE4M3(e4m3)) * factor
		}
		for bits == 4 && !floats && most > 7*scale {
			frac, exp := math.Frexp(scale)
			scale = math.Ldexp(frac+1.0/32, exp)
		}
		if !finite {
			scale = math.NaN()
		}
		for i, v := range part {
			k, code := first+i, byte(0)
			if finite {
				code = byte(int(math.RoundToEven(value(v)/scale))) & (1<<bits - 1)
			}
			run, in128 := at[k/columns*runBytes:], k%columns
			if floats {
				if finite {
					code = nearestE2M1(value(v) / scale)
				}
				run[in128/128*512+in*64+in128%16/4*16+in128%64/16*4+in128%128/64*2+in128%4/2] |= code << (4 * (k % 2))
				continue
			}
			if bits == 8 {
				run[in128/128*1024+in128%128/64*512+in*64+in128%16/4*16+in128%64/16*4+in128%4] = code
				continue
			}
			to := &run[in128/128*512+in*64+in128%16/4*16+in128%64/16*4+in128%4]
			if in128%128 < 64 {
				*to |= code
			} else {
				*to |= code << 4
			}
		}
		word := math.Float32bits(float32(scale))
		if !finite {
			word = 0x7fc00000
		}
		if s.whole {
			binary.LittleEndian.PutUint32(at[e.KPadded*bits+4*in:], word)
			continue
		}
		g := first % columns / group
		if bytes {
			at[first/columns*runBytes+columns/128*512+in*(columns/group)+g%8/4*(columns/32)+g/8*4+g%4] = e4m3
			continue
		}
		place := map[int]int{128: g, 64: g%2*(columns/128) + g/2, 32: g%4/2*(columns/64) + g/4*2 + g%2}[group]
		scales, entry := at[first/columns*runBytes+columns/128*512:], in*(columns/group)+place
		if s.exponents {
			scales[entry] = byte(word >> 23)
			continue
		}
		binary.LittleEndian.PutUint16(scales[2*entry:], uint16(word>>16))
	}
}

// nvfp4Factor is the least power of two times which 2688 is the largest finite magnitude of a row at least, and at
// least 2⁻⁹⁷.
func nvfp4Factor(row []half.BF16) float64 {
	most, factor := 0.0, 0x1p-97
	for _, v := range row {
		if x := math.Abs(float64(v.Float32())); x <= math.MaxFloat32 {
			most = max(most, x)
		}
	}
	for most > 2688*factor {
		factor *= 2
	}
	return factor
}

// nearestE2M1 is the code of the number of E2M1 nearest to x, the even one of two.
func nearestE2M1(x float64) (code byte) {
	numbers := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	for i, v := range numbers {
		a, b := math.Abs(v-math.Abs(x)), math.Abs(numbers[code]-math.Abs(x))
		if a < b || a == b && i%2 == 0 {
			code = byte(i)
		}
	}
	if x < 0 && code > 0 {
		code |= 8
	}
	return code
}

// byColumns writes a row of a matrix that is dealt out by columns.
func byColumns(dst []byte, e emit.PackEntry, layer, r int, row []half.BF16) {
	for k, v := range row {
		at := e.Base + int64(layer)*e.LayerStride + int64(k/4*16*e.KPadded)
		k %= 4
		v.Put(dst[at+int64((r/64)*512+(r%8)*64+(r/8%2)*32+(k/2)*16+(r/16%4)*4+(k%2)*2):])
	}
}
