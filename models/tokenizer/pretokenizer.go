package tokenizer

import (
	"encoding/json"
	"unicode"
	"unicode/utf8"
)

var preTokenizerReaders = map[string]reader[preTokenizer]{
	"Split":              readSplit,
	"ByteLevel":          readByteLevel,
	"Metaspace":          readMetaspace,
	"Digits":             readDigits,
	"Punctuation":        readPunctuation,
	"Whitespace":         readWords,
	"WhitespaceSplit":    readSpaces,
	"BertPreTokenizer":   readBert,
	"CharDelimiterSplit": readDelimiter,
}

// readDigits makes each number a piece, or each digit with individual_digits.
func readDigits(place string, raw json.RawMessage) (preTokenizer, error) {
	f, err := fields[struct {
		Individual bool `json:"individual_digits"`
	}](place, raw)
	b := contiguous
	if f.Individual {
		b = isolated
	}
	return splitter{oneRune(numerals.has), b, false}, err
}

func readPunctuation(place string, raw json.RawMessage) (preTokenizer, error) {
	f, err := fields[struct {
		Behavior behavior `json:"behavior"`
	}](place, raw)
	if err != nil {
		return nil, err
	}
	if f.Behavior == "" {
		f.Behavior = isolated
	}
	return splitter{oneRune(punctuation.has), f.Behavior, false}, f.Behavior.check(place)
}

func readSpaces(string, json.RawMessage) (preTokenizer, error) {
	return splitter{oneRune(unicode.IsSpace), removed, false}, nil
}

func readDelimiter(place string, raw json.RawMessage) (preTokenizer, error) {
	f, err := fields[struct {
		Delimiter string `json:"delimiter"`
	}](place, raw)
	if err == nil && utf8.RuneCountInString(f.Delimiter) != 1 {
		err = fault(place+".delimiter", quote(f.Delimiter), "one character")
	}
	return splitter{literal(f.Delimiter), removed, false}, err
}

// bert drops white space and makes each punctuation mark a piece.
type bert struct{ spaces, marks splitter }

func readBert(string, json.RawMessage) (preTokenizer, error) {
	return bert{splitter{oneRune(unicode.IsSpace), removed, false}, splitter{oneRune(punctuation.has), isolated, false}},
		nil
}

func (b bert) split(p piece, s *scratch, yield func(piece) error) error {
	return b.spaces.split(p, s, func(p piece) error { return b.marks.split(p, s, yield) })
}

// wordRuns drops white space. Of the rest, runs of characters of words and runs of others are pieces.
type wordRuns struct{}

func readWords(string, json.RawMessage) (preTokenizer, error) { return wordRuns{}, nil }

func (wordRuns) split(p piece, _ *scratch, yield func(piece) error) error {
	const space, word, other = 0, 1, 2
	from, last := 0, space
	for at, r := range p.text {
		now := other
		switch {
		case words.has(r):
			now = word
		case unicode.IsSpace(r):
			now = space
		}
		if now != last {
			if last != space {
				if err := yield(piece{p.text[from:at], p.first && from == 0}); err != nil {
					return err
				}
			}
			from, last = at, now
		}
	}
	if last == space {
		return nil
	}
	return yield(piece{p.text[from:], p.first && from == 0})
}
