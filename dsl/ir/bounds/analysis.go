package bounds

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

type analysis struct {
	k     *ir.Kernel
	facts *Facts
	slice *slice

	next   int // number of the next symbol
	lasts  int // symbols below last a whole launch
	nested int // problems that are being solved, one inside the other
	cons   map[string]*symbol
	live   map[rowKey][]*symbol // words of tables, by the row
	trail  []scoped
	serial int // of the last change of what is known
	proofs map[string]proof
	spare  []term // for forms that are looked at once
	dead   bool   // what is looked at cannot be reached
	params map[string]*symbol

	tid, warp, cta *symbol
	vals           []val
	vars           state
	kept           []*ir.Var       // variables that addresses depend on, by their place in a state
	places         map[*ir.Var]int // in a state
	exports        []*symbol
	pending        []*cond
	choices        []*cond // of which one side holds
	choosing       bool

	loops   map[carriedKey]*carried
	setIn   map[*ir.For][]int
	numbers map[int][]int64

	contents map[*ir.Buf]*content
	grew     bool
	again    bool // the loops around are looked at again whatever comes of this turn
	round    int

	findings []Finding
	fine     map[*ir.Instr]bool // values proved to stay in range
	accesses map[*ir.Instr]bool // accesses proved
}

// maxRounds is how often a kernel is looked at until what its shared memory holds must be
// stable.
const maxRounds = 8

// Analyze bounds what a kernel computes its addresses from, and reports what it cannot
// show to be right.
func Analyze(k *ir.Kernel, f *Facts) *Report {
	a := &analysis{k: k, facts: f, slice: newSlice(k), contents: map[*ir.Buf]*content{}, setIn: map[*ir.For][]int{},
		numbers: map[int][]int64{}}
	a.launch()
	a.keep()
	for a.round = 0; ; a.round++ {
		a.start()
		a.block(k.Body)
		if !a.grew {
			return a.report()
		}
		if a.round == maxRounds {
			panic("BUG: what shared memory holds does not settle")
		}
	}
}

// start begins a round. What lasts a launch keeps its symbols from round to round.
func (a *analysis) start() {
	a.next, a.cons, a.trail, a.dead, a.grew = a.lasts, map[string]*symbol{}, nil, false, false
	a.live, a.choices, a.proofs = map[rowKey][]*symbol{}, nil, map[string]proof{}
	a.vals, a.vars = make([]val, a.k.NumValues), make(state, len(a.kept))
	a.loops = map[carriedKey]*carried{}
	a.findings, a.fine, a.accesses = nil, map[*ir.Instr]bool{}, map[*ir.Instr]bool{}
	a.tid = a.fresh(opaque, interval{0, 32*int64(a.k.Warps) - 1})
	a.warp, _ = a.divided(a.value(a.tid), val{f: constant(32)}, ir.U32).f.single()
	if a.warp == nil { // a CTA of one warp
		a.warp = a.fresh(opaque, interval{0, 0})
	}
}

// keep gives each variable that addresses depend on a place in a state.
func (a *analysis) keep() {
	a.places = map[*ir.Var]int{}
	for _, x := range a.k.Vars {
		if a.slice.vars[x] && x.Type.IsInt() {
			a.places[x] = len(a.kept)
			a.kept = append(a.kept, x)
		}
	}
}

// launch makes the symbols of what lasts a launch.
func (a *analysis) launch() {
	a.params = map[string]*symbol{}
	for _, name := range sortedKeys(a.facts.Params) {
		r := a.facts.Params[name]
		a.params[name] = a.fresh(opaque, interval{r.Lo, r.Hi})
	}
	a.cta = a.fresh(opaque, interval{0, int64(max(1, a.k.Grid)) - 1})
	for _, l := range a.facts.AtMost {
		a.assumeAtMost(a.linear(l))
	}
	a.lasts = a.next
}

func (a *analysis) instr(in *ir.Instr) {
	a.check(in)
	switch in.Op {
	case ir.OpVar, ir.OpSet:
		if i, ok := a.places[in.Attr.Var]; ok {
			a.vars[i] = a.get(in.Args[0])
		}
	case ir.OpGet:
		if i, ok := a.places[in.Attr.Var]; ok {
			if !a.vars[i].known {
				a.vars[i] = a.unknown(in.Attr.Var.Type)
			}
			a.vals[in.Res[0].ID] = a.vars[i]
		}
	case ir.OpAssert:
		a.assume(a.get(in.Args[0]).c, true)
	case ir.OpLd:
		if a.slice.has(in) {
			for i, r := range in.Res {
				a.vals[r.ID] = a.load(in, i)
			}
		}
	case ir.OpSt, ir.OpAtomAdd, ir.OpAtomMax, ir.OpAtomMin, ir.OpAtomOr, ir.OpAtomExch, ir.OpAtomCAS, ir.OpRedAdd,
		ir.OpBulkG2S, ir.OpTensorG2S, ir.OpCopyAsync:
		a.store(in)
		a.opaque(in)
	default:
		if !a.slice.has(in) {
			return
		}
		if v, ok := a.register(in); ok {
			a.vals[in.Res[0].ID] = v
		} else if in.Op.Info().Effect == ir.Pure && len(in.Res) == 1 {
			a.vals[in.Res[0].ID] = a.pure(in)
		} else {
			a.opaque(in)
		}
	}
}

// opaque forgets an instruction's results.
func (a *analysis) opaque(in *ir.Instr) {
	for _, r := range in.Res {
		a.vals[r.ID] = val{}
		if r.Type == ir.Pred {
			a.vals[r.ID].known = true
		}
	}
}

// register is a value that the machine or the launch gives.
func (a *analysis) register(in *ir.Instr) (val, bool) {
	switch in.Op {
	case ir.OpTid:
		return a.value(a.tid), true
	case ir.OpWarp:
		return a.divided(a.value(a.tid), val{f: constant(32)}, ir.U32), true
	case ir.OpLane:
		return a.modulo(a.value(a.tid), val{f: constant(32)}, ir.U32), true
	case ir.OpCTA:
		return a.value(a.cta), true
	case ir.OpGrid:
		if a.k.Grid > 0 {
			return val{f: constant(int64(a.k.Grid)), iv: interval{int64(a.k.Grid), int64(a.k.Grid)}, known: true}, true
		}
	case ir.OpParam:
		if s, ok := a.params[in.Attr.Param.Name]; ok {
			return a.value(s), true
		}
	}
	return val{}, false
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// origins lists where a form may have wrapped.
func (a *analysis) origins(f form) (out []*wrap) {
	seen, under := map[*symbol]bool{}, false // whether it is looked at where a choice has been made
	var visit func(f form)
	visit = func(f form) {
		for _, t := range f.terms {
			s := t.s
			if seen[s] {
				continue
			}
			seen[s] = true
			if s.kind == wrapped {
				if x := a.settled(s); x != nil && x != s {
					visit(of(x))
				} else if a.sure(s) || under && s.x.k < inf && a.inRange(s.x, rangeOf(s.wrap.t)) {
					visit(s.x)
				} else if !slices.ContainsFunc(out, s.wrap.same) {
					out = append(out, s.wrap)
				}
				continue
			}
			if s.kind == chosen {
				for i, v := range []form{s.x, s.y} {
					mark, dead := a.enter()
					was := under
					under = true
					if a.assume(s.cond, i == 0); !a.dead {
						visit(v)
					}
					under = was
					a.leave(mark, dead)
				}
				continue
			}
			if s.kind != opaque && s.kind != field {
				visit(s.x)
				visit(s.y)
			}
			for _, d := range s.deps {
				visit(d)
			}
		}
	}
	visit(f)
	return out
}

func (i interval) want(t ir.Type) string { return fmt.Sprintf("%s, want %s of %s", i, rangeOf(t), t) }
