package draw_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/stretchr/testify/require"
)

// The known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
func TestPhiloxHasItsAuthorsAnswers(t *testing.T) {
	const ones = 1<<32 - 1
	for _, c := range []struct {
		key           [2]uint32
		counter, want [4]uint32
	}{
		{[2]uint32{}, [4]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[2]uint32{ones, ones}, [4]uint32{ones, ones, ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		require.Equal(t, c.want, draw.Philox(c.key, c.counter))
	}
}

// row draws at a temperature.
func row(temperature float64, seed uint32) draw.Row {
	return draw.Row{draw.RowFlags: draw.FlagDraws, draw.RowScale: math.Float32bits(float32(math.Log2E / temperature)),
		draw.RowNats: math.Float32bits(float32((1 << draw.NatBits) / temperature)), draw.RowFar: draw.Farthest,
		draw.RowSeedLo: seed}
}

// By Pearson's χ² draws follow the softmax in float64, flat or peaked. The bound is passed by chance once in 10⁶
// (Wilson and Hilferty's approximation); a generator that is off by 2 % at a token of a twentieth fails with 10⁶ draws.
func TestDrawsFollowTheSoftmax(t *testing.T) {
	n := deep.Count(1_000_000, 20_000)
	for i, c := range []struct {
		vocab               int
		spread, temperature float64
		topK                uint32
		topP                float64
	}{{24, 1, 1, 0, 0}, {24, 0, 1, 0, 0}, {24, 3, 0.8, 0, 0}, {50, 2, 1.3, 12, 0}, {50, 2, 1, 20, 0.9},
		{24, 2, 1, 0, 0.8}} {
		logits := make([]float32, c.vocab)
		for j := range logits {
			logits[j] = float32(c.spread * math.Sin(float64(7*j*j+i)))
		}
		r := row(c.temperature, uint32(100+i))
		if c.topK > 0 {
			r[draw.RowFlags] |= draw.FlagTopK
			r[draw.RowTopK] = c.topK
		}
		if c.topP > 0 {
			r[draw.RowFlags] |= draw.FlagTopP
			r[draw.RowTopP] = math.Float32bits(float32(c.topP))
		}
		stays, total := r.Stays(logits), 0.0
		for _, x := range logits {
			if stays(x) {
				total += math.Exp(float64(x) / c.temperature)
			}
		}
		count := make([]int, c.vocab)
		for position := range n {
			count[r.ChooseOf(stays, logits, uint32(position))]++
		}
		chi, free := 0.0, -1.0
		for j, x := range logits {
			if !stays(x) {
				require.Zero(t, count[j])
				continue
			}
			want := float64(n) * math.Exp(float64(x)/c.temperature) / total
			chi += (float64(count[j]) - want) * (float64(count[j]) - want) / want
			free++
		}
		bound := free * math.Pow(1-2/(9*free)+4.75*math.Sqrt(2/(9*free)), 3)
		require.Less(t, chi, bound, "%+v: %d degrees of freedom", c, int(free))
	}
}

// Over a large vocabulary of equal logits each stretch of tokens comes as often as others: the tokens that win have
// random numbers far below what a float's distance from 1 holds.
func TestDrawsFromManyTokensAreUniform(t *testing.T) {
	deep.Only(t)
	const vocab, parts, n = 1 << 15, 32, 20_000
	logits, count := make([]float32, vocab), make([]int, parts)
	for i := range logits {
		logits[i] = float32(i/(vocab/parts)) / 16
	}
	total := 0.0
	for i := range parts {
		total += math.Exp(float64(i) / 16)
	}
	r := row(1, 3)
	for position := range n {
		count[r.Choose(logits, uint32(position))/(vocab/parts)]++
	}
	chi := 0.0
	for i := range parts {
		want := n * math.Exp(float64(i)/16) / total
		chi += (float64(count[i]) - want) * (float64(count[i]) - want) / want
	}
	require.Less(t, chi, 81.0, "of 31 degrees of freedom: passed by chance once in 10⁶, about")
}
