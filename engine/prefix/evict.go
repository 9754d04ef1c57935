package prefix

import (
	"fmt"
	"slices"
)

// Evict gives up to n idle pages back to the pool and returns how many: from the
// ends of the runs that were used least recently.
func (t *Tree) Evict(n int) int {
	gone := 0
	for gone < n {
		leaf := t.oldest()
		if leaf == nil {
			break
		}
		gone += t.trim(leaf, n-gone)
	}
	return gone
}

// oldest returns the leaf with an idle end that was used least recently; nil when there is none. All nodes before it in
// the order are held by cursors: one that is not has children that are not, and these come before it.
func (t *Tree) oldest() *node {
	for e := t.order.Front(); e != nil; e = e.Next() {
		n := e.Value.(*node)
		if len(n.children) == 0 && t.pool.Refs(n.pages[len(n.pages)-1]) == 1 {
			return n
		}
	}
	return nil
}

// trim gives up to most pages at the end of a leaf, and the leaf with the last. All
// of them are idle, since cursors stand at ends.
func (t *Tree) trim(leaf *node, most int) int {
	keep := max(0, len(leaf.pages)-most)
	gone := len(leaf.pages) - keep
	must(t.pool.Give(leaf.pages[keep:]))
	leaf.pages, leaf.tokens = leaf.pages[:keep], leaf.tokens[:keep*t.page]
	t.all -= gone
	t.idle -= gone
	if keep == 0 {
		p := leaf.parent
		i := slices.Index(p.children, leaf)
		p.children = slices.Delete(p.children, i, i+1)
		t.order.Remove(leaf.place)
	}
	return gone
}

// walk calls f for every node but the root, parents first, siblings as they came.
func (t *Tree) walk(f func(*node)) {
	stack := []*node{t.root}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if n != t.root {
			f(n)
		}
		for _, c := range slices.Backward(n.children) {
			stack = append(stack, c)
		}
	}
}

// Check is an error when the tree does not agree with itself or with the pool. It
// looks at every page and is for tests.
func (t *Tree) Check() (err error) {
	all, idle, nodes := 0, 0, 0
	seen := map[uint32]bool{}
	t.walk(func(n *node) {
		nodes++
		if len(n.pages) == 0 || len(n.tokens) != len(n.pages)*t.page {
			err = fmt.Errorf("a node of %d tokens in %d pages of %d", len(n.tokens), len(n.pages), t.page)
			return
		}
		for i, c := range n.parent.children {
			if c != n && slices.Equal(c.tokens[:min(len(c.tokens), t.page)], n.tokens[:t.page]) {
				err = fmt.Errorf("child %d of a node has the tokens %v of another one", i, n.tokens[:t.page])
			}
		}
		above := 1 << 30
		if n.parent != t.root {
			above = t.pool.Refs(n.parent.pages[len(n.parent.pages)-1])
		}
		for _, p := range n.pages {
			all++
			refs := t.pool.Refs(p)
			if refs == 1 {
				idle++
			}
			if refs < 1 || refs > above || seen[p] {
				err = fmt.Errorf("page %d of the tree is held %d times, the one before it %d; seen before: %v", p, refs, above,
					seen[p])
			}
			above, seen[p] = refs, true
		}
	})
	if err == nil {
		err = t.checkOrder(nodes)
	}
	if err == nil && (all != t.all || idle != t.idle) {
		err = fmt.Errorf("the tree counts %d pages, %d of them idle; there are %d and %d", t.all, t.idle, all, idle)
	}
	return err
}

// checkOrder returns an error when the order does not have all nodes, by their use and children before parents.
func (t *Tree) checkOrder(nodes int) error {
	before, last := map[*node]bool{}, uint64(0)
	for e := t.order.Front(); e != nil; e = e.Next() {
		n := e.Value.(*node)
		if n.place != e || n.used < last || before[n.parent] {
			return fmt.Errorf("a node that was used at %d comes behind one used at %d; behind its parent: %v", n.used, last,
				before[n.parent])
		}
		before[n], last = true, n.used
	}
	if len(before) != nodes {
		return fmt.Errorf("%d nodes in the order, %d in the tree", len(before), nodes)
	}
	return nil
}
