package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// encoder is one call's state.
type encoder struct {
	*Tokenizer
	plain     bool // special tokens in the text are text
	ids       []int
	scratch   []scratch           // of each pre-tokenizer
	next      []func(piece) error // what follows each pre-tokenizer
	workspace workspace
}

// Encode gives the ids of text. Added tokens in the text, special ones among them, become their ids; see EncodePlain
// for text that must not speak for the program. With addSpecial the post-processor's tokens go around: for Llama 3,
// begin-of-text before it. Text that is not UTF-8 is an error that says where. The empty text has no ids of its own.
func (t *Tokenizer) Encode(text string, addSpecial bool) ([]int, error) {
	return t.encode(text, addSpecial, false)
}

// EncodePlain is Encode without addSpecial, for text of a user: what looks like a special token in it is encoded as the
// characters it consists of. (Hugging Face calls it encode_special_tokens.) Added tokens that are not special are found
// as ever.
func (t *Tokenizer) EncodePlain(text string) ([]int, error) {
	return t.encode(text, false, true)
}

func (t *Tokenizer) encode(text string, addSpecial, plain bool) ([]int, error) {
	if at := notUTF8(text); at >= 0 {
		return nil, fault("text", fmt.Sprintf("byte %#02x at offset %d is not UTF-8", text[at], at), "UTF-8")
	}
	e := &encoder{Tokenizer: t, plain: plain, scratch: make([]scratch, len(t.preTokenizers))}
	for i := range t.preTokenizers {
		e.next = append(e.next, func(p piece) error { return e.pieces(i+1, p) })
	}
	if addSpecial {
		e.ids = append(e.ids, t.before...)
	}
	if err := e.around(&t.raw, piece{text, true}, e.normalize); err != nil {
		return nil, err
	}
	if addSpecial {
		e.ids = append(e.ids, t.after...)
	}
	return e.ids, nil
}

// notUTF8 is the offset of the first byte of text that is not part of a character, or -1.
func notUTF8(text string) int {
	if utf8.ValidString(text) {
		return -1
	}
	for at := 0; ; {
		r, size := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
}

// around appends the ids of the tokens in set that p contains, and leaves the text before, between and after them to
// rest.
func (e *encoder) around(set *added, p piece, rest func(piece) error) error {
	plain := func(id int32) bool { return e.plain && e.tokens[id].special }
	return set.split(p.text, plain, func(from, to int, id int32) error {
		if id != none {
			e.ids = append(e.ids, int(id))
			return nil
		}
		return rest(piece{p.text[from:to], p.first && from == 0})
	})
}

// normalize appends the ids of a text in which there are no added tokens but those looked for in normalized text.
func (e *encoder) normalize(p piece) error {
	p, err := e.normalizers.normalize(p)
	if err != nil {
		return err
	}
	return e.around(&e.normalized, p, func(p piece) error { return e.pieces(0, p) })
}

// pieces appends the ids of what the pre-tokenizers from a place on make of p.
func (e *encoder) pieces(from int, p piece) (err error) {
	if from < len(e.preTokenizers) {
		return e.preTokenizers[from].split(p, &e.scratch[from], e.next[from])
	}
	e.ids, err = e.model.encode(e.ids, p.text, &e.workspace)
	return err
}
