package synth

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/mkgen/mkgen/models/half"
)

// Kind says which distribution a Recipe draws from.
type Kind int

const (
	// KindNormal is the sum of four uniform bytes, centred and scaled: approximately normal, cut off at 3.45 standard
	// deviations.
	KindNormal Kind = iota
	// KindGain is uniform in (0.5, 1.5), for the gains of norms.
	KindGain
)

// Recipe maps a counter's hash to a bf16 value; package documentation gives the formulas.
type Recipe struct {
	Kind Kind
	// Mantissa and Exp scale KindNormal by Mantissa * 2^Exp; KindGain ignores them.
	Mantissa, Exp int
	// Shift is added to it: 0, or -1 for the gains w of a factor 1 + w that is small.
	Shift int
}

// byteSumVariance is the variance of the sum of four independent uniform bytes: 4 * (256^2 - 1) / 12.
const byteSumVariance = 21845

// Normal returns the recipe whose standard deviation is std to within 0.4 %. Only correctly rounded operations (sqrt,
// divide, multiply, floor) lead to it, so that every language finds the same one. std must be positive and finite: else
// it panics.
func Normal(std float64) Recipe {
	if !(std > 0) || math.IsInf(std, 0) {
		panic(fmt.Sprintf("BUG: synth.Normal(%v), want a positive finite standard deviation", std))
	}
	frac, exp := math.Frexp(std / math.Sqrt(byteSumVariance))
	return Recipe{Kind: KindNormal, Mantissa: int(math.Floor(frac*256 + 0.5)), Exp: exp - 8}
}

// Gain returns the recipe of a norm's gain: uniform in (0.5, 1.5).
func Gain() Recipe { return Recipe{Kind: KindGain} }

// Tensor is one weight tensor: its Hugging Face name, its shape (rows, columns; one entry for a vector) and its recipe.
type Tensor struct {
	Name   string
	Shape  []int
	Recipe Recipe
}

// Elems returns the number of elements, 1 for an empty shape.
func (t Tensor) Elems() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// maxElems bounds a tensor so that torch can count its elements in int32.
const maxElems = 1 << 31

// Fill writes t's elements start, start+1, … as bf16 bit patterns over the whole of dst. Disjoint ranges may be filled
// concurrently; the values do not depend on how the tensor is cut. A range outside the tensor, or a tensor of more than
// 2^31 elements, is an error and leaves dst alone.
func Fill(dst []half.BF16, seed uint64, t Tensor, start int64) error {
	n := t.Elems()
	if n > maxElems {
		return fmt.Errorf("synth: %s has %d elements, at most %d can be counted", t.Name, n, int64(maxElems))
	}
	if start < 0 || start+int64(len(dst)) > n {
		return fmt.Errorf("synth: %s: elements %d to %d asked for, it has %d", t.Name, start, start+int64(len(dst)), n)
	}
	s := newStream(seed, t.Name)
	if t.Recipe.Kind == KindGain {
		for i := range dst {
			dst[i] = gainBits(s.at(uint32(start) + uint32(i)))
		}
		return nil
	}
	table := t.Recipe.table()
	for i := range dst {
		dst[i] = table[byteSum(s.at(uint32(start)+uint32(i)))]
	}
	return nil
}

// Tokens returns n token ids in [0, vocab) for the sequence of that number.
func Tokens(seed uint64, sequence, n, vocab int) []int {
	s := newStream(seed, fmt.Sprintf("tokens.%d", sequence))
	out := make([]int, n)
	for i := range out {
		hi, _ := bits.Mul32(s.at(uint32(i)), uint32(vocab))
		out[i] = int(hi)
	}
	return out
}

// Key is the pair of words that makes the elements of a tensor from their index:
// r(i) = fmix(fmix(i ^ k0) + k1), see the package comment.
func Key(seed uint64, name string) (k0, k1 uint32) {
	s := newStream(seed, name)
	return s.k0, s.k1
}

// stream is the key of one tensor.
type stream struct{ k0, k1 uint32 }

func newStream(seed uint64, name string) stream {
	z := uint64(0xcbf29ce484222325)
	for i := 0; i < len(name); i++ {
		z = (z ^ uint64(name[i])) * 0x100000001b3
	}
	z += seed * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return stream{uint32(z), uint32(z >> 32)}
}

func (s stream) at(i uint32) uint32 { return fmix(fmix(i^s.k0) + s.k1) }

func fmix(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	return x ^ x>>16
}

// byteSum is in [0, 1020].
func byteSum(r uint32) uint32 { return r&255 + r>>8&255 + r>>16&255 + r>>24 }

func gainBits(r uint32) half.BF16 { return half.BF16Of(float32(2*(r>>16)+65537) / 131072) }

// table holds the bf16 bits of every byte sum.
func (r Recipe) table() *[1021]half.BF16 {
	var t [1021]half.BF16
	for i := range t {
		t[i] = r.normalBits(uint32(i))
	}
	return &t
}

func (r Recipe) normalBits(sum uint32) half.BF16 {
	return half.BF16Of(float32(math.Ldexp(float64((int(sum)-510)*r.Mantissa), r.Exp) + float64(r.Shift)))
}
