package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decode gives the text of ids; with skipSpecial special tokens are left out. Ids that belong to no token count for nothing. Bytes that are
// not UTF-8 come out as U+FFFD, one for each maximal part of a character, as in Rust and in browsers.
func (t *Tokenizer) Decode(ids []int, skipSpecial bool) string {
	d := t.NewDecoder(skipSpecial)
	var out strings.Builder
	for _, id := range ids {
		out.WriteString(d.Add(id))
	}
	out.WriteString(d.Flush())
	return out.String()
}

// Decoder turns ids into text one at a time. What Add and Flush return, concatenated, is what Decode gives for all the ids.
type Decoder struct {
	t           *Tokenizer
	skipSpecial bool
	held        []byte // the beginning of a character, at most 3 bytes
}

// NewDecoder starts a text; with skipSpecial its special tokens are left out.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	return &Decoder{t: t, skipSpecial: skipSpecial}
}

// Add gives the text that id completes: empty when it ends within a character, whose bytes are held back until the rest has come.
func (d *Decoder) Add(id int) string {
	if !d.t.known(id) || d.skipSpecial && d.t.tokens[id].special {
		return ""
	}
	text := d.t.tokens[id].bytes
	if len(d.held) == 0 && utf8.ValidString(text) {
		return text
	}
	out, held := lossy(append(d.held, text...))
	d.held = append([]byte(nil), held...)
	return out
}

// Flush ends the text: it gives U+FFFD when the bytes held back are an unfinished character, else nothing. The Decoder is as new then.
func (d *Decoder) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = nil
	return string(utf8.RuneError)
}

// lossy gives b as text, with U+FFFD for each maximal part of a character that goes wrong, and what may yet become a character
// at the end of b.
func lossy(b []byte) (text string, held []byte) {
	var out strings.Builder
	for len(b) > 0 {
		if r, size := utf8.DecodeRune(b); r != utf8.RuneError || size > 1 {
			out.Write(b[:size])
			b = b[size:]
			continue
		}
		n, cut := part(b)
		if cut {
			return out.String(), b
		}
		out.WriteRune(utf8.RuneError)
		b = b[n:]
	}
	return out.String(), nil
}

// part is the length of the longest beginning of b that could begin a character, 1 when there is none (b does not begin with a whole
// character); cut says that b ends there, so that more bytes could complete it.
func part(b []byte) (n int, cut bool) {
	size, low, high := sequence(b[0])
	for n = 1; n < size; n++ {
		if n == len(b) {
			return n, true
		}
		if b[n] < low || b[n] > high {
			return n, false
		}
		low, high = 0x80, 0xbf
	}
	return n, false
}

// sequence is the length of the characters that begin with the byte first, and the range of their second byte (Unicode's table 3-7);
// length 1 for bytes that begin no longer one.
func sequence(first byte) (size int, low, high byte) {
	switch {
	case first < 0xc2 || first > 0xf4:
		return 1, 0, 0
	case first < 0xe0:
		return 2, 0x80, 0xbf
	case first == 0xe0:
		return 3, 0xa0, 0xbf
	case first == 0xed:
		return 3, 0x80, 0x9f
	case first < 0xf0:
		return 3, 0x80, 0xbf
	case first == 0xf0:
		return 4, 0x90, 0xbf
	case first == 0xf4:
		return 4, 0x80, 0x8f
	}
	return 4, 0x80, 0xbf
}
