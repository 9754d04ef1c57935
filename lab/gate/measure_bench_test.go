package gate

import (
	"math/rand/v2"
	"testing"
)

// What one position of Llama-3's vocabulary costs one core.
func BenchmarkMeasure(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	rows := [3][]float32{}
	for i := range 128256 {
		x := 4 * random.NormFloat64()
		for r := range rows {
			rows[r] = append(rows[r], float32(x+0.01*random.NormFloat64()*float64(r)))
		}
		_ = i
	}
	for b.Loop() {
		if _, err := Measure(rows[0], rows[1], rows[2], 1e-3); err != nil {
			b.Fatal(err)
		}
	}
}
