package tasks

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// How a GEMM multiplies weights of 4 bits: in f16, as which their input comes from memory.
//
// Codes become f16 by masks alone. A nibble of an integer, with its top bit turned a number from 0 to 15, is as the
// lowest bits of an f16 2⁻²⁴ of that number, and as bits 4 to 7 sixteen times as much. What is too much, 8 and with
// zero points these, is taken away where sums begin: with so many times the input's sum, which is a product, too. An
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

// chains is how many sums of their own a half of a block has, of so many words of a lane.
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
	words  [2][]*dsl.Var[dsl.BF16x2] // [half of the block][2·word + pair]
	before [2][]*dsl.Var[dsl.F32]    // [half][2·chain]: −8 times the sums of two tokens' input, as the codes are scaled
}

func newHalfBlock(k *dsl.Kernel, p *Int4) *halfBlock {
	b := &halfBlock{}
	n, _ := p.chains()
	for half := range b.words {
		b.words[half] = dsl.NewArray(dsl.Lit[dsl.BF16x2](k, 0), 8, "x")
		if !p.Shape.E2M1 {
			b.before[half] = dsl.NewArray(k.F32(0), 2*n, "x_before")
		}
	}
	return b
}

// set takes the block's four k groups: x is two words' pairs of neighbours of each.
func (b *halfBlock) set(k *dsl.Kernel, p *Int4, x [][]*dsl.Var[dsl.BF16x2]) {
	n, words := p.chains()
	for half := range b.words {
		for j := range 4 {
			group := x[2*half+j/2]
			lo, hi := dsl.Bits[dsl.U32](group[j%2*2].Get()), dsl.Bits[dsl.U32](group[j%2*2+1].Get())
			b.words[half][2*j].Set(dsl.Bits[dsl.BF16x2](dsl.Permute(lo, hi, 0x5410)))
			b.words[half][2*j+1].Set(dsl.Bits[dsl.BF16x2](dsl.Permute(lo, hi, 0x7632)))
		}
		if p.Shape.E2M1 {
			continue
		}
		eight := dsl.Lit[dsl.BF16x2](k, []int64{0x80088008, 0x80808080}[half]) // −8·2⁻²⁴, and −8·2⁻²⁰
		for c := range n {
			d := fourF32Zeros(k)
			for j := words * c; j < words*(c+1); j++ {
				d = productInHalf([4]pair{eight, eight, eight, eight}, b.pairs(half, j), d)
			}
			b.before[half][2*c].Set(d[0])
			b.before[half][2*c+1].Set(d[1])
			dsl.Optional(d[2])
			dsl.Optional(d[3])
		}
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
		signed := func(w u32) pair {
			return asPair(w.AndC(0x80008000).Or(w.ShrC(3).AndC(0x0e000e00)))
		}
		odd := dsl.Permute(w, w, bytes)
		return [2]pair{signed(odd.ShlC(4)), signed(odd)}
	}
	mask, top := 0x000f000f, 0x00080008
	if half == 1 {
		mask, top = 0x00f000f0, 0x00800080
	}
	return [2]pair{asPair(w.AndC(mask).XorC(top)), asPair(w.ShrC(8).AndC(mask).XorC(top))}
}

// nibbleScale are a row's scale of a chain as the chain is scaled, and what its sum begins with is multiplied by; the
// first is nothing where a row is one scale group, the other where there are no zero points.
type nibbleScale struct{ scale, zero f32 }

// nibbleScales are those of a tile, [half][block·chains + chain].
func (p *Int4) nibbleScales(e *Env, w *Int4Weights, blocks int) (all [2][]nibbleScale) {
	n, words := p.chains()
	scales := p.scales(e, w)
	for half := range all {
		for i := range blocks {
			for c := range n {
				at := p.scaleOf(i, c)
				if p.sixteen() {
					at = 4*i + c*words
				}
				by, s := scales[half][at], nibbleScale{}
				if s.scale = by.scale; half == 1 && !p.Shape.E2M1 && p.Shape.Group != 0 {
					s.scale = by.scale.Mul(e.K.F32(1.0 / 16))
				}
				if p.Shape.Zeros { // 1 + zero point / 8
					s.zero = dsl.FMA(dsl.Cast[dsl.F32](by.zero), e.K.F32(-1.0/128), e.K.F32(1))
				}
				all[half] = append(all[half], s)
			}
		}
	}
	return all
}

// multiplyNibbles adds the products of the warp's i-th piece of one or two tiles.
func (g *GEMM) multiplyNibbles(e *Env, p *Int4, acc tilePair, w []*Int4Weights, x [][]*halfBlock) {
	k := e.K
	n, words := p.chains()
	blocks := len(w[0].codes)
	var scales [][2][]nibbleScale // [tile]
	for _, tile := range w {
		scales = append(scales, p.nibbleScales(e, tile, blocks))
	}
	zero := dsl.Lit[dsl.BF16x2](k, 0)
	for c := range n { // chains of all blocks and halves take turns
		d := map[[3]int][4]f32{} // of block, half and set
		begin := func(block, half, set int) [4]f32 {
			if p.Shape.E2M1 {
				return fourF32Zeros(k)
			}
			var sum [4]f32
			for t := range 2 {
				for i := range 2 {
					v := x[set][block].before[half][2*c+i].Get()
					if p.Shape.Zeros && t < len(w) {
						v = v.Mul(scales[t][half][block*n+c].zero)
					}
					sum[2*t+i] = v
				}
			}
			return sum
		}
		for j := words * c; j < words*(c+1); j++ {
			for block := range blocks {
				for half := range 2 {
					a := [4]pair{zero, zero, zero, zero}
					for t, tile := range w {
						v := p.nibbles(k, tile.codes[block][j], half)
						a[t], a[2+t] = v[0], v[1]
					}
					for set := range x {
						at := [3]int{block, half, set}
						if j == words*c {
							d[at] = begin(block, half, set)
						}
						from := half
						if p.Exchanged {
							from = 1 - half
						}
						d[at] = productInHalf(a, x[set][block].pairs(from, j), d[at])
					}
				}
			}
		}
		for block := range blocks {
			for half := range 2 {
				for set := range x {
					g.addNibbles(k, p, acc[set], d[[3]int{block, half, set}], scales, half, block*n+c)
				}
			}
		}
	}
}

// addNibbles adds a chain's sums times their scales.
func (g *GEMM) addNibbles(k *dsl.Kernel, p *Int4, acc []*dsl.Var[dsl.F32], d [4]f32, scales [][2][]nibbleScale, half, at int) {
	for i, v := range d {
		if i/2 >= len(scales) {
			dsl.Optional(v)
			continue
		}
		if p.Shape.Group == 0 {
			if half == 1 && !p.Shape.E2M1 {
				v = v.Mul(k.F32(1.0 / 16))
			}
			acc[i].Set(acc[i].Get().Add(v))
			continue
		}
		acc[i].Set(dsl.FMA(v, scales[i/2][half][at].scale, acc[i].Get()))
	}
}
