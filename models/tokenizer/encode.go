package tokenizer

import (
	"fmt"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// encoder is one call's state.
type encoder struct {
	*Tokenizer
	plain  bool // special tokens in the text are text
	ids    []int
	runes  []rune
	merger merger
}

// Encode gives the ids of text. Added tokens in the text, special ones among them, become their ids; see EncodePlain for text that must not
// speak for the program. With addSpecial the post-processor's tokens go around: for Llama 3, begin-of-text before it. Text that is not
// UTF-8 is an error that says where. The empty text has no ids of its own.
func (t *Tokenizer) Encode(text string, addSpecial bool) ([]int, error) {
	return t.encode(text, addSpecial, false)
}

// EncodePlain is Encode without addSpecial, for text of a user: what looks like a special token in it is encoded as the characters it
// consists of. (Hugging Face calls it encode_special_tokens.) Added tokens that are not special are found as ever.
func (t *Tokenizer) EncodePlain(text string) ([]int, error) {
	return t.encode(text, false, true)
}

func (t *Tokenizer) encode(text string, addSpecial, plain bool) ([]int, error) {
	if at := notUTF8(text); at >= 0 {
		return nil, fault("text", fmt.Sprintf("byte %#02x at offset %d is not UTF-8", text[at], at), "UTF-8")
	}
	e := &encoder{Tokenizer: t, plain: plain}
	if addSpecial {
		e.ids = append(e.ids, t.before...)
	}
	err := e.around(&t.raw, text, func(rest string) error {
		return e.around(&t.normalized, rest, e.pieces)
	})
	if err != nil {
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

// around appends the ids of the tokens in set that text contains, and leaves the text before, between and after them to rest.
func (e *encoder) around(set *added, text string, rest func(string) error) error {
	done := 0 // text before was dealt with
	for from := 0; ; {
		start, end, id := set.find(text[from:])
		if id == none {
			break
		}
		start, end, from = from+start, from+end, from+end
		if e.plain && e.tokens[id].special {
			continue
		}
		if start > done {
			if err := rest(text[done:start]); err != nil {
				return err
			}
		}
		e.ids = append(e.ids, int(id))
		done = end
	}
	if done == len(text) {
		return nil
	}
	return rest(text[done:])
}

// pieces appends the ids of text, in which there are no added tokens: what the regular expression matches and what lies between the
// matches are pieces, each encoded for itself.
func (e *encoder) pieces(text string) error {
	e.runes = append(e.runes[:0], []rune(text)...)
	at, offset := 0, 0 // the same place in e.runes and in text
	advance := func(to int) string {
		from := offset
		for ; at < to; at++ {
			offset += utf8.RuneLen(e.runes[at])
		}
		return text[from:offset]
	}
	var failed error
	encode := func(piece string) bool {
		if piece == "" || failed != nil {
			return failed == nil
		}
		var ids []int
		if ids, failed = e.bpe.encode(e.ids, piece, &e.merger); failed != nil {
			return false
		}
		e.ids = ids
		return true
	}
	err := e.split.FindRunesMatches(e.runes, 0, func(m regexp2.MatchView) bool {
		start, length, _ := m.GroupRange(0)
		return encode(advance(start)) && encode(advance(start+length))
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("text: splitting it: %w", err)
	}
	encode(advance(len(e.runes)))
	return failed
}
