package tokenizer

import (
	"fmt"
	"strings"
)

// runeSet is a set of characters: a bit for each of the first 256, runs for all.
type runeSet struct {
	low  [4]uint64
	runs [][2]rune
}

// The sets of classTables that the code asks for by character.
var (
	words       = newRuneSet("word")
	punctuation = newRuneSet("punctuation")
	numerals    = newRuneSet("numeric")
	accents     = newRuneSet("accent")
	normalized  = newRuneSet("normalized")
)

func newRuneSet(name string) *runeSet {
	s := &runeSet{runs: classTables[name]}
	if len(s.runs) == 0 {
		panic("BUG: no class " + name)
	}
	for _, run := range s.runs {
		for r := run[0]; r <= run[1] && r < 256; r++ {
			s.low[r/64] |= 1 << (r % 64)
		}
	}
	return s
}

func (s *runeSet) has(r rune) bool {
	if r < 256 {
		return s.low[r/64]>>(r%64)&1 != 0
	}
	low, high := 0, len(s.runs)
	for low < high {
		middle := (low + high) / 2
		switch run := s.runs[middle]; {
		case r < run[0]:
			high = middle
		case r > run[1]:
			low = middle + 1
		default:
			return true
		}
	}
	return false
}

// classRanges is the inside of a character class of a regular expression: the characters of one of the library's
// classes, or with not those outside it. name is spelled as in patterns: \p{L}, \s.
func classRanges(name string, not bool) (string, error) {
	runs, ok := classTables[name]
	if !ok {
		return "", fault("class", quote(name),
			`\p{L}, \p{Lu}, \p{Ll}, \p{Lt}, \p{Lm}, \p{Lo}, \p{M}, \p{N}, \p{Nd}, \p{P}, \p{S}, \s, \d or \w`)
	}
	var out strings.Builder
	next := rune(0)
	for _, run := range runs {
		if !not {
			fmt.Fprintf(&out, "%s-%s", classRune(run[0]), classRune(run[1]))
		} else if next < run[0] {
			fmt.Fprintf(&out, "%s-%s", classRune(next), classRune(run[0]-1))
		}
		next = run[1] + 1
	}
	if not && next <= 0x10ffff {
		fmt.Fprintf(&out, "%s-%s", classRune(next), classRune(0x10ffff))
	}
	return out.String(), nil
}

// classRune spells a bound of a run. Surrogates, which no text has, become their neighbours.
func classRune(r rune) string {
	switch {
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	case r >= 0xd800 && r < 0xdc00:
		return "\ud7ff"
	case r >= 0xdc00 && r < 0xe000:
		return "\ue000"
	}
	return string(r)
}
