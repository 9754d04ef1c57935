package synth

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/models/half"
)

// sampleElems is how many elements of a tensor SampleHash reads at most.
const sampleElems = 1 << 16

// SampleHash returns a hash in lower-case hexadecimal that two programs compare to know that they hold the same
// weights. It is SHA-256 over, for each tensor in the order given: its name, a space, its dimensions in decimal joined
// by "x", a newline; then the bf16 bits, little-endian, of elements 0, step, 2*step, … with step = max(1,
// floor(elements / 65536)), 65536 of them at most. read returns the bits of one element; nil reads the generator of
// that seed.
func SampleHash(seed uint64, ts []Tensor, read func(t Tensor, i int64) half.BF16) (string, error) {
	sum := sha256.New()
	for _, t := range ts {
		get := read
		if get == nil {
			get = func(t Tensor, i int64) half.BF16 { return At(seed, t, i) }
		}
		if n := t.Elems(); n > maxElems {
			return "", fmt.Errorf("synth: %s has %d elements, at most %d can be counted", t.Name, n, int64(maxElems))
		}
		sampleInto(sum, t, get)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func sampleInto(sum hash.Hash, t Tensor, read func(t Tensor, i int64) half.BF16) {
	dims := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		dims[i] = strconv.Itoa(d)
	}
	fmt.Fprintf(sum, "%s %s\n", t.Name, strings.Join(dims, "x"))
	n := t.Elems()
	step := max(1, n/sampleElems)
	buf := make([]byte, 0, 2*sampleElems)
	for i := int64(0); i < n && len(buf) < 2*sampleElems; i += step {
		buf = read(t, i).Append(buf)
	}
	sum.Write(buf)
}

// At returns the bf16 bits of one element of t, 0 <= i < t.Elems(): what Fill writes there.
func At(seed uint64, t Tensor, i int64) half.BF16 {
	r := newStream(seed, t.Name).at(uint32(i))
	if t.Recipe.Kind == KindGain {
		return gainBits(r)
	}
	return t.Recipe.normalBits(byteSum(r))
}
