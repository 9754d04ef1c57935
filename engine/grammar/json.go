package grammar

import (
	"strconv"
	"unicode/utf8"
)

// The parts of JSON. white is a rule that may be empty, all others are values.

func (n *net) white(from int32) int32 {
	return n.call(from, n.rule("white", func(s int32) int32 {
		return n.either(s,
			func(s int32) int32 { return s },
			func(s int32) int32 { return n.byte(s, ' ', ' ') },
			func(s int32) int32 {
				return n.times(n.byte(s, '\n', '\n'), 0, 20, func(s int32) int32 { return n.byte(s, ' ', ' ') })
			})
	}))
}

// anything is a JSON value.
func (n *net) anything(from int32) int32 {
	return n.call(from, n.rule("value", func(s int32) int32 {
		return n.either(s, n.anyObject, n.anyArray, n.anyString, n.number, n.boolean, n.null)
	}))
}

func (n *net) anyObject(from int32) int32 {
	return n.call(from, n.rule("object", func(s int32) int32 { return n.dictionary(s, n.anything) }))
}

// dictionary is an object with any keys and values of a kind.
func (n *net) dictionary(from int32, value func(int32) int32) int32 {
	pair := func(s int32) int32 { return value(n.white(n.byte(n.anyString(s), ':', ':'))) }
	return n.list(from, '{', '}', 0, -1, pair)
}

func (n *net) anyArray(from int32) int32 {
	return n.call(from, n.rule("array", func(s int32) int32 { return n.list(s, '[', ']', 0, -1, n.anything) }))
}

// list is lo to hi elements (hi below 0 for any number) between brackets.
func (n *net) list(from int32, open, shut byte, lo, hi int, element func(int32) int32) int32 {
	in := n.white(n.byte(from, open, open))
	to := n.add()
	if lo == 0 {
		n.byteTo(in, shut, shut, to)
	}
	if hi == 0 {
		return to
	}
	more := func(s int32) int32 { return element(n.white(n.byte(s, ',', ','))) }
	last := n.times(element(in), max(lo, 1)-1, max(hi, 0)-1, more)
	n.byteTo(n.white(last), shut, shut, to)
	return to
}

func (n *net) boolean(from int32) int32 {
	return n.either(from, func(s int32) int32 { return n.text(s, "true") },
		func(s int32) int32 { return n.text(s, "false") })
}

func (n *net) null(from int32) int32 { return n.text(from, "null") }

// maxDigits is of whole numbers, and behind the point: what float64 keeps.
const maxDigits = 15

func (n *net) digits(from int32, lo, hi int) int32 {
	return n.times(from, lo, hi, func(s int32) int32 { return n.byte(s, '0', '9') })
}

// whole is a whole number without a sign.
func (n *net) whole(from int32) int32 {
	return n.either(from, func(s int32) int32 { return n.byte(s, '0', '0') },
		func(s int32) int32 { return n.digits(n.byte(s, '1', '9'), 0, maxDigits-1) })
}

func (n *net) minus(from int32) int32 { return n.byte(from, '-', '-') }

func (n *net) integer(from int32) int32 {
	return n.call(from, n.rule("integer", func(s int32) int32 { return n.whole(n.maybe(s, n.minus)) }))
}

func (n *net) fraction(from int32) int32 { return n.digits(n.byte(from, '.', '.'), 1, maxDigits) }

func (n *net) number(from int32) int32 {
	return n.call(from, n.rule("number", func(s int32) int32 {
		s = n.maybe(n.whole(n.maybe(s, n.minus)), n.fraction)
		return n.maybe(s, func(s int32) int32 {
			sign := n.maybe(n.oneByte(s, "eE"), func(s int32) int32 { return n.oneByte(s, "+-") })
			return n.digits(sign, 1, 2)
		})
	}))
}

// between is whole numbers from lo to hi, at least one.
func (n *net) between(from int32, lo, hi int64) int32 {
	var ways []func(int32) int32
	if lo < 0 {
		ways = append(ways, func(s int32) int32 { return n.upTo(n.minus(s), max(1, -hi), -lo) })
	}
	if hi >= 0 {
		ways = append(ways, func(s int32) int32 { return n.upTo(s, max(0, lo), hi) })
	}
	return n.either(from, ways...)
}

// upTo is whole numbers from lo to hi, neither below 0.
func (n *net) upTo(from int32, lo, hi int64) int32 {
	to := n.add()
	least := int64(0)
	for most := int64(9); ; most = most*10 + 9 { // of as many digits as it has
		if a, b := max(lo, least), min(hi, most); a <= b {
			n.sameLength(from, strconv.FormatInt(a, 10), strconv.FormatInt(b, 10), to)
		}
		if most >= hi {
			return to
		}
		least = most + 1
	}
}

// sameLength is decimals from a to b, which have as many digits.
func (n *net) sameLength(from int32, a, b string, to int32) {
	if len(a) == 0 {
		n.also(from, to)
		return
	}
	zeros, nines := allOf(a[1:], '0'), allOf(b[1:], '9')
	lo, hi := a[0], b[0]
	if lo == hi {
		n.sameLength(n.byte(from, lo, lo), a[1:], b[1:], to)
		return
	}
	if !zeros {
		n.sameLength(n.byte(from, lo, lo), a[1:], repeat('9', len(a)-1), to)
		lo++
	}
	if !nines {
		n.sameLength(n.byte(from, hi, hi), repeat('0', len(a)-1), b[1:], to)
		hi--
	}
	if lo <= hi {
		n.also(n.digits(n.byte(from, lo, hi), len(a)-1, len(a)-1), to)
	}
}

func repeat(digit byte, n int) string {
	all := make([]byte, n)
	for i := range all {
		all[i] = digit
	}
	return string(all)
}

func allOf(s string, digit byte) bool { return s == repeat(digit, len(s)) }

// decimals is numbers from lo to hi, with or without a fraction.
func (n *net) decimals(from int32, lo, hi int64) int32 {
	part := func(s int32, lo, hi int64) int32 { // neither below 0
		var ways []func(int32) int32
		if lo < hi {
			ways = append(ways, func(s int32) int32 { return n.maybe(n.upTo(s, lo, hi-1), n.fraction) })
		}
		return n.either(s, append(ways, func(s int32) int32 {
			return n.maybe(n.upTo(s, hi, hi), func(s int32) int32 {
				return n.times(n.byte(s, '.', '.'), 1, maxDigits, func(s int32) int32 { return n.byte(s, '0', '0') })
			})
		})...)
	}
	var ways []func(int32) int32
	if lo < 0 {
		ways = append(ways, func(s int32) int32 { return part(n.minus(s), max(0, -hi), -lo) })
	}
	if hi >= 0 {
		ways = append(ways, func(s int32) int32 { return part(s, max(0, lo), hi) })
	}
	return n.either(from, ways...)
}

func (n *net) anyString(from int32) int32 {
	return n.call(from, n.rule("string", func(s int32) int32 { return n.quoted(s, 0, -1) }))
}

// quoted is a string of lo to hi characters, hi below 0 for any number.
func (n *net) quoted(from int32, lo, hi int) int32 {
	s := n.times(n.byte(from, '"', '"'), lo, hi,
		func(s int32) int32 { return n.call(s, n.rule("character", n.character)) })
	return n.byte(s, '"', '"')
}

// character is one of a string: as it is where JSON lets it, or escaped.
func (n *net) character(from int32) int32 {
	return n.either(from,
		func(s int32) int32 { return n.runes(s, ' ', utf8.MaxRune, false) },
		func(s int32) int32 { return n.oneByte(n.byte(s, '\\', '\\'), `"\/bfnrt`) },
		n.escapedUnit)
}

// escapedUnit is \u and four digits, or two of them that are one character.
func (n *net) escapedUnit(from int32) int32 {
	const hexadecimal = "0123456789abcdefABCDEF"
	hex := func(s int32) int32 { return n.oneByte(s, hexadecimal) }
	u := func(s int32) int32 { return n.text(s, `\u`) }
	surrogate := func(s int32, second string) int32 { return hex(hex(n.oneByte(n.oneByte(s, "dD"), second))) }
	return n.either(from,
		func(s int32) int32 { return hex(hex(hex(n.oneByte(u(s), "0123456789abcefABCEF")))) },
		func(s int32) int32 { return hex(hex(n.oneByte(n.oneByte(u(s), "dD"), "01234567"))) },
		func(s int32) int32 { return surrogate(u(surrogate(u(s), "89abAB")), "cdefCDEF") })
}

// runes is a character of a range in UTF-8, within a string. Those that JSON wants escaped are, where escape says so,
// else left out; surrogates are no characters.
func (n *net) runes(from int32, lo, hi rune, escape bool) int32 {
	to := n.add()
	plain := func(lo, hi rune) {
		if lo <= hi {
			n.utf8(from, lo, hi, to)
		}
	}
	next := lo
	for _, bad := range []rune{'"', '\\'} {
		if bad >= lo && bad <= hi {
			plain(max(next, ' '), bad-1)
			next = bad + 1
			if escape {
				n.also(n.text(from, `\`+string(bad)), to)
			}
		}
	}
	for r := lo; escape && r < ' ' && r <= hi; r++ {
		n.also(n.text(from, escaped(r)), to)
	}
	next = max(next, ' ')
	plain(next, min(hi, 0xd7ff))
	plain(max(next, 0xe000), hi)
	return to
}

// escaped spells a control character.
func escaped(r rune) string {
	switch r {
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	const digits = "0123456789abcdef"
	return `\u00` + string(digits[r>>4]) + string(digits[r&15])
}

// utf8 is the bytes of characters of a range, of which none is a surrogate. A range is cut until its last bytes are
// independent of those before.
func (n *net) utf8(from int32, lo, hi rune, to int32) {
	for _, last := range []rune{0x7f, 0x7ff, 0xffff} {
		if lo <= last && hi > last {
			n.utf8(from, lo, last, to)
			n.utf8(from, last+1, hi, to)
			return
		}
	}
	for bits := 6; bits < 24 && hi > 0x7f; bits += 6 {
		m := rune(1)<<bits - 1
		if lo&^m == hi&^m {
			break
		}
		if lo&m != 0 {
			n.utf8(from, lo, lo|m, to)
			n.utf8(from, (lo|m)+1, hi, to)
			return
		}
		if hi&m != m {
			n.utf8(from, lo, hi&^m-1, to)
			n.utf8(from, hi&^m, hi, to)
			return
		}
	}
	a, b := []byte(string(lo)), []byte(string(hi))
	for i := range len(a) - 1 {
		from = n.byte(from, a[i], b[i])
	}
	n.byteTo(from, a[len(a)-1], b[len(b)-1], to)
}
