package promela

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// known is what is known of a word of a place while the model is written: its one value, unless it varies.
type known struct {
	value  uint32
	varies bool
}

// place is an element of a buffer that threads or copies access. A place with strong accesses keeps all its values in
// coherence order, each with a row of V for what its writer released.
type place struct {
	at
	number  int
	word    []known
	users   map[agent][]access
	strongs []agent // who accesses it strongly
	writes  int
	id      int // among the strong places
	row     int // of V: the first value's
	cell    int // of the array of values: the first value's
	size    int // values that it has room for
}

func (p *place) note(u agent, a access) {
	if !slices.Contains(p.users[u], a) {
		p.users[u] = append(p.users[u], a)
	}
}

func (p *place) strongly(u agent) {
	if !slices.Contains(p.strongs, u) {
		p.strongs = append(p.strongs, u)
	}
}

func (p *place) strong() bool { return len(p.strongs) > 0 }

// set notes that the place may hold a value.
func (p *place) set(value []word) {
	for i, w := range value {
		if !w.known || w.n != p.word[i].value {
			p.word[i].varies = true
		}
	}
}

// varying is how many words of the place have an element in the array of values.
func (p *place) varying() (n int) {
	for _, w := range p.word {
		n += int(truth(w.varies))
	}
	return n
}

func (p *place) newest() string { return fmt.Sprintf("newest[%d]", p.id) }

func (p *place) length() int { return max(p.size, 1) }

// words gives the words of one of the place's values: number i, or the one that an expression says.
func (p *place) words(x *exporter, expr string, i int) (list []word) {
	n := 0
	for _, w := range p.word {
		switch {
		case x.final && !w.varies:
			list = append(list, number(w.value))
			continue
		case expr == "":
			list = append(list, word{s: fmt.Sprintf("cell[%d]", p.cell+i*p.varying()+n)})
		case p.varying() == 1:
			list = append(list, word{s: fmt.Sprintf("cell[%d + %s]", p.cell, expr)})
		default:
			list = append(list, word{s: fmt.Sprintf("cell[%d + %d * (%s)]", p.cell+n, p.varying(), expr)})
		}
		n++
	}
	return list
}

// narrow reports whether somebody accesses the place with a scope that does not hold all who do.
func (p *place) narrow(x *exporter) bool {
	for _, list := range p.users {
		for _, a := range list {
			if a.strong && a.scope < ir.GPU && x.k.Grid > 1 {
				return true
			}
		}
	}
	return false
}

// writers counts those who store.
func (p *place) writers() (n int) {
	for _, list := range p.users {
		n += int(truth(slices.ContainsFunc(list, func(a access) bool { return a.write })))
	}
	return n
}

// use is an agent's access in a fixed order.
type use struct {
	agent
	access
}

func (p *place) uses() (list []use) {
	for u, accesses := range p.users {
		for _, a := range accesses {
			list = append(list, use{u, a})
		}
	}
	slices.SortFunc(list, func(a, b use) int {
		return cmp.Or(cmp.Compare(a.num, b.num), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	return list
}

// races reports whether two accesses need an order: they conflict and are not both strong with scopes that include each
// other (PTX: morally strong).
func races(a, b use) bool {
	mutual := a.strong && b.strong && (a.cta == b.cta || a.scope >= ir.GPU && b.scope >= ir.GPU)
	return a.agent != b.agent && (a.write || b.write) && !mutual
}

// slotKey names where an agent notes its latest access of a kind to a place.
type slotKey struct {
	place int
	use   use
}

// layout says where everything is in the model's arrays.
type layout struct {
	slots    map[slotKey]int
	clocks   map[int]int // by row: element of V's rows that counts an agent's epochs
	proxy    bool        // behind the clocks: what of them lies before a proxy fence
	strong   []*place
	bars     []*bar
	mbars    []*mbar
	width    int // of a row
	values   int // row of the first value
	rows     int
	cells    int
	shuffled map[[3]int]int
}

func (x *exporter) layOut() {
	l := &x.lay
	l.slots, l.clocks, l.proxy = map[slotKey]int{}, map[int]int{}, len(x.copies) > 0
	for _, p := range x.order {
		uses := p.uses()
		for _, a := range uses {
			if !slices.ContainsFunc(uses, func(b use) bool { return races(a, b) }) {
				continue
			}
			l.slots[slotKey{p.number, a}] = len(l.slots)
			if _, ok := l.clocks[a.num]; !ok {
				l.clocks[a.num] = len(l.clocks)
			}
		}
	}
	l.values = len(x.threads) + len(x.copies)
	row := l.values
	for _, p := range x.order {
		p.cell = l.cells
		if p.size = 1; p.strong() {
			p.id, p.row, p.size = len(l.strong), row, 1+p.writes
			row += p.size
			l.strong = append(l.strong, p)
		}
		l.cells += p.size * p.varying()
	}
	l.bars, l.mbars = sorted(x.bars), sorted(x.mbars)
	l.rows = row + 2*len(l.bars) + 2*len(l.mbars)
	l.width = len(l.clocks)*(1+int(truth(l.proxy))) + len(l.strong) + len(l.mbars)
	shuffled := l.shuffled
	l.shuffled = map[[3]int]int{}
	for i := range len(shuffled) {
		for k, n := range shuffled {
			if n == i {
				l.shuffled[k] = i
			}
		}
	}
}

func (l *layout) cellAt(row, k int) int { return row*l.width + k }

// clock is the element that counts an agent's epochs, −1 where nobody asks for it.
func (l *layout) clock(row int) int {
	if k, ok := l.clocks[row]; ok {
		return k
	}
	return -1
}

func (l *layout) views() int { return len(l.clocks) * (1 + int(truth(l.proxy))) }

// view is the element of V that holds the oldest value of a place that a thread may still see.
func (l *layout) view(row int, p *place) int { return l.cellAt(row, l.views()+p.id) }

// waited is the element of a row that says up to which phase of an mbarrier somebody has waited.
func (l *layout) waited(b *mbar) int { return l.views() + len(l.strong) + b.num }

// barRow is the row of what has arrived at a barrier; behind it is what the generation before carried.
func (l *layout) barRow(b *bar) int { return l.rows - 2*len(l.mbars) - 2*len(l.bars) + 2*b.num }

func (l *layout) mbarRow(b *mbar) int { return l.rows - 2*len(l.mbars) + 2*b.num }

func (l *layout) shuffle(cta, warp, i int) int {
	if l.shuffled == nil {
		l.shuffled = map[[3]int]int{}
	}
	k := [3]int{cta, warp, i}
	n, ok := l.shuffled[k]
	if !ok {
		n = len(l.shuffled)
		l.shuffled[k] = n
	}
	return n
}

// check is the statements that compare an access with all that it may race with, and note it.
func (x *exporter) check(p *place, u agent, a access) (list []string) {
	if !x.final {
		return nil
	}
	l, self := &x.lay, use{u, a}
	for _, other := range p.uses() {
		if !races(self, other) {
			continue
		}
		slot, k := l.slots[slotKey{p.number, other}], l.clock(other.num)
		fault := "data_race"
		if a.strong && other.strong {
			fault = "insufficient_scope"
		}
		list = append(list, fmt.Sprintf("assert(slot[%d] <= V[%d] || no_%s);", slot, l.cellAt(u.num, k), fault))
		if a.async && !other.async {
			list = append(list, fmt.Sprintf("assert(slot[%d] <= V[%d] || no_missing_proxy_fence);", slot,
				l.cellAt(u.num, k+len(l.clocks))))
		}
	}
	if slot, ok := l.slots[slotKey{p.number, self}]; ok {
		list = append(list, fmt.Sprintf("slot[%d] = V[%d] + 1;", slot, l.cellAt(u.num, l.clock(u.num))))
	}
	return list
}
