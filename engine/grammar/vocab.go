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
	all   trie
	odd   trie       // of the tokens that are in no mask of plain
	plain [][]uint32 // by n: the tokens of up to n characters that need no escape in JSON; see plain.go
}

// trie is of some tokens.
type trie struct {
	nodes []node // in the order of bytes, every node before those below it
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
	var all []int
	for token := range size {
		if slices.Contains(ends, token) {
			continue
		}
		if v.bytes[token] = text(token); len(v.bytes[token]) > 0 {
			all = append(all, token)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return bytes.Compare(v.bytes[a], v.bytes[b]) })
	v.all = v.trie(all)
	v.odd = v.trie(v.setPlain(all))
	return v
}

// trie is that of tokens in the order of their bytes.
func (v *Vocab) trie(order []int) trie {
	t := trie{order: order}
	var path []int32 // the nodes of the last token
	var last []byte
	for i, token := range order {
		text := v.bytes[token]
		same := 0
		for same < min(len(last), len(text)) && last[same] == text[same] {
			same++
		}
		path = t.shut(path, same)
		for depth := same; depth < len(text); depth++ {
			path = append(path, int32(len(t.nodes)))
			t.nodes = append(t.nodes, node{b: text[depth], depth: int32(depth)})
		}
		end := &t.nodes[path[len(path)-1]]
		if end.to == 0 {
			end.from = int32(i)
		}
		end.to = int32(i) + 1
		last = text
	}
	t.shut(path, 0)
	return t
}

// shut says of nodes of a path from a depth on that nothing more comes below them.
func (t *trie) shut(path []int32, depth int) []int32 {
	for _, at := range path[depth:] {
		t.nodes[at].after = int32(len(t.nodes))
	}
	return path[:depth]
}

// walk appends the tokens that lead anywhere from a place to found.
func (t *trie) walk(from *place, step func(*place, byte) *place, found []uint32) []uint32 {
	path := []*place{from}
	for i := int32(0); i < int32(len(t.nodes)); {
		n := &t.nodes[i]
		to := step(path[n.depth], n.b)
		if to == nil {
			i = n.after
			continue
		}
		path = append(path[:n.depth+1], to)
		for _, token := range t.order[n.from:n.to] {
			found = append(found, uint32(token))
		}
		i++
	}
	return found
}
