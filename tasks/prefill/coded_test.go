package prefill_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/prefill"
	"github.com/stretchr/testify/require"
)

// format is that of the weights.
func (p prompt) format() pipeline.Format {
	if p.coded {
		return pipeline.FormatE4M3
	}
	return pipeline.FormatBF16
}

// padded is what spans of tokens are padded to.
func (p prompt) padded() int {
	if p.apart {
		return prefill.Tokens(p.groups)
	}
	return prefill.Tokens(p.groups) * p.cluster
}

// codes declares what X is rounded to.
func (p prompt) codes(k *dsl.Kernel) *prefill.Codes {
	columns := prefill.CodedColumns(p.k)
	return &prefill.Codes{K: columns, T: p.tokens,
		Codes:  dsl.Global[dsl.U32](k, "codes", int64(p.tokens*columns/4), dsl.Align(128)),
		Scales: dsl.Global[dsl.F32](k, "token_scales", int64(p.tokens), dsl.Align(16))}
}

// factors are what a prompt's products multiply.
type factors struct {
	token func(token, k int) float64
	row   func(layer, row, k int) float64
}

// factors are X and W. Of a coded prompt they are the codes of X that a run has written times their scales, which
// are held against X, and W as e4m3 has it.
func (p prompt) factors(t *testing.T, mem *interp.Memory, w [][]half.BF16, x []half.BF16) factors {
	t.Helper()
	if !p.coded {
		return factors{func(token, k int) float64 { return rig.FromBF16(x[token*p.k+k]) },
			func(layer, row, k int) float64 { return rig.FromBF16(w[layer][row*p.k+k]) }}
	}
	columns := prefill.CodedColumns(p.k)
	codes, scales := mem.Bytes("codes"), rig.F32s(mem.Bytes("token_scales"))
	code := func(token, k int) float64 {
		return float64(pipeline.FromE4M3(codes[token/8*8*columns+pipeline.E4M3Offset(token%8, k)]))
	}
	for token := range p.n {
		if p.last && token < (p.n-1)/128*128 {
			continue
		}
		most := 0.0
		for _, v := range x[token*p.k:][:p.k] {
			most = max(most, math.Abs(rig.FromBF16(v)))
		}
		require.InEpsilon(t, most/448, scales[token], 1e-6, "scale of token %d", token)
		for k := range columns {
			want := 0.0
			if k < p.k {
				want = rig.FromBF16(x[token*p.k+k]) / scales[token]
			}
			// half a step of 3 bits, or of the least number, and what the quotient rounds
			require.InDelta(t, want, code(token, k), max(math.Abs(want)/16, 0x1p-10)*(1+1e-5), "token %d column %d", token, k)
		}
	}
	rows := make([][]float64, len(w))
	for layer := range w {
		rows[layer] = p.packedValues(w[layer])
	}
	return factors{func(token, k int) float64 { return code(token, k) * scales[token] },
		func(layer, row, k int) float64 { return rows[layer][row*p.k+k] }}
}

// packedValues are a layer's weights as e4m3 has them, with a scale a row.
func (p prompt) packedValues(w []half.BF16) (values []float64) {
	for row := range p.rows {
		most := 0.0
		for _, v := range w[row*p.k:][:p.k] {
			most = max(most, math.Abs(rig.FromBF16(v)))
		}
		scale := pipeline.E4M3Scale(float32(most))
		for _, v := range w[row*p.k:][:p.k] {
			values = append(values, float64(pipeline.FromE4M3(pipeline.ToE4M3(v.Float32()/scale)))*float64(scale))
		}
	}
	return values
}

// Stages that end amid a row of codes are refused: they would multiply what follows it, which may be NaN.
func TestPrefillGEMMInE4M3RefusesStagesThatEndAmidARow(t *testing.T) {
	p := prompt{rows: 16, k: 192, columns: 16, tokens: 64, n: 64, groups: 1, cluster: 1, sms: 1, stages: 2, layers: 1,
		depth: 128, coded: true}
	_, _, err := p.make(t)
	require.ErrorContains(t, err, "w: 192 columns in stages of 128 by an input of 192, want a multiple, and as many")
}
