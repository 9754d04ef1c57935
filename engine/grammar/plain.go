package grammar

import "unicode/utf8"

// Most places of a text are within strings, where nearly all tokens lead on, each to a place that depends on its number
// of characters alone. So the tokens of plain characters, which JSON needs no escape for, are sorted by their number of
// characters beforehand. Where all plain characters lead to one place, and all from there to one more, and so on, their
// part of a mask is known without a walk over them.

// plainChars is how many characters such a token has at most; longer ones are walked over.
const plainChars = 16

// plainLength is how many characters a text of plain ones has; ok is false for others, for none and for more than
// plainChars.
func plainLength(text []byte) (n int, ok bool) {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size < 2 || r < ' ' || r == '"' || r == '\\' {
			return 0, false
		}
		text = text[size:]
		n++
	}
	return n, n > 0 && n <= plainChars
}

// setPlain makes the masks of plain tokens and returns the other ones.
func (v *Vocab) setPlain(tokens []int) (odd []int) {
	v.plain = make([][]uint32, plainChars+1)
	for n := range v.plain {
		v.plain[n] = make([]uint32, (v.size+31)/32)
	}
	for _, token := range tokens {
		n, ok := plainLength(v.bytes[token])
		if !ok {
			odd = append(odd, token)
			continue
		}
		for ; n <= plainChars; n++ {
			v.plain[n][token/32] |= 1 << (token % 32)
		}
	}
	return odd
}

// plainRun is how many plain characters, whichever, lead on from a place, at most plainChars; ok is false where it
// matters which they are.
func (g *Grammar) plainRun(p *place) (n int, ok bool) {
	for ; n < plainChars; n++ {
		if !p.asked {
			p.after, p.alike = g.afterPlain(p)
			p.asked = true
		}
		if !p.alike || p.after == nil {
			return n, p.alike
		}
		p = p.after
	}
	return n, true
}

// afterPlain is the place that every plain character leads to, nil where none leads on; ok is false where there are
// several.
func (g *Grammar) afterPlain(p *place) (to *place, ok bool) {
	for i, part := range plainParts {
		end, alike := p, true
		for _, r := range part {
			if end, alike = g.afterAny(end, r[0], r[1]); !alike {
				return nil, false
			}
		}
		if i == 0 {
			to = end
		} else if end != to {
			return nil, false
		}
	}
	return to, true
}

// afterAny is the place that all bytes of a range lead to, nil where none leads on or p is nil; ok is false where there
// are several.
func (g *Grammar) afterAny(p *place, lo, hi byte) (to *place, ok bool) {
	if p == nil {
		return nil, true
	}
	for b, first := int(lo), true; b <= int(hi); first = false {
		next := g.step(p, byte(b))
		if !first && next != to {
			return nil, false
		}
		to, b = next, g.behind(p, b)
	}
	return to, true
}

// behind is the first byte behind b where an edge of a place begins or has ended.
func (g *Grammar) behind(p *place, b int) int {
	to := 256
	for _, at := range p.items {
		for _, e := range g.net.states[at.state].edges {
			if lo := int(e.lo); lo > b {
				to = min(to, lo)
			} else if hi := int(e.hi); hi >= b {
				to = min(to, hi+1)
			}
		}
	}
	return to
}

// plainParts are the plain characters in UTF-8: ranges of their first bytes, and of those behind (Unicode, table 3-7).
var plainParts = [][][2]byte{
	{{' ', '"' - 1}}, {{'"' + 1, '\\' - 1}}, {{'\\' + 1, utf8.RuneSelf - 1}},
	{{0xc2, 0xdf}, {0x80, 0xbf}},
	{{0xe0, 0xe0}, {0xa0, 0xbf}, {0x80, 0xbf}},
	{{0xe1, 0xec}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xed, 0xed}, {0x80, 0x9f}, {0x80, 0xbf}},
	{{0xee, 0xef}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xf0, 0xf0}, {0x90, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xf1, 0xf3}, {0x80, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xf4, 0xf4}, {0x80, 0x8f}, {0x80, 0xbf}, {0x80, 0xbf}},
}
