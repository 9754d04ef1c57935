package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const none = int32(-1)

// added is a set of added tokens that is looked for in texts. The zero value is the empty set.
type added struct {
	trie   trie
	tokens map[int32]addedJSON
}

func (a *added) insert(spelling string, id int32, token addedJSON) {
	if spelling == "" {
		return
	}
	if a.tokens == nil {
		a.tokens = map[int32]addedJSON{}
	}
	a.trie.insert(spelling, id)
	a.tokens[id] = token
}

// find gives the first added token in text from a place on, the longest of those that start there: where it starts and
// ends, and its id. The id is none when there is no added token.
func (a *added) find(text string, from int) (start, end int, id int32) {
	if len(a.tokens) == 0 {
		return 0, 0, none
	}
	id = none
	for start = from; start < len(text); start++ {
		if a.trie.root[text[start]] == 0 {
			continue
		}
		a.trie.prefixes(text[start:], func(length int, found int32) { end, id = start+length, found })
		if id != none {
			return start, end, id
		}
	}
	return 0, 0, none
}

// split yields the added tokens of text with their ids, and what lies around them with none. A token that plain
// excludes is text, and so is one that wants to be a word of its own and is not. lstrip and rstrip take the white space
// beside a token.
func (a *added) split(text string, plain func(id int32) bool, yield func(from, to int, id int32) error) error {
	done := 0
	for at := 0; ; {
		start, end, id := a.find(text, at)
		if id == none {
			break
		}
		at = end
		token := a.tokens[id]
		if plain(id) || token.SingleWord && !alone(text[:start], text[end:]) {
			continue
		}
		if token.LStrip {
			start = max(done, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
		}
		if token.RStrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if done < start {
			if err := yield(done, start, none); err != nil {
				return err
			}
		}
		if err := yield(start, end, id); err != nil {
			return err
		}
		done = end
	}
	if done == len(text) {
		return nil
	}
	return yield(done, len(text), none)
}

// alone reports whether no word reaches the place between the two texts.
func alone(before, after string) bool {
	last, size := utf8.DecodeLastRuneInString(before)
	first, length := utf8.DecodeRuneInString(after)
	return (size == 0 || !words.has(last)) && (length == 0 || !words.has(first))
}
