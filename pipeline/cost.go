package pipeline

import "slices"

// SMBytes is what SM sm streams of weights, padding included, in one layer (or FinalLayer).
func (p *Plan) SMBytes(sm, layer int) int64 {
	n := int64(0)
	for _, m := range p.Matrices(layer) {
		n += int64(m.Count[sm]) * int64(m.Format.Of(m.KPadded))
	}
	return n
}

// StreamedBytes is what all SMs together stream of weights in a step, padding included.
func (p *Plan) StreamedBytes() (n int64) {
	for sm := range p.SMs {
		n += int64(p.Layers)*p.SMBytes(sm, 0) + p.SMBytes(sm, FinalLayer)
	}
	return n
}

// MaxSMBytes is the largest SMBytes over all SMs.
func (p *Plan) MaxSMBytes(layer int) int64 {
	most := int64(0)
	for s := range p.SMs {
		most = max(most, p.SMBytes(s, layer))
	}
	return most
}

// WeightBytes is what one step must read of weights: the matrices once, unpadded.
func (p *Plan) WeightBytes() int64 {
	n := int64(0)
	for _, m := range p.Layer {
		n += int64(p.Layers) * m.WeightBytes()
	}
	for _, m := range p.Final {
		n += m.WeightBytes()
	}
	return n
}

// WeightBytes is what the matrix takes in its format, unpadded, with scales and zero points. Packed it may take more: a
// zero point, which has as many bits as a code, takes 16.
func (m *Matrix) WeightBytes() int64 {
	n := int64(m.Rows) * int64(m.K) * int64(m.Format.Bits()) / 8
	if m.Format.ScaleBytes() > 0 {
		n += 4 * int64(m.Rows)
	}
	if m.Format.Blocks() {
		n += 4 * int64(CeilDiv(m.Rows, BlockSize)*CeilDiv(m.K, BlockSize))
	}
	if shape, ok := m.Format.Int4(m.K); ok && shape.PerBlock() > 0 {
		bits := 16
		if m.Format.E2M1() {
			bits = 8
		}
		if shape.Zeros {
			bits += shape.Bits()
		}
		n += int64(m.Rows) * int64(CeilDiv(m.K, shape.Group)*bits) / 8
	}
	return n
}

// Efficiency says how even the shares are: mean over SMs ÷ largest, of bytes, from 0
// (exclusive) to 1. Where every SM streams at the same rate it is the share of that
// rate the whole reaches. A Matrix figure below Layer's is made up for as long as the
// ring reaches beyond the matrix's end.
type Efficiency struct {
	Layer       float64   // over a whole layer
	LayerMatrix []float64 // over each matrix of a layer
	Final       float64   // over the final phase; 1 if there is none
	FinalMatrix []float64
	Step        float64 // over a step whose layers each wait for their slowest SM
}

// Efficiency computes the evenness of the shares.
func (p *Plan) Efficiency() Efficiency {
	e := Efficiency{LayerMatrix: p.evenness(p.Layer), FinalMatrix: p.evenness(p.Final), Final: 1}
	layer, final := p.MaxSMBytes(0), p.MaxSMBytes(FinalLayer)
	ofLayer, ofFinal := streamed(p.Layer), streamed(p.Final)
	e.Layer = ofLayer / float64(p.SMs) / float64(layer)
	if final > 0 {
		e.Final = ofFinal / float64(p.SMs) / float64(final)
	}
	e.Step = (float64(p.Layers)*ofLayer + ofFinal) / float64(p.SMs) / (float64(p.Layers)*float64(layer) + float64(final))
	return e
}

// streamed is what goes through the ring of matrices; scales of rows do not.
func streamed(ms []MatrixPlan) (n float64) {
	for i := range ms {
		n += float64(ms[i].StreamedBytes())
	}
	return n
}

func (p *Plan) evenness(ms []MatrixPlan) []float64 {
	e := make([]float64, len(ms))
	for i := range ms {
		e[i] = float64(ms[i].Tiles) / float64(p.SMs) / float64(slices.Max(ms[i].Count))
	}
	return e
}
