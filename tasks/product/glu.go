package product

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// GLU is what a gated MLP makes of a pair of rows of gate and up (Shazeer 2020). The zero value is SwiGLU.
type GLU struct {
	GELU bool // the activation is GELU by tanh, and not SiLU
	Bias Rows // of the packed matrix; nil for none
}

// Epilogue stores act(gate)·up of pairs of rows from element from of act on, rounded to what the next product's format
// takes: from + i of rows 2i and 2i + 1. scale is RMSNorm's. silu(x) = x/(1 + e^−x) is −0 far below zero and NaN at
// −inf, as the formula is; NaN stays.
func (g GLU) Epilogue(e *grid.Env, act dsl.Buf[dsl.BF16], from u32, format pipeline.Format, scale NormScale) Epilogue {
	return func(row u32, y0, y1 f32) {
		gate, up := g.Of(e.K, row, y0, y1, scale())
		act.Store(from.Add(row.DivC(2)), inputElement(e.K, format, gate.Mul(up)))
	}
}

// Packets is Epilogue whose elements are passed in LL packets: of rows 8i to 8i + 7 packet i.
func (g GLU) Packets(e *grid.Env, act *VectorPackets, format pipeline.Format, scale NormScale) EightRows {
	return func(row u32, y []f32) {
		by := scale()
		var x []f32
		for i := 0; i < len(y); i += 2 {
			gate, up := g.Of(e.K, dsl.Optional(row.AddC(i)), y[i], y[i+1], by)
			x = append(x, gate.Mul(up))
		}
		act.StorePairs(e, row.DivC(8), InputOf(e.K, format, x[0], x[1]), InputOf(e.K, format, x[2], x[3]))
	}
}

// Of is act(gate) and up. GELU by tanh, x/2·(1+tanh(u)) with u = √(2/π)·(x+0.044715·x³), is x/(1+e^−2u), so it costs
// two products more than SiLU.
func (g GLU) Of(k *dsl.Kernel, row u32, y0, y1, scale f32) (gate, up f32) {
	gate, up = y0.Mul(scale), y1.Mul(scale)
	if g.Bias != nil {
		b := g.Bias(row)
		gate, up = gate.Add(b[0]), up.Add(b[1])
	}
	exponent := func() f32 { return gate.Mul(k.F32(-math.Log2E)) }
	if g.GELU {
		c := -2 * math.Log2E * math.Sqrt(2/math.Pi)
		exponent = func() f32 { return gate.Mul(dsl.FMA(gate.Mul(gate), k.F32(0.044715*c), k.F32(c))) }
	}
	return gate.Mul(dsl.Rcp(dsl.Exp2(exponent()).Add(k.F32(1)))), up
}

// Columns is Epilogue of several tokens: act is in the order in which products read it, out.K columns of out.T tokens.
func (g GLU) Columns(e *grid.Env, out Activations, act dsl.Buf[dsl.BF16], scale ColumnScale) ColumnEpilogue {
	k := e.K
	if p := out.problem("SwiGLU", act); p != "" {
		k.Require(false, "%s", p)
		return func(_, _ u32, _, _ f32) {}
	}
	return func(row, token u32, y0, y1 f32) {
		gate, up := g.Of(k, row, y0, y1, scale(token))
		act.Store(out.At(token, row.DivC(2)), inputElement(k, out.Format, gate.Mul(up)))
	}
}
