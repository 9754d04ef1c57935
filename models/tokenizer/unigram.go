package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unknownPenalty is how far an unknown character's score lies below the lowest one (SentencePiece's).
const unknownPenalty = 10

// unigram is the model that cuts a piece into the tokens with the highest sum of scores (Viterbi).
type unigram struct {
	trie    trie
	scores  []float64
	unknown int32 // or none
	lowest  float64
	bytes   *[256]int32 // byte tokens for unknown characters; nil without byte_fallback or when one is missing
}

// node is the best way to a place in a piece: the last token on it, where that begins, and the sum of scores.
type node struct {
	id, from int32
	score    float64
}

type unigramJSON struct {
	Vocab        []scoredJSON `json:"vocab"`
	Unknown      *int64       `json:"unk_id"`
	ByteFallback bool         `json:"byte_fallback"`
}

// scoredJSON is ["token", score].
type scoredJSON struct {
	name  string
	score float64
}

func (s *scoredJSON) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil || len(pair) != 2 {
		return fault("model.vocab", quote(string(data)), "a list of a token and its score")
	}
	if err := json.Unmarshal(pair[0], &s.name); err != nil {
		return err
	}
	var number json.Number
	if err := json.Unmarshal(pair[1], &number); err != nil {
		return err
	}
	s.score = looseFloat(number.String())
	return nil
}

// looseFloat reads a number as the library's parser (serde_json) does: its digits as an integer of 64 bits, rounded,
// then scaled by a power of ten. The last bit may differ from the nearest number, and decides between equal sums of
// scores.
func looseFloat(number string) float64 {
	digits, power, _ := strings.Cut(strings.ToLower(number), "e")
	exponent, _ := strconv.Atoi(power)
	digits, negative := strings.CutPrefix(digits, "-")
	significand, fraction, full := uint64(0), false, false
	for _, c := range []byte(digits) {
		if c == '.' {
			fraction = true
			continue
		}
		full = full || significand > (math.MaxUint64-uint64(c-'0'))/10
		if !full {
			significand = significand*10 + uint64(c-'0')
		}
		switch {
		case fraction && !full:
			exponent--
		case full && !fraction:
			exponent++
		}
	}
	value := float64(significand)
	for exponent < -308 && value != 0 {
		value /= 1e308
		exponent += 308
	}
	if exponent < 0 {
		value /= math.Pow10(-exponent)
	} else {
		value *= math.Pow10(exponent)
	}
	if negative {
		return -value
	}
	return value
}

func (t *Tokenizer) readUnigram(raw json.RawMessage) (model, error) {
	f, err := fields[unigramJSON]("model", raw)
	if err != nil {
		return nil, err
	}
	vocab := make(map[string]int64, len(f.Vocab))
	u := &unigram{unknown: none, lowest: math.Inf(1)}
	for id, s := range f.Vocab {
		if _, twice := vocab[s.name]; twice {
			return nil, fault("model.vocab", quote(s.name)+" twice", "each token once")
		}
		vocab[s.name] = int64(id)
		u.scores = append(u.scores, s.score)
		u.lowest = min(u.lowest, s.score)
	}
	if err := t.readVocab(vocab); err != nil {
		return nil, err
	}
	for id, s := range f.Vocab {
		u.trie.insert(s.name, int32(id))
	}
	if f.Unknown != nil {
		if *f.Unknown < 0 || *f.Unknown >= int64(len(f.Vocab)) {
			return nil, fault("model.unk_id", fmt.Sprint(*f.Unknown), "the id of a token")
		}
		u.unknown = int32(*f.Unknown)
	}
	if f.ByteFallback {
		u.bytes = t.byteTokens()
	}
	return u, nil
}

// byteTokens finds the byte tokens, none for those that are missing.
func (t *Tokenizer) byteTokens() *[256]int32 {
	var out [256]int32
	for b := range out {
		out[b] = none
		if id, ok := t.byName[byteName(byte(b))]; ok {
			out[b] = id
		}
	}
	return &out
}

func (u *unigram) encode(ids []int, text string, w *workspace) ([]int, error) {
	w.nodes = append(w.nodes[:0], make([]node, len(text)+1)...)
	for i := range w.nodes {
		w.nodes[i].from = -1
	}
	w.nodes[0].from = 0
	for at := 0; at < len(text); {
		size := u.reach(text, at, w.nodes)
		if next := &w.nodes[at+size]; next.from < 0 {
			return nil, fault("text", quote(text[at:at+size])+", which no token has",
				"characters that the vocabulary has, or a file with unk_id")
		}
		at += size
	}
	w.path = w.path[:0]
	for end := len(text); end > 0; end = int(w.nodes[end].from) {
		w.path = append(w.path, span{int(w.nodes[end].from), end, w.nodes[end].id == u.unknown})
	}
	for i := len(w.path) - 1; i >= 0; i-- {
		each := w.path[i]
		if !each.match {
			ids = append(ids, int(w.nodes[each.to].id))
			continue
		}
		for i > 0 && w.path[i-1].match { // unknown ones in a row are one
			i--
			each.to = w.path[i].to
		}
		ids = u.fallBack(ids, text[each.from:each.to])
	}
	return ids, nil
}

// reach notes the tokens that begin at a place, and gives the length of the character there.
func (u *unigram) reach(text string, at int, nodes []node) int {
	_, size := utf8.DecodeRuneInString(text[at:])
	whole := false
	here := nodes[at].score
	u.trie.prefixes(text[at:], func(length int, id int32) {
		better(&nodes[at+length], node{id, int32(at), here + u.scores[id]})
		whole = whole || length == size
	})
	if !whole && u.unknown != none {
		better(&nodes[at+size], node{u.unknown, int32(at), here + (u.lowest - unknownPenalty)})
	}
	return size
}

func better(to *node, way node) {
	if to.from < 0 || way.score > to.score {
		*to = way
	}
}

// fallBack appends the ids of what is unknown: a token of this very spelling, byte tokens, or the unknown token.
func (u *unigram) fallBack(ids []int, text string) []int {
	if id := u.trie.get(text); id != none {
		return append(ids, int(id))
	}
	if u.bytes == nil {
		return append(ids, int(u.unknown))
	}
	for i := range len(text) {
		if u.bytes[text[i]] == none {
			return append(ids, int(u.unknown))
		}
	}
	for i := range len(text) {
		ids = append(ids, int(u.bytes[text[i]]))
	}
	return ids
}
