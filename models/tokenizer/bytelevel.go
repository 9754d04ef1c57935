package tokenizer

// The byte-level alphabet (GPT-2's): each byte has a printable character that stands for it in tokenizer.json. Bytes whose Latin-1
// character prints stand for themselves; the others follow from U+0100 on, in order.

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

func printsItself(r rune) bool {
	return r >= 0x21 && r <= 0x7e || r >= 0xa1 && r <= 0xff && r != 0xad
}

// unmap turns a token's spelling in tokenizer.json into the bytes it stands for; false when a character is outside the alphabet,
// as in added tokens with spaces.
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
