package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

var normalizerReaders = map[string]reader[normalizer]{
	"NFC":          form(norm.NFC),
	"NFD":          form(norm.NFD),
	"NFKC":         form(norm.NFKC),
	"NFKD":         form(norm.NFKD),
	"Lowercase":    func(string, json.RawMessage) (normalizer, error) { return lowercase{}, nil },
	"StripAccents": func(string, json.RawMessage) (normalizer, error) { return stripAccents{}, nil },
	"Strip":        readStripSpace,
	"Prepend":      readPrepend,
	"Replace":      readReplace,
	"Precompiled":  readPrecompiled,
}

func form(f norm.Form) reader[normalizer] {
	return func(string, json.RawMessage) (normalizer, error) { return normalForm{f}, nil }
}

// prepend puts a prefix before a text that is not empty.
type prepend struct{ prefix string }

func readPrepend(place string, raw json.RawMessage) (normalizer, error) {
	f, err := fields[struct {
		Prepend string `json:"prepend"`
	}](place, raw)
	return prepend{f.Prepend}, err
}

func (n prepend) normalize(p piece) (piece, error) { return piece{n.prefix + p.text, p.first}, nil }

// lowercase maps each character by itself: a final sigma is like any other.
type lowercase struct{}

func (lowercase) normalize(p piece) (piece, error) {
	p.text = lower(p.text)
	return p, nil
}

func lower(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r >= 0x80 || r >= 'A' && r <= 'Z' }) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if r == 'İ' { // the only character whose lower case is two
			out.WriteString("i\u0307")
			continue
		}
		out.WriteRune(lowerRune(r))
	}
	return out.String()
}

func lowerRune(r rune) rune {
	low, high := 0, len(lowerTable)
	for low < high {
		middle := (low + high) / 2
		switch run := lowerTable[middle]; {
		case r < run[0]:
			high = middle
		case r > run[1]:
			low = middle + 1
		case (r-run[0])%run[2] != 0:
			return r
		default:
			return r + run[3]
		}
	}
	return r
}

// stripSpace takes white space off the ends of a text.
type stripSpace struct {
	Left  bool `json:"strip_left"`
	Right bool `json:"strip_right"`
}

func readStripSpace(place string, raw json.RawMessage) (normalizer, error) {
	return fields[stripSpace](place, raw)
}

func (n stripSpace) normalize(p piece) (piece, error) {
	if n.Left {
		text := strings.TrimLeftFunc(p.text, unicode.IsSpace)
		p = piece{text, p.first && len(text) == len(p.text)}
	}
	if n.Right {
		p.text = strings.TrimRightFunc(p.text, unicode.IsSpace)
	}
	return p, nil
}

// stripAccents takes combining marks out of a text.
type stripAccents struct{}

func (stripAccents) normalize(p piece) (piece, error) {
	text := strings.Map(func(r rune) rune {
		if r >= 0x80 && accents.has(r) {
			return -1
		}
		return r
	}, p.text)
	return piece{text, p.first && keepsBeginning(p.text, text)}, nil
}

// keepsBeginning reports whether the first character of text is still there.
func keepsBeginning(text, changed string) bool {
	for _, r := range text {
		return strings.HasPrefix(changed, string(r))
	}
	return true
}

// replace puts a text in the place of every match of a pattern.
type replace struct {
	pattern pattern
	content string
}

func readReplace(place string, raw json.RawMessage) (normalizer, error) {
	f, err := fields[replaceJSON](place, raw)
	if err != nil {
		return nil, err
	}
	p, err := f.Pattern.compile(place)
	return replace{p, f.Content}, err
}

type replaceJSON struct {
	Pattern patternJSON `json:"pattern"`
	Content string      `json:"content"`
}

func (n replace) normalize(p piece) (piece, error) {
	if literal, ok := n.pattern.(literal); ok {
		cut := n.content == "" && strings.HasPrefix(p.text, string(literal))
		return piece{strings.ReplaceAll(p.text, string(literal), n.content), p.first && !cut}, nil
	}
	var out strings.Builder
	cut := false
	var s scratch
	err := n.pattern.spans(p.text, &s, func(from, to int, match bool) error {
		if match {
			out.WriteString(n.content)
			cut = cut || from == 0 && to > 0 && n.content == ""
		} else {
			out.WriteString(p.text[from:to])
		}
		return nil
	})
	return piece{out.String(), p.first && !cut}, err
}
