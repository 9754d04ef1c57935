package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
)

// How a GEMM multiplies weights of 4 bits: in f16, as which their input comes from memory.
//
// Codes become f16 by masks alone. A nibble of an integer, with its top bit turned a number from 0 to 15, is as the
// lowest bits of an f16 2⁻²⁴ of that number, and as bits 4 to 7 sixteen times as much. What is too much, 8 and with
// zero points these, is taken away from each scale group's sum, times the sum of its input, which is a product, too. An
// E2M1 is an f16 of 2⁻¹⁴ of it with its sign and its three other bits each in their places.
//
// Weights of two tiles are the 16 rows of operand A, and eight tokens are the columns of B. A product is of a word of
// each tile, four columns of a lane: bytes 0 and 2 are one pair of A, and 1 and 3 the other. Columns of a scale group
// of half a block at most are summed, and added in f32 times the scale.

// inNibbles is whether a GEMM multiplies a format so.
func inNibbles(f pipeline.Format) bool { return inFixed(f) && f.Bits() == 4 }

// rowsOfA is whether a GEMM has the weights of two tiles as operand A.
func (g *GEMM) rowsOfA() bool {
	return g.In.Padded() == 8 && !inFixed(g.M.Format) || inNibbles(g.M.Format)
}

// chains are the n sums that a half of a block has, each of words words of a lane.
func (p *Int4) chains() (n, words int) {
	switch p.Shape.Group {
	case 16:
		return 4, 1
	case 32:
		return 2, 2
	}
	return 1, 4
}

// back is what makes up for the size of codes and of the input as f16.
func (p *Int4) back() float64 {
	if p.Shape.E2M1 {
		return 1 << 14 / inputScale
	}
	return 1 << 24 / inputScale
}

// halfBlock is a block's input of eight tokens, in f16: the lane's of one of them.
type halfBlock struct {
	words [2][]*dsl.Var[dsl.BF16x2] // [half of the block][2·word + pair]
	less  [][]*dsl.Var[dsl.F32]     // [scale group][token]: −8 times the input's sum, in the size of its codes; two tokens
}

// offsets is how many scale groups of a block have a sum of their input: none of E2M1, and one for whole rows.
func (p *Int4) offsets() int {
	if p.Shape.E2M1 {
		return 0
	}
	return max(1, p.Shape.PerBlock())
}

func newHalfBlock(k *dsl.Kernel, p *Int4) *halfBlock {
	b := &halfBlock{less: many(p.offsets(), func() []*dsl.Var[dsl.F32] { return dsl.NewArray(k.F32(0), 2, "x_less") })}
	for half := range b.words {
		b.words[half] = dsl.NewArray(dsl.Lit[dsl.BF16x2](k, 0), 8, "x")
	}
	return b
}

// set takes the block's four k groups: x is two words' pairs of neighbours of each.
func (b *halfBlock) set(x [][]*dsl.Var[dsl.BF16x2]) {
	for i := range 8 { // words of the block
		group, at := x[i/2], b.words[i/4][i%4*2:]
		lo, hi := dsl.Bits[dsl.U32](group[i%2*2].Get()), dsl.Bits[dsl.U32](group[i%2*2+1].Get())
		at[0].Set(dsl.Bits[dsl.BF16x2](dsl.Permute(lo, hi, 0x5410)))
		at[1].Set(dsl.Bits[dsl.BF16x2](dsl.Permute(lo, hi, 0x7632)))
	}
}

// sum makes the sums of the block's input. Two words of a lane, pairs of its token, are operand A: a token's sum is
// that of two rows, in all columns, and a lane asks those of its two tokens for it. All lanes of a warp call it
// together.
func (b *halfBlock) sum(k *dsl.Kernel, lane u32) {
	for g, less := range b.less {
		var parts []f32
		eight := dsl.Lit[dsl.BF16x2](k, 0x80088008) // −8·2⁻²⁴ twice
		if 2*g >= max(2, len(b.less)) {             // codes are 16 times as large
			eight = dsl.Lit[dsl.BF16x2](k, 0x80808080)
		}
		each := 8 / len(b.less)
		for first := each * g; first < each*(g+1); first += 4 { // products of a chain wait for each other
			d := fourF32Zeros(k)
			for i := first; i < min(first+4, each*(g+1)); i += 2 {
				one, two := b.pairs(i/4, i%4), b.pairs(i/4, i%4+1)
				d = InHalf([4]pair{one[0], one[1], two[0], two[1]}, [2]pair{eight, eight}, d)
			}
			parts = append(parts, d[0].Add(d[2]))
			dsl.Optional(d[1])
			dsl.Optional(d[3])
		}
		sum := parts[0]
		for _, v := range parts[1:] {
			sum = sum.Add(v)
		}
		first := lane.RemC(4).MulC(8) // of its two tokens
		less[0].Set(dsl.Shfl(sum, first))
		less[1].Set(dsl.Shfl(sum, first.AddC(4)))
	}
}

// pairs are operand B of a word.
func (b *halfBlock) pairs(half, word int) [2]pair {
	return [2]pair{b.words[half][2*word].Get(), b.words[half][2*word+1].Get()}
}

func fourF32Zeros(k *dsl.Kernel) [4]f32 { return [4]f32{k.F32(0), k.F32(0), k.F32(0), k.F32(0)} }

// nibbles are the four codes of a word in a half of a block, as f16: bytes 0 and 2's, and 1 and 3's; of E2M1 those of a
// half's columns 0 and 2, and 1 and 3.
func (p *Int4) nibbles(k *dsl.Kernel, w u32, half int) [2]pair {
	asPair := dsl.Bits[dsl.BF16x2, dsl.U32]
	if p.Shape.E2M1 {
		bytes := []uint16{0x1100, 0x3322}[half] // each twice: a nibble at the top of each half of a word, or below it
		odd := dsl.Permute(w, w, bytes)
		signed := func(sign, rest u32) pair { return asPair(sign.AndC(0x80008000).Or(rest.AndC(0x0e000e00))) }
		return [2]pair{signed(odd.ShlC(4), odd.ShlC(1)), signed(odd, odd.ShrC(3))}
	}
	mask := []int{0x000f000f, 0x00f000f0}[half]
	turned := func(w u32) pair { return asPair(dsl.XorAnd(w, k.U32(0x88888888), k.U32(mask))) }
	return [2]pair{turned(w), turned(w.ShrC(8))}
}

// nibbleScale is what a chain's sum is multiplied by, and with zero points what the input's sum times −8 is; without
// the scale where a row is one scale group.
type nibbleScale struct{ ofSum, less f32 }

// nibbleScales are those of a tile, [half][block·chains + chain].
func (p *Int4) nibbleScales(e *grid.Env, w *Int4Weights) (all [2][]nibbleScale) {
	n, _ := p.chains()
	scales, sixteenth := p.Scales(e, w), e.K.F32(1.0/16)
	for half := range all {
		for i := range w.codes {
			for c := range n {
				at := p.scaleOf(i, c)
				if p.Sixteen() {
					at = 4*i + c
				}
				by := scales[half][at]
				if p.Shape.Group == i4.Whole {
					by.Scale = e.K.F32(1)
				}
				s := nibbleScale{ofSum: by.Scale}
				if half == 1 && !p.Shape.E2M1 {
					s.ofSum = by.Scale.Mul(sixteenth)
				}
				if p.Shape.Zeros { // 1 + zero point / 8
					zero := dsl.FMA(dsl.Cast[dsl.F32](by.Zero), e.K.F32(-1.0/128), e.K.F32(1))
					s.less = dsl.Optional(s.ofSum.Mul(dsl.Optional(zero)))
				}
				all[half] = append(all[half], s)
			}
		}
	}
	return all
}

// multiplyNibbles adds the products of the warp's i-th piece of one or two tiles.
func (g *GEMM) multiplyNibbles(e *grid.Env, p *Int4, acc tilePair, w []*Int4Weights, x [][]*halfBlock) {
	n, words := p.chains()
	var scales [][2][]nibbleScale // [tile]
	for _, tile := range w {
		scales = append(scales, p.nibbleScales(e, tile))
	}
	blocks, zero := len(w[0].codes), dsl.Lit[dsl.BF16x2](e.K, 0)
	for c := range n { // chains of all blocks, halves and sets take turns; without zero points they begin with less
		sums := make([][4]f32, 2*blocks*len(x))
		for i := range sums {
			block, half, set := i/len(x)/2, i/len(x)%2, i%len(x)
			sums[i] = fourF32Zeros(e.K)
			if less := x[set][block].lessOf(half, c); less != nil && !p.Shape.Zeros {
				sums[i] = [4]f32{less[0].Get(), less[1].Get(), less[0].Get(), less[1].Get()}
			}
		}
		for j := words * c; j < words*(c+1); j++ {
			for i := range 2 * blocks {
				block, half := i/2, i%2
				a := [4]pair{zero, zero, zero, zero}
				for t := range w {
					v := p.nibbles(e.K, w[t].codes[block][j], half)
					a[t], a[2+t] = v[0], v[1]
				}
				if p.Exchanged {
					half = 1 - half
				}
				for set := range x {
					sum := &sums[i*len(x)+set]
					*sum = InHalf(a, x[set][block].pairs(half, j), *sum)
				}
			}
		}
		for i := range sums {
			block, half, set := i/len(x)/2, i/len(x)%2, i%len(x)
			var of []nibbleScale
			for t := range scales {
				of = append(of, scales[t][half][block*n+c])
			}
			var less []*dsl.Var[dsl.F32]
			if p.Shape.Zeros {
				less = x[set][block].lessOf(half, c)
			}
			p.addNibbles(acc[set], sums[i], of, less)
		}
	}
}

// lessOf is what comes with a chain of a half: with the first half's where both share it.
func (b *halfBlock) lessOf(half, chain int) []*dsl.Var[dsl.F32] {
	switch n := len(b.less); {
	case n == 0 || n == 1 && half == 1:
		return nil
	default:
		return b.less[half*(n/2)+chain]
	}
}

// addNibbles adds a chain's sums, of two tokens for each tile, times their scales, and what less is for each token.
func (p *Int4) addNibbles(acc []*dsl.Var[dsl.F32], sums [4]f32, of []nibbleScale, less []*dsl.Var[dsl.F32]) {
	for i, v := range sums {
		if i/2 >= len(of) {
			dsl.Optional(v)
			continue
		}
		acc[i].Set(dsl.FMA(v, of[i/2].ofSum, acc[i].Get()))
		if less != nil {
			acc[i].Set(dsl.FMA(less[i%2].Get(), of[i/2].less, acc[i].Get()))
		}
	}
}
