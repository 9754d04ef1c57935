package kv

// A radix tree of the sequences' page lists: an inner node is a run of full pages
// that all sequences below it begin with, a leaf is the rest of one sequence. Which
// inner nodes become units of their own is decided by cost.

const maxNodes = 2 * MaxRows

// node is a node of the tree. Node 0 is the root: no pages.
type node struct {
	seq         int    // the sequence; of an inner node, one below it
	from, to    int    // its pages are the sequence's pages from to to−1
	child, next int    // first child and next sibling, 0 for none
	rows        uint32 // bit t: query row t is below it
	leaf        bool
}

type radix struct {
	nodes [maxNodes]node
	n     int
	memo  [maxNodes][maxNodes]choice // [node][the last node above it that is split off]
}

// choice is the least cost of a subtree, and whether it splits off the subtree's root.
type choice struct {
	cost         int
	split, known bool
}

func (x *radix) reset() {
	x.nodes[0] = node{}
	x.n = 1
}

func (x *radix) add(n node) int {
	x.nodes[x.n] = n
	x.n++
	return x.n - 1
}

// insert adds sequence i, whose full pages are pages and whose query rows are rows.
func (x *radix) insert(seqs []Sequence, i int, full int, rows uint32) {
	pages := seqs[i].Pages[:full]
	at, depth := 0, 0
	for {
		x.nodes[at].rows |= rows
		link := &x.nodes[at].child
		for *link != 0 {
			c := &x.nodes[*link]
			if c.to > depth && full > depth && seqs[c.seq].Pages[depth] == pages[depth] {
				break
			}
			link = &c.next
		}
		if *link == 0 {
			*link = x.add(node{seq: i, from: depth, to: full, rows: rows, leaf: true})
			return
		}
		c := &x.nodes[*link]
		same := depth + common(seqs[c.seq].Pages[depth:c.to], pages[depth:])
		if same < c.to || c.leaf {
			inner := x.add(node{seq: c.seq, from: depth, to: same, child: *link, next: c.next, rows: c.rows})
			c.from, c.next = same, 0
			*link = inner
		}
		at, depth = *link, same
	}
}

// common is how many pages a and b have in common from the start on. It compares
// blocks first: with pages of one token a prefix is thousands of them.
func common(a, b []uint32) int {
	const block = 64
	n, i := min(len(a), len(b)), 0
	for i+block <= n && *(*[block]uint32)(a[i:]) == *(*[block]uint32)(b[i:]) {
		i += block
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// decide finds the cheapest set of inner nodes to split off.
func (x *radix) decide(p *Planner, r *Request) {
	for i := range x.n {
		clear(x.memo[i][:x.n])
	}
	for c := x.nodes[0].child; c != 0; c = x.nodes[c].next {
		x.best(p, r.Sequences, c, 0)
	}
}

// best is the least cost of node v's subtree when above is the last node above it
// that is split off: what lies between the two belongs to v's units.
func (x *radix) best(p *Planner, seqs []Sequence, v, above int) int {
	m := &x.memo[v][above]
	if m.known {
		return m.cost
	}
	n := &x.nodes[v]
	start := x.nodes[above].to
	if n.leaf {
		*m = choice{cost: p.unitCost(n.rows, seqs[n.seq].Cached-start*p.limits.PageSize), known: true}
		return m.cost
	}
	keep, split := 0, p.unitCost(n.rows, (n.to-start)*p.limits.PageSize)+p.limits.Costs.State*count(n.rows)
	for c := n.child; c != 0; c = x.nodes[c].next {
		keep += x.best(p, seqs, c, above)
		split += x.best(p, seqs, c, v)
	}
	*m = choice{cost: min(keep, split), split: split < keep, known: true}
	return m.cost
}

// unitCost is what one KV head's items over a unit cost that are not cut.
func (p *Planner) unitCost(rows uint32, tokens int) int {
	n, c := count(rows), &p.limits.Costs
	tiles := ceilDiv(n, p.tileRows)
	return tiles*(c.Item+c.Token*tokens) + n*c.Row
}
