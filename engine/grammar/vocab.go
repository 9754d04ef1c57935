package grammar

import (
	"bytes"
	"slices"
)

// Vocab is the tokens of a model as bytes.
type Vocab struct {
	size  int
	bytes [][]byte // by token; nil for those that are no text
	ends  []int
	trie  []node // in the order of bytes, every node before those below it
	order []int  // tokens in that order
}

// node is a byte of some tokens.
type node struct {
	b        byte
	depth    int32 // bytes before it
	after    int32 // the first node that is not below it
	from, to int32 // of order: the tokens that end with it
}

// NewVocab makes one of size tokens. text gives a token's bytes, nil for special tokens and others that are no text;
// ends are the tokens that end an answer.
func NewVocab(size int, text func(token int) []byte, ends []int) *Vocab {
	v := &Vocab{size: size, bytes: make([][]byte, size), ends: slices.Clone(ends)}
	for token := range size {
		if slices.Contains(ends, token) {
			continue
		}
		if v.bytes[token] = text(token); len(v.bytes[token]) > 0 {
			v.order = append(v.order, token)
		}
	}
	slices.SortStableFunc(v.order, func(a, b int) int { return bytes.Compare(v.bytes[a], v.bytes[b]) })
	var path []int32 // the nodes of the last token
	var last []byte
	for i, token := range v.order {
		text := v.bytes[token]
		same := 0
		for same < min(len(last), len(text)) && last[same] == text[same] {
			same++
		}
		path = v.shut(path, same)
		for depth := same; depth < len(text); depth++ {
			path = append(path, int32(len(v.trie)))
			v.trie = append(v.trie, node{b: text[depth], depth: int32(depth)})
		}
		end := &v.trie[path[len(path)-1]]
		if end.to == 0 {
			end.from = int32(i)
		}
		end.to = int32(i) + 1
		last = text
	}
	v.shut(path, 0)
	return v
}

// shut says of nodes of a path from a depth on that nothing more comes below them.
func (v *Vocab) shut(path []int32, depth int) []int32 {
	for _, at := range path[depth:] {
		v.trie[at].after = int32(len(v.trie))
	}
	return path[:depth]
}

// walk sets the bits of the tokens that lead anywhere from a place.
func (v *Vocab) walk(from *place, step func(*place, byte) *place, mask []uint32) {
	path := []*place{from}
	for i := int32(0); i < int32(len(v.trie)); {
		n := &v.trie[i]
		to := step(path[n.depth], n.b)
		if to == nil {
			i = n.after
			continue
		}
		path = append(path[:n.depth+1], to)
		for _, token := range v.order[n.from:n.to] {
			mask[token/32] |= 1 << (token % 32)
		}
		i++
	}
}
