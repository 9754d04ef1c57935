package tokenizer

// trie is a set of texts with ids, looked for byte by byte. The zero value is the empty set.
type trie struct {
	next map[edge]int32
	ids  []int32 // by node: of the text that ends there, or none
	root [256]int32
}

// edge leads from a node over a byte.
type edge struct {
	node int32
	over byte
}

func (t *trie) insert(text string, id int32) {
	if len(t.ids) == 0 {
		t.next, t.ids = map[edge]int32{}, []int32{none}
	}
	at := int32(0)
	for i := range len(text) {
		next, ok := t.step(at, text[i])
		if !ok {
			next = int32(len(t.ids))
			t.ids = append(t.ids, none)
			if at == 0 {
				t.root[text[i]] = next
			} else {
				t.next[edge{at, text[i]}] = next
			}
		}
		at = next
	}
	t.ids[at] = id
}

func (t *trie) step(at int32, over byte) (int32, bool) {
	if at == 0 {
		return t.root[over], t.root[over] != 0
	}
	next, ok := t.next[edge{at, over}]
	return next, ok
}

// prefixes yields the texts of the set that text begins with, the shortest first.
func (t *trie) prefixes(text string, yield func(length int, id int32)) {
	at := int32(0)
	for i := range len(text) {
		next, ok := t.step(at, text[i])
		if !ok {
			return
		}
		at = next
		if t.ids[at] != none {
			yield(i+1, t.ids[at])
		}
	}
}

// get gives the id of text, or none.
func (t *trie) get(text string) int32 {
	found := none
	t.prefixes(text, func(length int, id int32) {
		if length == len(text) {
			found = id
		}
	})
	return found
}
