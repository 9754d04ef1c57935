package grammar

// tokens are some of a vocabulary: those of a mask that others may share, and some more. Most places are within
// strings, where a few hundred tokens are beside those that are plain, or between, where a few tokens lead on at all.
// So a place needs far less than a mask of all tokens, and a grammar remembers more of them.
type tokens struct {
	mask []uint32 // nil: none
	more []uint32 // not in mask
}

// write writes a bit for each of them.
func (t *tokens) write(mask []uint32) {
	clear(mask[copy(mask, t.mask):])
	for _, token := range t.more {
		mask[token/32] |= 1 << (token % 32)
	}
}

// leading are the tokens that lead on from a place. They do not change any more.
func (g *Grammar) leading(p *place) *tokens {
	if p.leads != nil {
		return p.leads
	}
	t, words := &tokens{}, (g.v.size+31)/32
	if n, plain := g.plainRun(p); plain {
		t.mask = g.v.plain[n]
		g.found = g.v.odd.walk(p, g.step, g.found[:0])
	} else {
		g.found = g.v.all.walk(p, g.step, g.found[:0])
	}
	own := 4 * len(g.found)
	if len(g.found) < words {
		t.more = append(make([]uint32, 0, len(g.found)), g.found...)
	} else {
		all := make([]uint32, words)
		(&tokens{t.mask, g.found}).write(all)
		t.mask, own = all, 4*words
	}
	if g.bytes += own; g.bytes > mostBytes {
		for _, old := range g.places {
			old.leads = nil
		}
		g.bytes = own
	}
	p.leads = t
	return t
}
