package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// lossy gives b as text, with U+FFFD for each maximal part of a character that goes wrong, and what may yet become a
// character at the end of b.
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

// part is the length of the longest beginning of b that could begin a character, 1 when there is none (b does not begin
// with a whole character); cut says that b ends there, so that more bytes could complete it.
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

// sequence is the length of the characters that begin with the byte first, and the range of their second byte
// (Unicode's table 3-7); length 1 for bytes that begin no longer one.
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
