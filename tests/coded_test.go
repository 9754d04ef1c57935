package tests

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
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
// have the same image.
func TestCodesAreTheCheckpoints(t *testing.T) {
	formats := map[pipeline.Format]bool{}
	dirs, err := filepath.Glob("../models/quant/testdata/*_[iw][48]*/config.json")
	require.NoError(t, err)
	floats, err := filepath.Glob("../models/quant/testdata/*[mef][4tp][m8]*/config.json") // of e4m3 and fp8
	require.NoError(t, err)
	require.Greater(t, len(floats), 4)
	fours, err := filepath.Glob("../models/quant/testdata/*fp4*/config.json")
	require.NoError(t, err)
	require.Greater(t, len(fours), 3)
	floats = append(floats, fours...)
	files := append(dirs, floats...)
	slices.Sort(files)
	for i, file := range slices.Compact(files) {
		dir := filepath.Dir(file)
		m, err := quant.OpenModel(dir, models.Reading{})
		require.NoError(t, err, dir)
		c, why := m.Coded()
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
		if m.Config().HeadDim%16 != 0 { // of the smallest ones
			require.ErrorContains(t, err, "head_dim", dir)
			require.NoError(t, m.Close())
			continue
		}
		require.NoError(t, err, dir)
		formats[format] = true
		holdsCodes(t, mk, m, c, dir)
		if o.Tokens == 0 {
			runsRightOn(t, mk, c, m.Config(), dir)
		}
		require.NoError(t, m.Close())
	}
	require.Greater(t, len(formats), 3)
	require.True(t, formats[pipeline.FormatNVFP4] && formats[pipeline.FormatMXFP4])
}

// formatOf is the kernel's format of codes.
func formatOf(t *testing.T, c *quant.Coded, dir string) pipeline.Format {
	format, ok := pipeline.FormatE4M3, true
	switch {
	case c.Bits == 4 && c.Group == 16:
		format = pipeline.FormatNVFP4
	case c.Bits == 4:
		format = pipeline.FormatMXFP4
	case c.Group > 0:
		format = pipeline.FormatE4M3B128
	}
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
	digits, source := map[models.DType]float64{models.BF16: 0x1p-8, models.F16: 0x1p-11}, mk.Sources(i)
	for row := range p.Rows {
		at := source(row)
		name := megakernel.TensorName(at.Tensor, layer)
		w := m.Matrix(name)
		codes, scales, zeros := make([]int8, w.Cols), make([]float32, w.Blocks()), make([]int8, w.Blocks())
		require.NoError(t, w.Codes(at.Row, codes))
		require.NoError(t, w.Scales(at.Row, scales))
		require.NoError(t, w.Zeros(at.Row, zeros))
		numbers := make([]float32, w.Cols)
		require.NoError(t, w.Row(at.Row, numbers))
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
			require.Equal(t, code*float64(scales[g])*factor, v, "%s: %s [%d, %d]", dir, name, at.Row, k)
			require.InDelta(t, v, float64(numbers[k]), 1e-7+math.Abs(v)*roundings*digits[w.DType], "%s: %s [%d, %d]", dir, name,
				at.Row, k)
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
			number, by := float64(shape.Halves(code))/2, float64(math.Float32frombits(uint32(shape.ScaleBits(entry))<<16))
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
