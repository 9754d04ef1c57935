package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/mkgen/mkgen/models/tokenizer"
)

// promptWords are words of ASCII letters that are a token each, with a space before them and without.
type promptWords struct {
	text  *tokenizer.Tokenizer
	words []string
}

// fewestWords keeps prompts apart from each other in their first page of 16 tokens.
const fewestWords = 8

// wordsOf finds a tokenizer's words.
func wordsOf(text *tokenizer.Tokenizer) (promptWords, error) {
	w := promptWords{text: text}
	for id := range text.Size() {
		word := strings.TrimLeft(text.Decode([]int{id}, true), " ")
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return (r|0x20) < 'a' || (r|0x20) > 'z' }) {
			continue
		}
		if ids, err := text.Encode(word+" "+word, false); err == nil && len(ids) == 2 {
			w.words = append(w.words, word)
		}
	}
	if len(w.words) < fewestWords {
		return w, fmt.Errorf("found %d words that are one token, want at least %d", len(w.words), fewestWords)
	}
	return w, nil
}

// prompts returns n texts of the given number of tokens, counting those that the tokenizer puts around a text. Each
// call returns new ones.
func (w promptWords) prompts(n, tokens int) ([]string, error) {
	around, err := w.text.Encode("", true)
	if err != nil {
		return nil, err
	}
	if tokens <= len(around) {
		return nil, errors.New("no token of a prompt is left beside the tokenizer's own")
	}
	all := make([]string, n)
	for i := range all {
		words := make([]string, tokens-len(around))
		for j := range words {
			words[j] = w.words[rand.IntN(len(w.words))]
		}
		all[i] = strings.Join(words, " ")
		if ids, err := w.text.Encode(all[i], true); err != nil || len(ids) != tokens {
			return nil, errors.Join(err, fmt.Errorf("a prompt has %d tokens, want %d", len(ids), tokens))
		}
	}
	return all, nil
}
