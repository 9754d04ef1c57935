package quant

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/models"
)

// packed reads integers in words: weight_packed [rows, columns packed], weight_shape, weight_scale, and
// weight_zero_point [rows packed, groups] where they are not symmetric.
func (s *scheme) packed(m *module) (*Matrix, error) {
	pack := 32 / s.bits
	rows, words, ok := m.matrixOf("weight_packed", "I32")
	if !ok {
		return nil, nil
	}
	w := &Matrix{Rows: rows}
	var err error
	if w.Cols, err = m.packedColumns(rows, words, pack); err != nil || m.bad {
		return nil, err
	}
	w.codes = ints{tensor: m.full("weight_packed"), bits: s.bits, perWord: pack, width: words,
		offset: -1 << (s.bits - 1)}
	w.Format.Code, w.Format.Zeros = codeOf(s.bits), !s.symmetric
	_, across := s.scale(m, w, floats)
	if !s.symmetric {
		m.shaped("weight_zero_point", "I32", []int64{int64((rows + pack - 1) / pack), int64(across)})
		w.zeros = ints{tensor: m.full("weight_zero_point"), bits: s.bits, perWord: pack, width: across,
			down: true, offset: w.codes.offset}
	}
	if !m.has("weight_g_idx") || m.bad {
		return w, nil
	}
	return w, m.groupOrder(w, across)
}

// packedColumns reads weight_shape, since the last word of a row need not be full.
func (m *module) packedColumns(rows, words, pack int) (cols int, err error) {
	t, ok := m.shaped("weight_shape", "I64 I32", []int64{2})
	if !ok {
		return 0, nil
	}
	err = m.read("weight_shape", func(data []byte) {
		var got [2]int64
		for i := range got {
			if t.DType == "I64" {
				got[i] = int64(leUint64(data[8*i:]))
			} else {
				got[i] = int64(int32(leUint32(data[4*i:])))
			}
		}
		most := int64(words) * int64(pack)
		if got[0] != int64(rows) || got[1] > most || got[1] <= most-int64(pack) {
			want := fmt.Sprintf("%d and %d to %d", rows, most-int64(pack)+1, most)
			m.problem("weight_shape", shape(got[:]...), want, "weight_packed holds as many")
			return
		}
		cols = int(got[1])
	})
	return cols, err
}

// groupOrder reads weight_g_idx, which old versions write for actorder "group": the group of each column,
// of which none may be empty. -1 anywhere stands for the order of the columns.
func (m *module) groupOrder(w *Matrix, groups int) error {
	const leaf = "weight_g_idx"
	if _, ok := m.shaped(leaf, "I32", []int64{int64(w.Cols)}); !ok {
		return nil
	}
	unset := false
	err := m.read(leaf, func(data []byte) {
		for c := range w.Cols {
			unset = unset || int32(leUint32(data[4*c:])) == -1
		}
	})
	if err != nil || unset {
		return err
	}
	if err := m.readOrder(leaf, w, groups); err != nil || m.bad || w.groups == nil {
		return err
	}
	count := make([]int, groups)
	for _, g := range w.groups {
		count[g]++
	}
	if g := slices.Index(count, 0); g >= 0 {
		m.problem(leaf, fmt.Sprintf("no column of group %d", g), "columns of each group", "")
	}
	return nil
}

// naive reads codes of a byte each: weight, weight_scale, and weight_zero_point where they are not symmetric.
func (s *scheme) naive(m *module) (*Matrix, error) {
	dtype, code := "I8", I8
	if s.float {
		dtype, code = "F8_E4M3", E4M3
	}
	rows, cols, ok := m.matrixOf("weight", dtype)
	if !ok {
		return nil, nil
	}
	w := &Matrix{Rows: rows, Cols: cols}
	w.bytes(m.full("weight"), !s.float)
	w.Format.Code, w.Format.Zeros = code, !s.symmetric
	_, across := s.scale(m, w, floats)
	if !s.symmetric && !m.bad {
		m.shaped("weight_zero_point", "I8", m.found["weight_scale"].Shape)
		w.zeros = ints{tensor: m.full("weight_zero_point"), bits: 8, perWord: 1, width: across, signed: true}
	}
	return w, nil
}

// fp4 reads nibbles: weight_packed [rows, columns / 2], weight_scale, and weight_global_scale of nvfp4.
func (s *scheme) fp4(m *module) (*Matrix, error) {
	rows, half, ok := m.matrixOf("weight_packed", "U8")
	if !ok {
		return nil, nil
	}
	w := &Matrix{Rows: rows, Cols: 2 * half}
	w.nibbles(m.full("weight_packed"))
	w.Format.Code = E2M1
	if s.format == "mxfp4-pack-quantized" {
		s.scale(m, w, "U8 F8_E8M0")
		w.DType, w.steps = models.BF16, steps{product: models.BF16}
		return w, nil
	}
	s.scale(m, w, "F8_E4M3")
	var err error
	w.factor, err = m.scalar("weight_global_scale")
	w.Format.Global = Divides
	w.DType, w.steps = models.BF16, steps{result: models.BF16}
	return w, err
}

// scale takes weight_scale, in the shape of the strategy, and returns how many scales there are down and across.
func (s *scheme) scale(m *module, w *Matrix, dtypes string) (down, across int) {
	down, across = w.setBlocks(s.rows, s.cols)
	if s.strategy == "group" || s.strategy == "tensor_group" {
		if w.Cols%w.scales.columns != 0 {
			m.problem("weight_scale", fmt.Sprintf("groups of %d columns", w.scales.columns),
				fmt.Sprintf("a divisor of the %d columns", w.Cols), "")
		}
	}
	shapes := [][]int64{{int64(down), int64(across)}}
	switch s.strategy {
	case "tensor":
		shapes = [][]int64{{1}, nil, {1, 1}}
	case "channel":
		shapes = append(shapes, []int64{int64(down)})
	}
	if t, ok := m.shaped("weight_scale", dtypes, shapes...); ok {
		w.setScales(t.Name, t.DType, across, 1)
	}
	return down, across
}
