package emit

import (
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// plan is what is decided about a kernel before anything is printed: which
// instructions are left out, which values are printed where they are used,
// and how far each name must stay visible.
type plan struct {
	rows      [256]row           // ops.go's table
	at        map[ir.Stmt]site   // every statement and where it stands
	stmts     []ir.Stmt          // the statements in order
	end       map[*ir.Region]int // last position inside a region
	live      map[*ir.Instr]bool // printed, or inlined into something printed
	inline    []bool             // by value ID: printed where it is used
	uses      [][]use            // by value ID: where printed text needs it
	varUses   map[*ir.Var][]int  // positions of the live gets and sets of a Var
	sets      map[*ir.Var][]int  // positions of the sets of a Var, in order
	rounded   []bool             // by value ID: an f32 product that must not become part of an fma
	stores    []int              // positions of what changes or orders memory, in order
	order     []*ir.Instr        // all instructions in order
	deadVars  map[*ir.Var]bool   // never read by anything printed
	alias     map[*ir.Value]*ir.Value
	usedBufs  map[*ir.Buf]bool
	usedParam map[*ir.Param]bool
	named     map[*ir.Value]string // hints that an alias of the value asked for
}

// site is where a statement stands: its number in program order and the
// innermost loop around it.
type site struct {
	pos  int
	loop *ir.For
}

// use is where printed text reads a value. In the header of a loop (its bound,
// which every iteration evaluates) loop is that loop.
type use struct {
	site
	header bool
}

// analyze decides everything about k. Leaving out one Var's sets can make
// further values unused, so that part is repeated until nothing changes.
func analyze(k *ir.Kernel) *plan {
	pl := &plan{
		rows: ops(), named: map[*ir.Value]string{},
		at: map[ir.Stmt]site{}, end: map[*ir.Region]int{}, sets: map[*ir.Var][]int{},
		deadVars: map[*ir.Var]bool{}, alias: map[*ir.Value]*ir.Value{},
	}
	pl.number(k.Body, nil)
	pl.roundings(k)
	for {
		pl.backward(k)
		if !pl.buryVars(k) {
			return pl
		}
	}
}

// number gives every statement of b its site, and notes the sets, the memory
// effects and the aliases.
func (pl *plan) number(b *ir.Block, loop *ir.For) {
	for _, s := range b.Stmts {
		at := site{pos: len(pl.at), loop: loop}
		pl.at[s] = at
		pl.stmts = append(pl.stmts, s)
		switch s := s.(type) {
		case *ir.Instr:
			pl.order = append(pl.order, s)
			pl.note(s, at.pos)
		case *ir.For:
			loop := s
			pl.number(s.Body, loop)
		default:
			for _, inner := range ir.Blocks(s) {
				pl.number(inner, loop)
			}
		}
		if r, ok := s.(*ir.Region); ok {
			pl.end[r] = len(pl.at) - 1
		}
	}
}

func (pl *plan) note(in *ir.Instr, pos int) {
	switch {
	case in.Op == ir.OpSet:
		pl.sets[in.Attr.Var] = append(pl.sets[in.Attr.Var], pos)
	case in.Op == ir.OpWGMMA:
		for _, x := range in.Attr.Vars {
			pl.sets[x] = append(pl.sets[x], pos)
		}
		pl.stores = append(pl.stores, pos)
	case in.Op == ir.OpUniform:
		pl.alias[in.Res[0]] = in.Args[0]
		if h := in.Res[0].Hint; h != "" {
			pl.named[pl.resolve(in.Args[0])] = h
		}
	case ordersMemory(in):
		pl.stores = append(pl.stores, pos)
	}
}

// ordersMemory reports whether a load must not be printed on the other side of in.
func ordersMemory(in *ir.Instr) bool {
	switch in.Op {
	case ir.OpVar, ir.OpSet, ir.OpGet, ir.OpAssert:
		return false
	case ir.OpLd:
		return in.Attr.Order != ir.Weak
	case ir.OpLdMatrix:
		return false
	}
	return in.Op.Info().Effect != ir.Pure
}

// between reports whether the sorted positions have one strictly between a and b.
func between(positions []int, a, b int) bool {
	i, _ := slices.BinarySearch(positions, a+1)
	return i < len(positions) && positions[i] < b
}

// roundings finds the f32 products that reach an addition: nvcc would fuse
// the two into an fma, which rounds once instead of twice.
func (pl *plan) roundings(k *ir.Kernel) {
	pl.rounded = make([]bool, k.NumValues)
	for _, in := range pl.order {
		switch in.Op {
		case ir.OpAdd, ir.OpSub, ir.OpNeg, ir.OpSelect, ir.OpBits, ir.OpVar, ir.OpSet, ir.OpSt, ir.OpUniform:
		default:
			continue
		}
		for _, a := range in.Args {
			if a.Def != nil && a.Def.Op == ir.OpMul && a.Type == ir.F32 {
				pl.rounded[a.ID] = true
			}
		}
	}
}

// hint is the name readers were promised for v, or "".
func (pl *plan) hint(v *ir.Value) string {
	if v.Hint != "" {
		return v.Hint
	}
	return pl.named[v]
}

// resolve is the value that stands behind v: uniform only names it.
func (pl *plan) resolve(v *ir.Value) *ir.Value {
	for pl.alias[v] != nil {
		v = pl.alias[v]
	}
	return v
}

// backward visits the statements from the last to the first, so that all uses
// of a value are known when its definition is reached.
func (pl *plan) backward(k *ir.Kernel) {
	pl.live = map[*ir.Instr]bool{}
	pl.inline = make([]bool, k.NumValues)
	pl.uses = make([][]use, k.NumValues)
	pl.varUses = map[*ir.Var][]int{}
	pl.usedBufs, pl.usedParam = map[*ir.Buf]bool{}, map[*ir.Param]bool{}
	pl.blockBackward(k.Body)
}

func (pl *plan) blockBackward(b *ir.Block) {
	for i := len(b.Stmts) - 1; i >= 0; i-- {
		s := b.Stmts[i]
		inner := ir.Blocks(s)
		for j := len(inner) - 1; j >= 0; j-- {
			pl.blockBackward(inner[j])
		}
		at := pl.at[s]
		switch s := s.(type) {
		case *ir.Instr:
			pl.instrBackward(s, at)
		case *ir.For:
			pl.needs(s.Lo, use{site: at})
			pl.needs(s.Hi, use{site: site{at.pos, s}, header: true})
		case *ir.If:
			pl.needs(s.Cond, use{site: at})
		}
	}
}

// needs notes that the text printed at u reads v.
func (pl *plan) needs(v *ir.Value, u use) {
	v = pl.resolve(v)
	if !v.Const {
		pl.uses[v.ID] = append(pl.uses[v.ID], u)
	}
}

// buryVars finds Vars that nothing printed reads, and reports whether there
// were new ones.
func (pl *plan) buryVars(k *ir.Kernel) bool {
	read := map[*ir.Var]bool{}
	for _, in := range pl.order {
		if in.Op == ir.OpGet && pl.live[in] {
			read[in.Attr.Var] = true
		}
		for _, x := range in.Attr.Vars {
			read[x] = true
		}
	}
	found := false
	for _, x := range k.Vars {
		if !read[x] && !pl.deadVars[x] {
			pl.deadVars[x], found = true, true
		}
	}
	return found
}
