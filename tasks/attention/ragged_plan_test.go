package attention_test

import (
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/tasks/attention"
)

// plan makes the items: every unit of every KV head cut into parts.
func (b *batch) plan() {
	type state struct{ item, row int }
	of := map[[2]int][]state{} // (row, head): in order of the KV
	add := func(it item) {
		for i, r := range it.rows {
			of[[2]int{r, it.head}] = append(of[[2]int{r, it.head}], state{len(b.items), i})
		}
		it.partials = make([]int, len(it.rows))
		b.items = append(b.items, it)
	}
	unit := func(it item, tail int) {
		chunks := (it.cached + b.index*it.grow + b.perStage - 1) / b.perStage
		for p := range b.parts {
			x := it
			x.a, x.b, x.of = p, p+1, b.parts
			if b.pinned {
				x.a, x.b, x.of = p*chunks/b.parts, (p+1)*chunks/b.parts, 0
				if p == b.parts-1 {
					x.b = 1 << 30
				}
			}
			if p == b.parts-1 && !b.tails {
				x.tail = tail
			}
			x.direct = b.parts == 1 && b.prefix == 0 && !b.tails
			add(x)
			for j := 0; p == b.parts-1 && b.tails && j < tail; j++ {
				one := x
				one.a, one.b, one.of, one.tail, one.tailRow = 0, 0, 1, 1, x.tailRow+j
				one.cached, one.grow = x.cached+j, x.grow // its KV lies that much further
				add(one)
			}
		}
	}
	all := make([]int, len(b.rows))
	for i := range all {
		all[i] = i
	}
	for head := range b.kvHeads {
		if b.prefix > 0 {
			unit(item{head: head, cached: b.prefix, rows: all}, 0)
		}
		first := 0
		for n, s := range b.seqs {
			it := item{head: head, entries: b.start[n], cached: s.cached, grow: 1, position: b.prefix,
				rows: all[first : first+s.new], tailRow: first}
			unit(it, s.new)
			first += s.new
		}
	}
	b.indptr = make([]uint32, attention.MergeWords(b.tokens, b.kvHeads))
	next := 0
	for i := range b.tokens * b.kvHeads {
		b.indptr[i] = uint32(next)
		for _, s := range of[[2]int{i / b.kvHeads, i % b.kvHeads}] {
			if !b.items[s.item].direct {
				b.items[s.item].partials[s.row] = next
				next++
			}
		}
	}
	b.indptr[b.tokens*b.kvHeads] = uint32(next)
}

// words is the plan buffer: the items dealt to the CTAs in turn.
func (b *batch) words() (perCTA int, words []uint32) {
	perCTA = max(1, (len(b.items)+b.sms-1)/b.sms)
	words = make([]uint32, b.sms*(perCTA+1)*kv.ItemWords)
	for i, it := range b.items {
		cta := words[i%b.sms*(perCTA+1)*kv.ItemWords:]
		cta[0]++
		w := cta[int(cta[0])*kv.ItemWords:]
		for at, v := range map[int]int{kv.ItemHead: it.head, kv.ItemEntries: it.entries, kv.ItemCached: it.cached,
			kv.ItemGrow: it.grow, kv.ItemFirst: it.a, kv.ItemEnd: it.b, kv.ItemOf: it.of, kv.ItemPosition: it.position,
			kv.ItemRows: len(it.rows), kv.ItemTail: it.tail, kv.ItemTailRow: it.tailRow} {
			w[at] = uint32(v)
		}
		if it.direct {
			w[kv.ItemFlags] = kv.ItemDirect
		}
		for j, r := range it.rows {
			w[kv.ItemRowList+j/8] |= uint32(r) << (4 * (j % 8))
			w[kv.ItemPartials+j] = uint32(it.partials[j])
		}
	}
	return perCTA, words
}

func (b *batch) rowWords() []uint32 {
	words := make([]uint32, b.tokens*kv.RowWords)
	for t, r := range b.rows {
		w := words[t*kv.RowWords:]
		w[kv.RowPosition], w[kv.RowTail], w[kv.RowFirst] = uint32(r.position-b.index), r.tail, uint32(r.first)
		w[kv.RowMask] = uint32(3 + t*maskWords)
	}
	return words
}
