package tests

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/stretchr/testify/require"
)

// Checkpoints of 4 and 8 bits that the quantisers' packages wrote are multiplied as they are: the kernel's image holds
// for every weight just (code − zero point) · scale, and what the package dequantises it to is that, rounded to its
// type. Kernels of one row compute on the executor what float64 does with the package's numbers; those of several
// have the same image. Of the smallest fixtures, whose heads no kernel has, each tensor is packed alone.
func TestCodesAreTheCheckpoints(t *testing.T) {
	formats, of := map[pipeline.Format]bool{}, map[string]pipeline.Format{}
	files, err := filepath.Glob("../models/quant/testdata/*/config.json")
	require.NoError(t, err)
	require.Greater(t, len(files), 30)
	for i, file := range files {
		dir := filepath.Dir(file)
		m, err := quant.OpenModel(dir, models.Reading{})
		require.NoError(t, err, dir)
		c, why := m.Coded()
		if m.Config().HeadDim%16 != 0 { // of the smallest ones no kernel can be built
			_, err := megakernel.Build(m.Config(), megakernel.Options{SMs: 2, Consumers: 2})
			require.ErrorContains(t, err, "head_dim", dir)
			holdsTensors(t, m, formsOf(m, c), dir, formats)
			require.NoError(t, m.Close())
			continue
		}
		if c == nil {
			require.NotEmpty(t, why)
			require.NoError(t, m.Close())
			continue
		}
		format := formatOf(t, c, dir)
		o := megakernel.Options{SMs: 2, Consumers: 2, Weights: format}
		if i%2 == 0 {
			o.Tokens = 3
		}
		mk, err := megakernel.Build(m.Config(), o)
		require.NoError(t, err, dir)
		formats[format], of[filepath.Base(dir)] = true, format
		holdsCodes(t, mk, m, c, dir)
		if o.Tokens == 0 {
			runsRightOn(t, mk, c, m.Config(), dir)
		}
		require.NoError(t, m.Close())
	}
	for _, f := range []pipeline.Format{pipeline.FormatNVFP4, pipeline.FormatMXFP4, pipeline.FormatE4M3,
		pipeline.FormatE4M3B128, pipeline.FormatI8, pipeline.FormatI4G32, pipeline.FormatI4G128, "i4g128-f16"} {
		require.True(t, formats[f], "no fixture has %s", f)
	}
	for name, want := range map[string]pipeline.Format{ // both versions of GPTQ, whose zero points differ by one
		"gptq_i4g32": "i4g32-f16", "gptq_i4g32_zero": "i4g32-zeros-f16", "gptq_v2_i4g32_zero_in_order": "i4g32-zeros-f16",
		"gptq_i8_row": "i8", "gptq_i8g32_zero": "i8g32-zeros-f16", "gptq_v2_i8g32_zero": "i8g32-zeros-f16",
		"gptq_i8g32_act_order": "", "gptq_v2_i4g32_zero": "", // of columns in any order no kernel has the codes
	} {
		require.Equal(t, want, of[name], name)
	}
}

// formsOf says in which form a tensor's codes are delivered: c's, or where that is nil its matrix's own; nil: none.
func formsOf(m *quant.Model, c *quant.Coded) func(tensor string) *quant.Coded {
	if c != nil {
		return func(string) *quant.Coded { return c }
	}
	forms, _ := m.Mixed()
	own := map[string]*quant.Coded{}
	for _, stored := range m.Config().Stored() {
		own[stored.Name] = forms[quant.MatrixOf(stored.First.Role)]
	}
	return func(tensor string) *quant.Coded { return own[tensor] }
}

// formatOf is the kernel's format of codes.
func formatOf(t *testing.T, c *quant.Coded, dir string) pipeline.Format {
	format, ok := pipeline.OwnFloats(c.Bits, c.Group), true
	if !c.Float {
		format, ok = pipeline.Own(c.Bits, c.Group, c.Zeros, c.F16)
	}
	require.True(t, ok, dir)
	return format
}

// Checkpoints whose matrices have forms of their own keep the codes of each that has one in all layers; the others are
// bf16 beside them. Kernels compute what float64 does with the package's numbers.
func TestCodesOfMixedCheckpoints(t *testing.T) {
	for name, want := range map[string]pipeline.Format{
		"gptq_dynamic":              "i8,qkv=bf16,o=bf16,down=i4g32-f16",
		"awq_i4g128":                "i4g128-zeros-f16,o=bf16",
		"awq_i4g64_skipped_sharded": "i4g128-zeros-f16,qkv=bf16,down=i4g64-zeros-f16",
	} {
		dir := "../models/quant/testdata/" + name
		m, err := quant.OpenModel(dir, models.Reading{})
		require.NoError(t, err, dir)
		c, why := m.Coded()
		require.Nil(t, c, dir)
		require.NotEmpty(t, why)
		forms, reasons := m.Mixed()
		require.Equal(t, len(quant.Matrices), len(forms)+len(reasons))
		for _, matrix := range quant.Matrices {
			own := pipeline.FormatBF16
			if forms[matrix] != nil {
				own = formatOf(t, forms[matrix], dir)
			} else {
				require.Contains(t, reasons[matrix], "model.layers.0.", dir)
			}
			require.Equal(t, want.For(matrix), own, "%s: %s", dir, matrix)
		}
		c = m.Join(forms)
		mk, err := megakernel.Build(m.Config(), megakernel.Options{SMs: 2, Consumers: 2, Weights: want})
		require.NoError(t, err, dir)
		image := make([]byte, mk.Plan.LayerBytes)
		require.NoError(t, mk.PackLayer(image, 0, c))
		for i := range mk.Plan.Layer {
			if p := &mk.Plan.Layer[i]; forms[p.Name] != nil {
				holdsRows(t, mk, m, forms[p.Name], 0, i, p, image, dir)
			}
		}
		runsRightOn(t, mk, c, m.Config(), dir)
		require.NoError(t, m.Close())
	}
}

// holdsCodes looks at every weight of the layers' images.
func holdsCodes(t *testing.T, mk *megakernel.Kernel, m *quant.Model, c *quant.Coded, dir string) {
	for layer := range mk.Config.Layers {
		image := make([]byte, mk.Plan.LayerBytes)
		require.NoError(t, mk.PackLayer(image, layer, c))
		for i := range mk.Plan.Layer {
			holdsRows(t, mk, m, c, layer, i, &mk.Plan.Layer[i], image, dir)
		}
	}
}

// holdsRows looks at every weight of matrix i of the plan table, which lies in an image of a layer.
func holdsRows(t *testing.T, mk *megakernel.Kernel, m *quant.Model, c *quant.Coded, layer, i int,
	p *pipeline.MatrixPlan, image []byte, dir string) {
	source := mk.Sources(i)
	holdsMatrix(t, m, c, p, image, dir, func(row int) (string, int) {
		at := source(row)
		return megakernel.TensorName(at.Tensor, layer), at.Row
	})
}

// holdsTensors packs each tensor of the layers that has codes in a form as a matrix of its own, which wants no kernel
// and so any head_dim, and looks at every weight.
func holdsTensors(t *testing.T, m *quant.Model, formOf func(tensor string) *quant.Coded, dir string,
	formats map[pipeline.Format]bool) {
	for _, stored := range m.Config().Stored() {
		c := formOf(stored.Name)
		if stored.First.Layer < 0 || stored.First.Vector || c == nil {
			continue
		}
		w, format := m.Matrix(stored.Name), formatOf(t, c, dir)
		plan, err := pipeline.New(pipeline.Request{SMs: 2, Layers: 1, SharedLimit: 1 << 17,
			Layer: []pipeline.Matrix{{Name: "w", Rows: w.Rows, K: w.Cols, Format: format}}})
		require.NoError(t, err)
		p, image := &plan.Layer[0], make([]byte, plan.LayerBytes)
		for tile := range p.Tiles {
			var rows [pipeline.TileRows]*pipeline.Int4Row
			for r := range min(pipeline.TileRows, w.Rows-tile*pipeline.TileRows) {
				n := format.Scales(w.Cols)
				rows[r] = &pipeline.Int4Row{Codes: make([]int8, w.Cols), Scales: make([]float32, n), Zeros: make([]int8, n)}
				require.NoError(t, c.Int4Row(stored.Name, tile*pipeline.TileRows+r, rows[r].Codes, rows[r].Scales,
					rows[r].Zeros))
			}
			require.NoError(t, p.PackCoded(image[p.ChunkStart(tile, 0):][:p.TileBytes()], &rows))
		}
		holdsMatrix(t, m, c, p, image, dir, func(row int) (string, int) { return stored.Name, row })
		formats[format] = true
	}
}

// holdsMatrix looks at every weight of a matrix in an image; source says which row of which tensor a row of it is.
func holdsMatrix(t *testing.T, m *quant.Model, c *quant.Coded, p *pipeline.MatrixPlan, image []byte, dir string,
	source func(row int) (tensor string, of int)) {
	digits := map[models.DType]float64{models.BF16: 0x1p-8, models.F16: 0x1p-11}
	for row := range p.Rows {
		name, of := source(row)
		w := m.Matrix(name)
		codes, scales, zeros := make([]int8, w.Cols), make([]float32, w.Blocks()), make([]int8, w.Blocks())
		require.NoError(t, w.Codes(of, codes))
		require.NoError(t, w.Scales(of, scales))
		require.NoError(t, w.Zeros(of, zeros))
		numbers := make([]float32, w.Cols)
		require.NoError(t, w.Row(of, numbers))
		columns := w.Cols
		if w.Format.Cols > 0 {
			columns = w.Format.Cols
		}
		got := meant(p, image[p.Start+int64(row/8)*p.TileBytes():][:p.TileBytes()], row%8)
		for k, v := range got {
			g := k / columns
			code, roundings := float64(int(codes[k])-int(zeros[g])), 1.0
			factor := 1.0
			switch {
			case c.Float && c.Bits == 4:
				roundings = 2
				code = float64(i4.Shape{E2M1: true}.Halves(codes[k])) / 2
				if w.Format.Global != quant.NoGlobal {
					factor = float64(w.Factor())
				}
				if w.Format.Global == quant.Divides {
					factor = float64(1 / w.Factor())
				}
			case c.Float:
				roundings = 2 // modelopt rounds the scale, too
				code = float64(quant.FromE4M3(byte(codes[k])))
			}
			want, most := code*float64(scales[g])*factor, 1e-7+math.Abs(v)*roundings*digits[w.DType]
			if v != want || !(math.Abs(v-float64(numbers[k])) <= most) {
				require.Equal(t, want, v, "%s: %s [%d, %d]", dir, name, of, k)
				require.InDelta(t, v, float64(numbers[k]), most, "%s: %s [%d, %d]", dir, name, of, k)
			}
		}
	}
}

// meant is what a row of a tile means by package i4.
func meant(p *pipeline.MatrixPlan, tile []byte, row int) (all []float64) {
	shape, _ := p.Format.Int4(p.K)
	scale := float32(0)
	if p.Format.ScaleBytes() > 0 {
		scale = math.Float32frombits(binary.LittleEndian.Uint32(tile[int(p.TileBytes())-p.Format.ScaleBytes()+4*row:]))
	}
	for k := range p.K {
		if p.Format == pipeline.FormatE4M3B128 {
			code, scale := pipeline.E4M3BlockOffset(row, k)
			all = append(all,
				float64(pipeline.FromE4M3(tile[code]))*float64(math.Float32frombits(binary.LittleEndian.Uint32(tile[scale:]))))
			continue
		}
		if p.Format == pipeline.FormatE4M3 {
			scale := math.Float32frombits(binary.LittleEndian.Uint32(tile[p.Format.Of(p.KPadded)+4*row:]))
			all = append(all, float64(pipeline.FromE4M3(tile[pipeline.E4M3Offset(row, k)]))*float64(scale))
			continue
		}
		if k%(shape.Run*i4.Columns) == 0 && k > 0 {
			tile = tile[shape.RunBytes():]
		}
		in := k % (shape.Run * i4.Columns)
		code := shape.CodeOf(tile, row, in)
		if shape.Group == i4.Whole {
			all = append(all, float64(code)*float64(scale))
			continue
		}
		entry := tile[shape.Entry(row, in/shape.Group):]
		if shape.E2M1 {
			number, by := float64(shape.Halves(code))/2, math.Ldexp(1, int(entry[0])-127)
			if shape.Group == 16 {
				by = float64(quant.FromE4M3(byte(shape.ScaleBits(entry))))
				number *= by
				by = float64(scale)
			}
			all = append(all, number*by)
			continue
		}
		bits := binary.LittleEndian.Uint16(entry)
		scale := math.Float32frombits(uint32(bits) << 16)
		if p.Format.F16Scales() {
			scale = half.F16(bits).Float32()
		}
		zero := 0
		if shape.Zeros {
			zero = -int(int16(binary.LittleEndian.Uint16(entry[2:]))) / shape.Times()
		}
		all = append(all, float64(int(code)-zero)*float64(scale))
	}
	return all
}
