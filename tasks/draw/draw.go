// Package draw says which token a kernel draws from logits: the layout of a row's parameters and, in Go, the arithmetic
// of the template sample.Sample, operation by operation. The template's draws are these to the bit on the executor. A
// GPU's logarithms and powers of 2 differ from Go's in the last bit, which changes a draw where two tokens all but tie.
//
// The draw is Gumbel-max: the token of the highest logit/T − log2(E), where E is exponentially distributed, one a
// token. Random bits are Philox4x32-10's: the key is the seed, the counter the position and the token's number. So a
// draw depends on logits, parameters, seed and position, and on nothing else.
//
// Truncation follows transformers' processors, in their order: top-k, top-p, min-p. Tokens are kept by their distance
// from the highest logit, in nats at the row's temperature, of which 2^19 are a nat. Tokens that are equally far stay
// or go together. No token farther than 32 nats is ever drawn: its odds are below 10⁻⁹ among 2^18 tokens.
package draw

import "math"

// RowWords is the length of a row's parameters, in 32-bit words.
const RowWords = 16

// The words of a row. Those that a row does not use are 0.
const (
	RowFlags  = iota // of the bits below
	RowScale         // f32: log2(e)/T
	RowNats          // f32: 2^19/T
	RowTopK          // tokens to keep, with FlagTopK
	RowTopP          // f32: share of the probability to keep, with FlagTopP
	RowFar           // the largest distance that min-p keeps; Farthest for all
	RowSeedLo        // the seed
	RowSeedHi
	RowScores // 0: no scores; else 1 and how many of the most probable tokens are wanted

	// With FlagChanges; see Change.
	RowHistory    // which of the launch's histories is the row's
	RowRepetition // f32
	RowInverse    // f32: 1/RowRepetition
	RowPresence   // f32
	RowFrequency  // f32
	RowLeast      // the first position at which a token may end the text

	RowTarget // with RowScores: 0, or 1 more than the token whose scores are wanted in place of the chosen one's
)

// The bits of RowFlags.
const (
	FlagDraws = 1 << iota // 0: the row takes its highest logit
	FlagTopK
	FlagTopP
	FlagChanges // a history changes the row's logits
	FlagMask    // a mask rules tokens out
)

// Distances: 24 bits in three levels of 256 bins.
const (
	NatBits  = 19 // 2^NatBits are a nat
	Bins     = 256
	BinBits  = 8
	TopShift = 16        // a bin of the first level has 2^TopShift distances, 1/8 nat
	Farthest = 1<<24 - 1 // what is farther is not drawn
)

// Searches is the most histograms that a draw takes: three for top-k, and three more for top-p, which shares the first
// where that is not of a list.
const Searches = 6

// Listed is how many tokens of a row a kernel lists where no more are left that may stay.
func Listed(vocab int) int { return min(512, max(16, vocab/16)) }

// A MassBits is how many bits the weight of the nearest token of a first-level bin has: enough that those of a whole
// vocabulary sum up in 32 bits.
func MassBits(vocab int) int {
	bits := 32
	for n := 1; n <= vocab; n *= 2 {
		bits--
	}
	return min(bits, 22)
}

// Row is what a draw needs beside logits and position.
type Row [RowWords]uint32

func (r *Row) float(word int) float32 { return math.Float32frombits(r[word]) }

// Choose is the token that a row draws from logits at a position of its sequence. Of tokens that tie it takes the
// lowest; NaN is never drawn, and without a logit above -inf the token is 0.
func (r *Row) Choose(logits []float32, position uint32) int {
	return r.ChooseOf(r.Stays(logits), logits, position)
}

// ChooseOf is Choose where stays is what Stays says of the logits, as it does of the same ones at every position.
func (r *Row) ChooseOf(stays func(x float32) bool, logits []float32, position uint32) int {
	best, at := float32(math.Inf(-1)), 0
	var bits [4]uint32
	draws, have := r[RowFlags]&FlagDraws != 0, -1 // the four tokens that bits are of
	for i, x := range logits {
		if !stays(x) {
			continue
		}
		if draws && i/4 != have {
			have = i / 4
			bits = Philox([2]uint32{r[RowSeedLo], r[RowSeedHi]}, [4]uint32{position, uint32(have)})
		}
		if z := r.score(x, bits[i%4]); z > best {
			best, at = z, i
		}
	}
	return at
}

// Stays says whether a logit is of a token that may be drawn.
func (r *Row) Stays(logits []float32) func(x float32) bool {
	if !r.truncates() {
		return func(x float32) bool { return x > float32(math.Inf(-1)) }
	}
	top, far := highest(logits), r.threshold(logits)
	return func(x float32) bool { return r.distance(top, x) <= far }
}

func highest(logits []float32) float32 {
	top := float32(math.Inf(-1))
	for _, x := range logits {
		if x > top {
			top = x
		}
	}
	return top
}

// score is what the highest of wins: in the template the product and the difference are rounded apart.
func (r *Row) score(x float32, bits uint32) float32 {
	if r[RowFlags]&FlagDraws == 0 {
		return x
	}
	return float32(x*r.float(RowScale)) - log2(exponential(bits))
}

// threshold is the largest distance that a row keeps.
func (r *Row) threshold(logits []float32) uint32 {
	s := newSearch(r, logits)
	for s.next() {
	}
	return min(s.far, r[RowFar])
}

// distance of a logit from the highest, beyond Farthest for NaN and -inf.
func (r *Row) distance(top, x float32) uint32 {
	d := float32(float32(top-x) * r.float(RowNats))
	if !(d < Farthest+1) {
		d = Farthest + 1
	}
	return uint32(d)
}

// The modes of a launch: bits that say what some of its rows need. Without any, all rows take their highest logit.
const (
	ModeDraws     = 1 << iota // draws
	ModeTruncates             // top-k, top-p or min-p
	ModeScores                // scores
	ModeChanges               // histories or masks
	ModeMasks                 // masks
)

// Modes are those of one row.
func (r *Row) Modes() (modes uint32) {
	modes = r.drawModes()
	if r[RowScores] != 0 {
		modes |= ModeScores
	}
	if r[RowFlags]&(FlagChanges|FlagMask) != 0 {
		modes |= ModeChanges
	}
	if r[RowFlags]&FlagMask != 0 {
		modes |= ModeMasks
	}
	return modes
}

func (r *Row) drawModes() (modes uint32) {
	if r[RowFlags]&FlagDraws == 0 {
		return 0
	}
	if r.truncates() {
		modes = ModeTruncates
	}
	return modes | ModeDraws
}

// truncates reports whether some tokens may not stay.
func (r *Row) truncates() bool {
	return r[RowFlags]&FlagDraws != 0 && (r[RowFlags]&(FlagTopK|FlagTopP) != 0 || r[RowFar] != Farthest)
}
