package tokenizer

import "fmt"

// pair is two neighbouring tokens.
type pair struct{ left, right int32 }

// merge is what a pair becomes, and how early: the lowest rank goes first.
type merge struct{ rank, id int32 }

// bpe is the model: vocabulary and merges, over bytes.
type bpe struct {
	ids          map[string]int32
	single       [256]int32 // the token of each byte, or none
	merges       map[pair]merge
	ignoreMerges bool // a piece that is a token is that token, whatever the merges say
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

// merger is the working memory of one call, kept from piece to piece.
type merger struct {
	symbols []symbol
	heap    []candidate
}

// encode appends the ids of piece, one of the pieces that the pre-tokenizer made.
func (b *bpe) encode(ids []int, piece string, m *merger) ([]int, error) {
	if id, ok := b.ids[piece]; ok && (b.ignoreMerges || len(piece) == 1) {
		return append(ids, int(id)), nil
	}
	if err := b.start(piece, m); err != nil {
		return nil, err
	}
	for len(m.heap) > 0 {
		top := m.pop()
		left := &m.symbols[top.pos]
		if left.id == none || left.next == none {
			continue
		}
		right := m.symbols[left.next]
		if now, ok := b.merges[pair{left.id, right.id}]; !ok || now.id != top.id {
			continue // one of the two has grown since
		}
		m.symbols[left.next].id = none
		left.id, left.next = top.id, right.next
		if right.next != none {
			m.symbols[right.next].prev = top.pos
			b.note(m, top.pos)
		}
		if left.prev != none {
			b.note(m, left.prev)
		}
	}
	for at := int32(0); at != none; at = m.symbols[at].next {
		ids = append(ids, int(m.symbols[at].id))
	}
	return ids, nil
}

// start makes each byte of piece a symbol, and notes every merge that is possible at once.
func (b *bpe) start(piece string, m *merger) error {
	m.symbols, m.heap = m.symbols[:0], m.heap[:0]
	for i := range len(piece) {
		id := b.single[piece[i]]
		if id == none {
			return fault("text", fmt.Sprintf("byte %#02x in %s", piece[i], quote(piece)), "bytes that the vocabulary has a token for")
		}
		m.symbols = append(m.symbols, symbol{id: id, prev: int32(i) - 1, next: int32(i) + 1})
	}
	m.symbols[len(piece)-1].next = none
	for i := range int32(len(piece) - 1) {
		b.note(m, i)
	}
	return nil
}

// note pushes the merge of the symbol at pos and the next one, if there is such a merge.
func (b *bpe) note(m *merger, pos int32) {
	left := m.symbols[pos]
	found, ok := b.merges[pair{left.id, m.symbols[left.next].id}]
	if !ok {
		return
	}
	m.heap = append(m.heap, candidate{found, pos})
	for at := len(m.heap) - 1; at > 0; {
		above := (at - 1) / 2
		if !m.heap[at].before(m.heap[above]) {
			return
		}
		m.heap[at], m.heap[above] = m.heap[above], m.heap[at]
		at = above
	}
}

// pop takes the first candidate off the heap, which must not be empty.
func (m *merger) pop() candidate {
	top := m.heap[0]
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	for at := 0; ; {
		child := 2*at + 1
		if child >= last {
			return top
		}
		if child+1 < last && m.heap[child+1].before(m.heap[child]) {
			child++
		}
		if !m.heap[child].before(m.heap[at]) {
			return top
		}
		m.heap[at], m.heap[child] = m.heap[child], m.heap[at]
		at = child
	}
}
