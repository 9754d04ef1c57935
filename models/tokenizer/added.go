package tokenizer

// added is a set of added tokens that is looked for in texts, as a trie over their bytes. The zero value is the empty set.
type added struct {
	nodes []addedNode
}

type addedNode struct {
	next map[byte]int32
	id   int32 // of the token that ends here, or none
}

const none = int32(-1)

func (a *added) insert(content string, id int32) {
	if len(a.nodes) == 0 {
		a.nodes = []addedNode{{next: map[byte]int32{}, id: none}}
	}
	at := int32(0)
	for i := range len(content) {
		next, ok := a.nodes[at].next[content[i]]
		if !ok {
			next = int32(len(a.nodes))
			a.nodes = append(a.nodes, addedNode{next: map[byte]int32{}, id: none})
			a.nodes[at].next[content[i]] = next
		}
		at = next
	}
	a.nodes[at].id = id
}

// find gives the first added token in text, the longest of those that start there: where it starts and ends, and its id; id is none
// when there is none.
func (a *added) find(text string) (start, end int, id int32) {
	if len(a.nodes) == 0 {
		return 0, 0, none
	}
	for start = range len(text) {
		at, found := int32(0), none
		for i := start; i < len(text); i++ {
			next, ok := a.nodes[at].next[text[i]]
			if !ok {
				break
			}
			at = next
			if a.nodes[at].id != none {
				end, found = i+1, a.nodes[at].id
			}
		}
		if found != none {
			return start, end, found
		}
	}
	return 0, 0, none
}
