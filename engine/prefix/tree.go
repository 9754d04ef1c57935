package prefix

import (
	"container/list"
	"slices"

	"github.com/mkgen/mkgen/engine/pages"
)

// Tree is the whole pages of tokens in a KV cache. Not safe for concurrent use.
type Tree struct {
	pool  *pages.Pool
	page  int
	root  *node
	clock uint64     // cursors that have left
	all   int        // pages in the tree
	idle  int        // of these, pages that nobody else holds
	order *list.List // of all nodes but the root, by used; of those with the same, children before parents
}

// node is a run of pages that follow each other, under the page its parent ends
// with. Siblings differ in the tokens of their first page.
type node struct {
	parent   *node
	children []*node // as they came
	tokens   []int   // page of them for each of pages
	pages    []uint32
	cursors  int    // at its end; the root counts none
	used     uint64 // clock when a cursor left it, or a node below it, last
	place    *list.Element
}

// New makes an empty tree over pages of n tokens (at least 1), which it
// shares in pool.
func New(pool *pages.Pool, page int) *Tree {
	return &Tree{pool: pool, page: page, root: &node{}, order: list.New()}
}

// Pages is how many pages the tree holds, and how many of these nobody else does.
func (t *Tree) Pages() (all, idle int) { return t.all, t.idle }

// Cursor is where the whole pages of one sequence end. Follow, Put and Leave of
// its tree move it; the zero Cursor is at the beginning and holds nothing.
type Cursor struct {
	at    *node // nil: at the root
	pages int
}

// Pages is how many pages there are above the cursor, all of which its owner holds.
func (c *Cursor) Pages() int { return c.pages }

// Same reports whether two cursors of one tree stand behind the same tokens.
func (c *Cursor) Same(d *Cursor) bool { return c.pages == d.pages && c.at == d.at }

func (t *Tree) end(c *Cursor) *node {
	if c.at == nil {
		return t.root
	}
	return c.at
}

// move puts a cursor at the end of a node below its own, of which it then holds
// the pages.
func (t *Tree) move(c *Cursor, to *node) {
	if c.at != nil {
		c.at.cursors--
	}
	to.cursors++
	c.at = to
	c.pages += len(to.pages)
	for _, p := range to.pages {
		t.hold(p)
	}
}

// hold makes one holder more of a page of the tree.
func (t *Tree) hold(p uint32) {
	if t.pool.Refs(p) == 1 {
		t.idle--
	}
	must(t.pool.Share(p))
}

// drop makes one holder less, beside the tree.
func (t *Tree) drop(p uint32) {
	must(t.pool.Give([]uint32{p}))
	if t.pool.Refs(p) == 1 {
		t.idle++
	}
}

func must(err error) {
	if err != nil {
		panic("BUG: " + err.Error())
	}
}

// Follow moves the cursor along the tokens that follow it as far as the tree has
// whole pages of them, and returns these pages, which the cursor's owner then holds.
func (t *Tree) Follow(c *Cursor, tokens []int) []uint32 {
	var out []uint32
	for {
		next := t.end(c).child(tokens, t.page)
		if next == nil {
			return out
		}
		n := 1
		for n < len(next.pages) && (n+1)*t.page <= len(tokens) &&
			slices.Equal(next.tokens[n*t.page:(n+1)*t.page], tokens[n*t.page:(n+1)*t.page]) {
			n++
		}
		next = t.split(next, n)
		t.move(c, next)
		out = append(out, next.pages...)
		tokens = tokens[n*t.page:]
	}
}

// Match is how many pages Follow would move the cursor along.
func (t *Tree) Match(c *Cursor, tokens []int) (pages int) {
	n := t.end(c)
	for {
		if n = n.child(tokens, t.page); n == nil {
			return pages
		}
		for i := range n.pages {
			if len(tokens) < t.page || !slices.Equal(n.tokens[i*t.page:(i+1)*t.page], tokens[:t.page]) {
				return pages
			}
			tokens = tokens[t.page:]
			pages++
		}
	}
}

// child is the child whose first page holds the first of tokens, or nil.
func (n *node) child(tokens []int, page int) *node {
	if len(tokens) < page {
		return nil
	}
	for _, c := range n.children {
		if slices.Equal(c.tokens[:page], tokens[:page]) {
			return c
		}
	}
	return nil
}

// split returns a node of the first m pages of n. Cursors at the end of n stay
// at the end of n, which then is the rest. Both share memory: the upper one grows
// only when the other is gone.
func (t *Tree) split(n *node, m int) *node {
	if m == len(n.pages) {
		return n
	}
	page := t.page
	upper := &node{parent: n.parent, children: []*node{n}, tokens: n.tokens[:m*page], pages: n.pages[:m], used: n.used}
	n.parent.children[slices.Index(n.parent.children, n)] = upper
	n.parent, n.tokens, n.pages = upper, n.tokens[m*page:], n.pages[m:]
	upper.place = t.order.InsertAfter(upper, n.place)
	return upper
}

// Put adds a page, which the cursor's owner holds and has filled with tokens (one
// page of them, those that follow the cursor), and moves the cursor behind it. It
// returns the page to use from now on, which the owner holds instead: the same, or
// the one that the tree had for these tokens already.
func (t *Tree) Put(c *Cursor, tokens []int, page uint32) uint32 {
	at := t.end(c)
	if there := at.child(tokens, t.page); there != nil {
		there = t.split(there, 1)
		t.move(c, there)
		must(t.pool.Give([]uint32{page}))
		return there.pages[0]
	}
	must(t.pool.Share(page)) // the tree's own
	t.all++
	c.pages++
	tokens = tokens[:t.page]
	if at != t.root && at.cursors == 1 && len(at.children) == 0 {
		at.tokens = append(at.tokens, tokens...)
		at.pages = append(at.pages, page)
		return page
	}
	n := &node{parent: at, tokens: slices.Clone(tokens), pages: []uint32{page}, cursors: 1}
	n.place = t.order.PushFront(n)
	at.children = append(at.children, n)
	if c.at != nil {
		at.cursors--
	}
	c.at = n
	return page
}

// Leave gives back all pages above the cursor and puts it at the beginning. The
// pages stay in the tree.
func (t *Tree) Leave(c *Cursor) {
	if c.at != nil {
		c.at.cursors--
	}
	t.clock++
	for n := c.at; n != nil && n != t.root; n = n.parent {
		n.used = t.clock
		t.order.MoveToBack(n.place)
		for _, p := range n.pages {
			t.drop(p)
		}
	}
	*c = Cursor{}
}
