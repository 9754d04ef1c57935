package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// translator writes a pattern of the library's engine (Oniguruma) as one for ours that matches the same. Classes become
// the characters that Oniguruma has under these names, so that Go's version of Unicode does not matter. Possessive
// repeats become atomic groups. What the two engines read differently, or might, is refused.
type translator struct {
	out    strings.Builder
	atom   int   // where the last atom begins in out, or -1
	groups []int // where each open group begins in out
}

const escapable = "rntf\\()[]{}.?*+|^$-/'\"!#%&,:;<=>@_`~ "

func translate(source string) (string, error) {
	t := &translator{atom: -1}
	for source != "" {
		size, err := t.next(source)
		if err != nil {
			return "", err
		}
		source = source[size:]
	}
	return t.out.String(), nil
}

// next translates the sign at the beginning of source and gives its length.
func (t *translator) next(source string) (int, error) {
	_, size := utf8.DecodeRuneInString(source)
	switch sign := source[:size]; sign {
	case "[":
		t.atom = t.out.Len()
		return t.set(source)
	case `\`:
		t.atom = t.out.Len()
		return t.escape(source, false)
	case "(":
		return t.open(source)
	case ")":
		if n := len(t.groups); n > 0 {
			t.atom, t.groups = t.groups[n-1], t.groups[:n-1]
		}
		t.out.WriteString(sign)
		return size, nil
	case "?", "*", "+", "{":
		return t.repeat(source)
	case "^", "$", ".":
		return 0, fault("pattern", quote(sign), "signs that all engines read alike")
	case "|":
		t.atom = -1
		t.out.WriteString(sign)
		return size, nil
	default:
		t.atom = t.out.Len()
		t.out.WriteString(sign)
		return size, nil
	}
}

// open translates the beginning of a group.
func (t *translator) open(source string) (int, error) {
	head := "("
	if strings.HasPrefix(source, "(?") {
		head = ""
		for _, known := range []string{"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"} {
			if strings.HasPrefix(source, known) {
				head = known
			}
		}
		if head == "" {
			return 0, fault("pattern", quote(source), "groups that begin with ( (?: (?i: (?= (?! (?<= (?<! or (?>")
		}
	}
	t.groups = append(t.groups, t.out.Len())
	t.atom = -1
	t.out.WriteString(head)
	return len(head), nil
}

// repeat translates ? * + {n,m} after an atom, with ? for a lazy and + for a possessive one.
func (t *translator) repeat(source string) (int, error) {
	size := 1
	if source[0] == '{' {
		end := strings.IndexByte(source, '}')
		if end < 2 || source[1] == ',' || strings.Trim(source[1:end], "0123456789,") != "" {
			return 0, fault("pattern", quote(source), "a repeat with a lower bound, or an escaped brace")
		}
		size = end + 1
	}
	if t.atom < 0 {
		return 0, fault("pattern", quote(source), "something before it to repeat")
	}
	after := byte(0)
	if size < len(source) {
		after = source[size]
	}
	switch {
	case after == '+' && source[0] != '{':
		done := t.out.String()
		atom := "(?>" + done[t.atom:] + source[:size] + ")"
		t.out.Reset()
		t.out.WriteString(done[:t.atom] + atom)
		t.atom = -1
		return size + 1, nil
	case after == '?' && source[0] != '{':
		size++
	case after == '+' || after == '*' || after == '?' || after == '{':
		return 0, fault("pattern", quote(source), "one repeat after another thing than a repeat")
	}
	t.out.WriteString(source[:size])
	t.atom = -1
	return size, nil
}

// set translates a class in brackets.
func (t *translator) set(source string) (int, error) {
	at := 1
	if strings.HasPrefix(source, "[^") {
		at = 2
	}
	t.out.WriteString(source[:at])
	if at == len(source) || source[at] == ']' {
		return 0, fault("pattern", "an empty class", "at least one character")
	}
	for at < len(source) {
		_, size := utf8.DecodeRuneInString(source[at:])
		switch {
		case source[at] == ']':
			t.out.WriteByte(']')
			return at + 1, nil
		case source[at] == '\\':
			var err error
			if size, err = t.escape(source[at:], true); err != nil {
				return 0, err
			}
		case source[at] == '[' || strings.HasPrefix(source[at:], "&&"):
			return 0, fault("pattern", quote(source[at:]), "signs that all engines read alike")
		default:
			t.out.WriteString(source[at : at+size])
		}
		at += size
	}
	return 0, fault("pattern", "a class without its end", "]")
}

// escape translates what a backslash begins.
func (t *translator) escape(source string, inSet bool) (int, error) {
	name, not := "", false
	switch {
	case strings.HasPrefix(source, `\p{`), strings.HasPrefix(source, `\P{`):
		inside, _, closed := strings.Cut(source[3:], "}")
		if !closed {
			return 0, fault("class", quote(source), "}")
		}
		name, not = `\p{`+strings.TrimPrefix(inside, "^")+"}", (source[1] == 'P') != strings.HasPrefix(inside, "^")
		source = source[:len(inside)+4]
	case len(source) > 1 && strings.ContainsRune("sdwSDW", rune(source[1])):
		name, not = strings.ToLower(source[:2]), source[1] < 'a'
		source = source[:2]
	case len(source) > 1 && strings.IndexByte(escapable, source[1]) >= 0:
		t.out.WriteString(source[:2])
		return 2, nil
	default:
		return 0, fault("escape", quote(source[:min(2, len(source))]), `\r \n \t \f \s \d \w \p{L} or an escaped sign`)
	}
	ranges, err := classRanges(name, not)
	if err != nil {
		return 0, err
	}
	if !inSet {
		ranges = "[" + ranges + "]"
	}
	t.out.WriteString(ranges)
	return len(source), nil
}
