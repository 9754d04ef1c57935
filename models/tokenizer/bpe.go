package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// pair is two neighbouring tokens.
type pair struct{ left, right int32 }

// merge is what a pair becomes, and how early: the lowest rank goes first.
type merge struct{ rank, id int32 }

// bpe is the model: vocabulary and merges, over characters, or over bytes that the byte-level alphabet spells.
type bpe struct {
	byteLevel    bool             // pieces come as bytes; ids and single are of the bytes that spellings stand for
	ids          map[string]int32 // of whole pieces
	single       [256]int32       // the token of each byte, or none
	runes        map[rune]int32   // the token of each character, not for byteLevel
	merges       map[pair]merge
	ignoreMerges bool        // a piece that is a token is that token, whatever the merges say
	unknown      int32       // for characters without a token, or none
	fuse         bool        // unknown characters in a row are one token
	bytes        *[256]int32 // byte tokens for unknown characters; nil without byte_fallback
}

// symbol is a token of the piece being merged, in a doubly linked list. A symbol that was merged away has id none.
type symbol struct{ id, prev, next int32 }

// candidate is a merge that was possible when it was noted: the symbol at pos and the one after it.
type candidate struct {
	merge
	pos int32
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

// workspace is the models' working memory in one call, kept from piece to piece.
type workspace struct {
	symbols []symbol
	heap    []candidate
	nodes   []node
	path    []span
}

// encode appends the ids of a piece.
func (b *bpe) encode(ids []int, text string, w *workspace) ([]int, error) {
	if id, ok := b.ids[text]; ok && (b.ignoreMerges || len(text) == 1) {
		return append(ids, int(id)), nil
	}
	if err := b.start(text, w); err != nil {
		return nil, err
	}
	b.merge(w)
	for at := int32(0); at != none; at = w.symbols[at].next {
		ids = append(ids, int(w.symbols[at].id))
	}
	return ids, nil
}

// merge applies the merges to the symbols, the lowest rank first and of equal ones the leftmost.
func (b *bpe) merge(w *workspace) {
	for len(w.heap) > 0 {
		top := w.pop()
		left := &w.symbols[top.pos]
		if left.id == none || left.next == none {
			continue
		}
		right := w.symbols[left.next]
		if now, ok := b.merges[pair{left.id, right.id}]; !ok || now.id != top.id {
			continue // one of the two has grown since
		}
		w.symbols[left.next].id = none
		left.id, left.next = top.id, right.next
		if right.next != none {
			w.symbols[right.next].prev = top.pos
		}
		if left.prev != none {
			b.note(w, left.prev)
		}
		if left.next != none {
			b.note(w, top.pos)
		}
	}
}

// start makes each character or byte of text a symbol, and notes every merge that is possible at once.
func (b *bpe) start(text string, w *workspace) error {
	w.symbols, w.heap = w.symbols[:0], w.heap[:0]
	fill := b.fillRunes
	if b.byteLevel {
		fill = b.fillBytes
	}
	if err := fill(text, w); err != nil {
		return err
	}
	w.symbols[len(w.symbols)-1].next = none
	for i := range int32(len(w.symbols) - 1) {
		b.note(w, i)
	}
	return nil
}

func (w *workspace) push(id int32) {
	at := int32(len(w.symbols))
	w.symbols = append(w.symbols, symbol{id: id, prev: at - 1, next: at + 1})
}

func (b *bpe) fillBytes(text string, w *workspace) error {
	for i := range len(text) {
		id := b.single[text[i]]
		if id == none {
			if b.unknown == none {
				return fault("text", fmt.Sprintf("byte %#02x in %s", text[i], quote(text)),
					"bytes that the vocabulary has a token for")
			}
			return b.fillRunes(mapBytes(text), w)
		}
		w.push(id)
	}
	return nil
}

// fillRunes makes symbols of characters. One without a token becomes its byte tokens if all are there, else the unknown
// token. As in the library an unknown token waits for the next character that has one of its own, behind byte tokens.
func (b *bpe) fillRunes(text string, w *workspace) error {
	w.symbols = w.symbols[:0]
	waiting := false
	for at, r := range text {
		if id, ok := b.runes[r]; ok {
			if waiting {
				w.push(b.unknown)
				waiting = false
			}
			w.push(id)
			continue
		}
		c := text[at : at+utf8.RuneLen(r)]
		if b.fallBack(c, w) {
			continue
		}
		if b.unknown == none {
			return fault("text", quote(c)+", which no token has", "characters that the vocabulary has, or a file with unk_token")
		}
		if waiting && !b.fuse {
			w.push(b.unknown)
		}
		waiting = true
	}
	if waiting {
		w.push(b.unknown)
	}
	return nil
}

// fallBack makes the bytes of a character symbols, false when a byte token is missing.
func (b *bpe) fallBack(c string, w *workspace) bool {
	if b.bytes == nil {
		return false
	}
	for i := range len(c) {
		if b.bytes[c[i]] == none {
			return false
		}
	}
	for i := range len(c) {
		w.push(b.bytes[c[i]])
	}
	return true
}

// note pushes the merge of the symbol at pos and the next one, if there is such a merge.
func (b *bpe) note(w *workspace, pos int32) {
	left := w.symbols[pos]
	found, ok := b.merges[pair{left.id, w.symbols[left.next].id}]
	if !ok {
		return
	}
	w.heap = append(w.heap, candidate{found, pos})
	for at := len(w.heap) - 1; at > 0; {
		above := (at - 1) / 2
		if !w.heap[at].before(w.heap[above]) {
			return
		}
		w.heap[at], w.heap[above] = w.heap[above], w.heap[at]
		at = above
	}
}

// pop takes the first candidate off the heap, which must not be empty.
func (w *workspace) pop() candidate {
	top := w.heap[0]
	last := len(w.heap) - 1
	w.heap[0] = w.heap[last]
	w.heap = w.heap[:last]
	for at := 0; ; {
		child := 2*at + 1
		if child >= last {
			return top
		}
		if child+1 < last && w.heap[child+1].before(w.heap[child]) {
			child++
		}
		if !w.heap[child].before(w.heap[at]) {
			return top
		}
		w.heap[at], w.heap[child] = w.heap[child], w.heap[at]
		at = child
	}
}
