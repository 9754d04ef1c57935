package quantise

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/quant"
)

// rounded is a matrix in a format: the bytes of its tensors.
type rounded struct {
	codes, scales []byte
	err           Error
}

// rowsEach is how many rows a goroutine takes at a time.
const rowsEach = 16

// round rounds a matrix. All processors work on it, each on whole rows, whose errors are summed in their order.
func round(m *quant.Matrix, f Format) (*rounded, error) {
	groups := m.Cols / f.columns(m.Cols)
	size := m.DType.Bytes()
	out := &rounded{codes: make([]byte, m.Rows*m.Cols*f.bits/8), scales: make([]byte, m.Rows*groups*size)}
	costs, failures := make([]Error, m.Rows), make([]error, m.Rows)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			w, codes, scales := make([]float32, m.Cols), make([]int8, m.Cols), make([]float32, groups)
			for first := int(next.Add(rowsEach)) - rowsEach; first < m.Rows; first = int(next.Add(rowsEach)) - rowsEach {
				for row := first; row < min(first+rowsEach, m.Rows); row++ {
					if failures[row] = finiteRow(m, row, w); failures[row] != nil {
						next.Store(int64(m.Rows))
						return
					}
					costs[row] = rounder{f, m.DType}.row(w, codes, scales)
					f.pack(out.codes[row*m.Cols*f.bits/8:], codes)
					putNumbers(out.scales[row*groups*size:], scales, m.DType)
				}
			}
		})
	}
	wg.Wait()
	for row := range m.Rows {
		if failures[row] != nil {
			return nil, failures[row]
		}
		out.err.plus(costs[row])
	}
	return out, nil
}

// digest is the SHA-256 of the weights that a reader computes.
func (out *rounded) digest(m *quant.Matrix, f Format) string {
	r, columns, size := rounder{f, m.DType}, f.columns(m.Cols), m.DType.Bytes()
	sum, row, weights := sha256.New(), make([]byte, m.Cols*size), make([]float32, m.Cols)
	for at := 0; at < m.Rows*m.Cols; at += m.Cols {
		for c := range weights {
			weights[c] = r.weight(f.code(out.codes, at+c), number(out.scales[(at+c)/columns*size:], m.DType))
		}
		putNumbers(row, weights, m.DType)
		sum.Write(row)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// code is the i-th code of a matrix, as pack wrote it.
func (f Format) code(codes []byte, i int) int8 {
	if f.bits == 8 {
		return int8(codes[i])
	}
	return int8(codes[i/2]>>(i%2*4)&15) - 8
}

// number is a scale, as putNumbers wrote it.
func number(data []byte, t models.DType) float32 {
	switch t {
	case models.BF16:
		return half.BF16At(data).Float32()
	case models.F16:
		return half.F16At(data).Float32()
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(data))
}

// finiteRow reads a row and refuses it where it is not finite.
func finiteRow(m *quant.Matrix, row int, w []float32) error {
	if err := m.Row(row, w); err != nil {
		return err
	}
	for c, x := range w {
		if x-x != 0 {
			return fmt.Errorf("%s: found %v at [%d, %d], want finite weights", m.Name, x, row, c)
		}
	}
	return nil
}

// pack writes the codes of a row: bytes, or eight of 4 bits to a word, the first in its lowest bits, each 8 more than
// it is.
func (f Format) pack(dst []byte, codes []int8) {
	if f.bits == 8 {
		for i, c := range codes {
			dst[i] = byte(c)
		}
		return
	}
	for i := range len(codes) / 2 {
		dst[i] = byte(codes[2*i]+8) | byte(codes[2*i+1]+8)<<4
	}
}

// putNumbers writes numbers that are exact in a type.
func putNumbers(dst []byte, all []float32, t models.DType) {
	for i, x := range all {
		bits := math.Float32bits(x)
		switch t {
		case models.BF16:
			half.BF16(bits >> 16).Put(dst[2*i:])
		case models.F16:
			half.F16Of(float64(x)).Put(dst[2*i:])
		default:
			binary.LittleEndian.PutUint32(dst[4*i:], bits)
		}
	}
}

// tensors describes what a matrix becomes, in the order in which compressed-tensors writes it.
func (f Format) tensors(m *quant.Matrix) []checkpoint.TensorInfo {
	module := m.Name[:len(m.Name)-len("weight")]
	rows, cols := int64(m.Rows), int64(m.Cols)
	dtype := map[models.DType]string{models.BF16: "BF16", models.F16: "F16", models.F32: "F32"}[m.DType]
	scale := checkpoint.TensorInfo{Name: module + "weight_scale", DType: dtype,
		Shape: []int64{rows, cols / int64(f.columns(m.Cols))}}
	if f.bits == 4 {
		packed := checkpoint.TensorInfo{Name: module + "weight_packed", DType: "I32", Shape: []int64{rows, cols / 8}}
		return []checkpoint.TensorInfo{packed, scale,
			{Name: module + "weight_shape", DType: "I64", Shape: []int64{2}}}
	}
	codes := "I8"
	if f.float {
		codes = "F8_E4M3"
	}
	return []checkpoint.TensorInfo{{Name: m.Name, DType: codes, Shape: []int64{rows, cols}}, scale}
}

// shapeOf is the content of weight_shape.
func shapeOf(m *quant.Matrix) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(m.Rows)), uint64(m.Cols))
}
