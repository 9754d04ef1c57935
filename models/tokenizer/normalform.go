package tokenizer

import (
	"golang.org/x/text/unicode/norm"
)

// normalForm is one of Unicode's normal forms with the library's data, which are Unicode 9's. Characters that came
// later stay as they are and end a run of marks. Unlike golang.org/x/text it leaves runs of more than 30 marks whole.
type normalForm struct{ form norm.Form }

func (n normalForm) normalize(p piece) (piece, error) {
	if n.form.IsNormalString(p.text) {
		return p, nil
	}
	runes := n.decompose(p.text)
	order(runes)
	if n.form == norm.NFC || n.form == norm.NFKC {
		runes = compose(runes)
	}
	p.text = string(runes)
	return p, nil
}

// decompose replaces every character by its full decomposition.
func (n normalForm) decompose(text string) []rune {
	full := norm.NFD
	if n.form == norm.NFKC || n.form == norm.NFKD {
		full = norm.NFKD
	}
	out := make([]rune, 0, len(text))
	for _, r := range text {
		if r < 0x80 || !normalized.has(r) {
			out = append(out, r)
			continue
		}
		if d := full.String(string(r)); d != "" {
			out = append(out, []rune(d)...)
		}
	}
	return out
}

// class is the canonical combining class of a character, 0 for one that the library does not know.
func class(r rune) uint8 {
	if r < 0x300 || !normalized.has(r) {
		return 0
	}
	return norm.NFD.PropertiesString(string(r)).CCC()
}

// order sorts each run of marks by their classes, equal ones as they came.
func order(runes []rune) {
	for i := 1; i < len(runes); i++ {
		c := class(runes[i])
		if c == 0 {
			continue
		}
		from := i
		for from > 0 && class(runes[from-1]) != 0 {
			from--
		}
		to := i + 1
		for to < len(runes) && class(runes[to]) != 0 {
			to++
		}
		sortMarks(runes[from:to])
		i = to
	}
}

// sortMarks is a counting sort, because a run may be as long as the text.
func sortMarks(run []rune) {
	var at [257]int
	for _, r := range run {
		at[int(class(r))+1]++
	}
	for c := 1; c < len(at); c++ {
		at[c] += at[c-1]
	}
	out := make([]rune, len(run))
	for _, r := range run {
		c := class(r)
		out[at[c]] = r
		at[c]++
	}
	copy(run, out)
}

// compose joins each character with the last starter before it, unless a mark of its class or a higher one lies
// between.
func compose(runes []rune) []rune {
	starter, last := -1, uint8(0)
	out := runes[:0]
	for _, r := range runes {
		c := class(r)
		if starter >= 0 && (len(out) == starter+1 || last != 0 && last < c) {
			if joined, ok := composite(out[starter], r); ok {
				out[starter] = joined
				continue
			}
		}
		if c == 0 {
			starter = len(out)
		}
		last = c
		out = append(out, r)
	}
	return out
}

// composite gives the character that two others are composed to.
func composite(a, b rune) (rune, bool) {
	if b < 0x300 || norm.NFC.PropertiesString(string(b)).BoundaryBefore() {
		return 0, false
	}
	pair := string([]rune{a, b})
	joined := []rune(norm.NFC.String(pair))
	if len(joined) != 1 || !normalized.has(joined[0]) {
		return 0, false
	}
	// golang.org/x/text looks pairs up by the low halves of their code points: U+E006E is an n to it.
	if norm.NFD.String(string(joined)) != norm.NFD.String(pair) {
		return 0, false
	}
	return joined[0], true
}
