package draw

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
)

// A Change is what changes the logit of one token of a sequence, before temperature and truncation and in
// transformers' order of processors. Each step rounds to float32:
//
//   - Bias is added.
//   - RowRepetition divides a positive logit and multiplies another, where the sequence has the token.
//   - RowFrequency, times how often the answer has the token, is taken off, then RowPresence if it has it (OpenAI).
//   - A token that ends the text has −inf before position RowLeast.
type Change struct {
	Bias float32
	Word uint32 // how often the answer has the token, and the bits below
}

// The bits of Change.Word above the count.
const (
	InPrompt  = 1 << 31   // the prompt has the token
	EndsText  = 1 << 30   // the token ends the text
	CountMask = 1<<30 - 1 // the count
)

// change is a logit after a Change, of a token for a position of the sequence.
func (r *Row) change(x float32, c Change, position uint32) float32 {
	x += c.Bias
	if repetition := r.float(RowRepetition); c.Word&(InPrompt|CountMask) != 0 {
		if x > 0 {
			x /= repetition
		} else {
			x *= repetition
		}
	}
	if n := c.Word & CountMask; n > 0 {
		x -= float32(r.float(RowFrequency) * float32(n))
		x -= r.float(RowPresence)
	}
	if c.Word&EndsText != 0 && position < r[RowLeast] {
		x = float32(math.Inf(-1))
	}
	return x
}

// History has the changes of one sequence: the tokens it has had, biases, and what ends it.
type History struct {
	of     map[int]Change
	chosen int
}

// NewHistory is that of a prompt.
func NewHistory(prompt []int) *History {
	h := &History{of: map[int]Change{}}
	for _, token := range prompt {
		h.mark(token, InPrompt)
	}
	return h
}

func (h *History) mark(token int, bit uint32) {
	c := h.of[token]
	c.Word |= bit
	h.of[token] = c
}

// Bias is added to a token's logit.
func (h *History) Bias(token int, x float32) {
	c := h.of[token]
	c.Bias = x
	h.of[token] = c
}

// End makes a token one that ends the text.
func (h *History) End(token int) { h.mark(token, EndsText) }

// Add notes a token of the answer.
func (h *History) Add(token int) {
	c := h.of[token]
	c.Word++
	h.of[token] = c
	h.chosen++
}

// Chosen is how many tokens the answer has.
func (h *History) Chosen() int { return h.chosen }

// HistoryWords is the length of a History as a kernel has it, of a vocabulary: the biases of all tokens, f32, then
// their words.
func HistoryWords(vocab int) int { return 2 * vocab }

// Encode writes it so, little-endian: dst is as long.
func (h *History) Encode(dst []byte) {
	clear(dst)
	words := dst[len(dst)/2:]
	for token, c := range h.of {
		binary.LittleEndian.PutUint32(dst[4*token:], math.Float32bits(c.Bias))
		binary.LittleEndian.PutUint32(words[4*token:], c.Word)
	}
}

// MaskWords is the length of a mask of a vocabulary: bit t%32 of word t/32 is 1 where token t may be chosen.
func MaskWords(vocab int) int { return (vocab + 31) / 32 }

// Rule is how a row chooses its token: its parameters, with FlagChanges its history, of which a launch makes a row's
// own copy in the kernel's memory, and with FlagMask a mask, which rules tokens out after the history's changes in
// all steps of a launch. Tokens that are ruled out have the logit −inf.
type Rule struct {
	Row
	History *History
	Mask    []uint32 // MaskWords long
}

// SetMask rules out the tokens that are not in a mask; nil for none.
func (r *Rule) SetMask(mask []uint32) {
	r.Mask = mask
	r.Row[RowFlags] &^= FlagMask
	if mask != nil {
		r.Row[RowFlags] |= FlagMask
	}
}

// Clone is a Rule with a history of its own.
func (r Rule) Clone() Rule {
	if r.History != nil {
		r.History = &History{maps.Clone(r.History.of), r.History.chosen}
	}
	r.Mask = slices.Clone(r.Mask)
	return r
}

// Took notes a token that the row has chosen.
func (r *Rule) Took(token int) {
	if r.History != nil {
		r.History.Add(token)
	}
}

// Change changes logits as history and mask say, for a position of the sequence.
func (r *Rule) Change(logits []float32, position uint32) {
	if r.Row[RowFlags]&FlagChanges != 0 {
		for token, c := range r.History.of {
			logits[token] = r.change(logits[token], c, position)
		}
	}
	if r.Row[RowFlags]&FlagMask != 0 {
		for i := range logits {
			if r.Mask[i/32]>>(i%32)&1 == 0 {
				logits[i] = float32(math.Inf(-1))
			}
		}
	}
}

// Choose is the token that the row chooses from logits, which it leaves alone, at a position of its sequence.
func (r *Rule) Choose(logits []float32, position uint32) int {
	if r.Modes()&ModeChanges != 0 {
		logits = slices.Clone(logits)
		r.Change(logits, position)
	}
	return r.Row.Choose(logits, position)
}
