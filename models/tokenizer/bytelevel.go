package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// The byte-level alphabet (GPT-2's): each byte has a printable character that stands for it in tokenizer.json. Bytes
// whose Latin-1 character prints stand for themselves. The others follow from U+0100 on, in order.

// byteOf gives the byte that the character r stands for, false for a character outside the alphabet.
func byteOf(r rune) (byte, bool) {
	switch {
	case printsItself(r):
		return byte(r), true
	case r >= 0x100 && r <= 0x120:
		return byte(r - 0x100), true // 0x00-0x20
	case r >= 0x121 && r <= 0x142:
		return byte(r - 0x121 + 0x7f), true // 0x7f-0xa0
	case r == 0x143:
		return 0xad, true
	}
	return 0, false
}

// byteRune gives the character that stands for b: the inverse of byteOf.
func byteRune(b byte) rune {
	switch {
	case printsItself(rune(b)):
		return rune(b)
	case b <= 0x20:
		return rune(b) + 0x100
	case b == 0xad:
		return 0x143
	}
	return rune(b) - 0x7f + 0x121
}

func printsItself(r rune) bool {
	return r >= 0x21 && r <= 0x7e || r >= 0xa1 && r <= 0xff && r != 0xad
}

// mapBytes spells the bytes of text in the alphabet.
func mapBytes(text string) string {
	out := make([]byte, 0, len(text)+len(text)/2)
	for i := range len(text) {
		out = utf8.AppendRune(out, byteRune(text[i]))
	}
	return string(out)
}

// unmap turns a token's spelling in tokenizer.json into the bytes it stands for; false when a character is outside the
// alphabet, as in added tokens with spaces.
func unmap(spelling string) (string, bool) {
	b := make([]byte, 0, len(spelling))
	for _, r := range spelling {
		c, ok := byteOf(r)
		if !ok {
			return "", false
		}
		b = append(b, c)
	}
	return string(b), true
}

// gpt2 is the pattern that ByteLevel splits by with use_regex.
const gpt2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// byteLevel spells each piece in the alphabet, after a space before it and a split where the file wants those.
type byteLevel struct {
	prefix   bool
	splitter pattern // nil for none
	raw      bool    // leaves the bytes as they are, for a model that maps them itself
}

func readByteLevel(place string, raw json.RawMessage) (preTokenizer, error) {
	f, err := fields[struct {
		AddPrefixSpace *bool `json:"add_prefix_space"`
		UseRegex       *bool `json:"use_regex"`
	}](place, raw)
	if err != nil {
		return nil, err
	}
	if f.AddPrefixSpace == nil {
		return nil, fault(place+".add_prefix_space", "none", "true or false")
	}
	b := byteLevel{prefix: *f.AddPrefixSpace}
	if f.UseRegex == nil || *f.UseRegex {
		b.splitter, err = compileRegex(place, gpt2)
	}
	return b, err
}

func (b byteLevel) split(p piece, s *scratch, yield func(piece) error) error {
	if b.prefix && !strings.HasPrefix(p.text, " ") {
		p.text = " " + p.text
	}
	last := yield
	if !b.raw {
		last = func(p piece) error { return yield(piece{mapBytes(p.text), p.first}) }
	}
	if b.splitter == nil {
		return last(p)
	}
	return splitter{b.splitter, isolated, false}.split(p, s, last)
}

// byteLevelDecoder turns spellings into bytes, and all of them into text.
type byteLevelDecoder struct{}

func (byteLevelDecoder) joins() bool      { return true }
func (byteLevelDecoder) start(bool) stage { return &byteStage{} }

// byteStage holds back the beginning of a character, at most 3 bytes.
type byteStage struct{ held []byte }

func (b *byteStage) add(token string, emit func(string)) {
	text, ok := unmap(token)
	if !ok {
		text = token
	}
	b.bytes(text, emit)
}

func (b *byteStage) bytes(text string, emit func(string)) {
	if len(b.held) == 0 && utf8.ValidString(text) {
		emit(text)
		return
	}
	out, held := lossy(append(b.held, text...))
	b.held = append([]byte(nil), held...)
	emit(out)
}

func (b *byteStage) flush(emit func(string)) {
	if len(b.held) > 0 {
		b.held = nil
		emit(string(utf8.RuneError))
	}
}
