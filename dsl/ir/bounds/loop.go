package bounds

import (
	"slices"
	"sort"

	"github.com/mkgen/mkgen/dsl/ir"
)

// carried is what is known of a variable that a loop's body sets, at the body's
// beginning: what it held before the loop, plus step for each turn; or any number
// between least and most more, a turn; or anything in a range.
type carried struct {
	how      how
	step     interval
	iv       interval
	ups      []form
	fell     bool // bounds of ups did not hold
	mod, rem int64
	wraps    []*wrap
}

type how uint8

const (
	guessed how = iota // nothing yet
	stepping
	ranging
)

// maxTurns is how often a loop's body is looked at until what it carries must be stable.
const maxTurns = 12

func (a *analysis) loop(s *ir.For) {
	lo, hi, step := a.get(s.Lo).f, a.get(s.Hi).f, int64(s.Step.Bits)
	if a.lo(lo.minus(hi)) >= 0 {
		return
	}
	before := a.vars
	set := a.carries(s)
	for turn := 0; ; turn++ {
		found, fine, again := a.findings, a.fine, a.again
		a.again = again || turn == 0 && a.guesses(s, set, before)
		accesses := a.accesses
		a.findings, a.fine, a.accesses = nil, map[*ir.Instr]bool{}, map[*ir.Instr]bool{}
		var heads state
		var counter *symbol
		after := a.path(before, func() {
			a.assumeAtMost(lo.minus(hi).plus(1))
			counter = a.counter(s, lo, hi, step)
			heads = a.heads(s, set, before, counter, lo, step)
			copy(a.vars, heads)
		}, func() {
			a.block(s.Body)
		})
		stable := after == nil || a.carriedOn(s, set, before, heads, after, turn)
		if a.again && !again { // not checked
			stable = false
		}
		a.again = again
		inner, innerFine, innerAccesses := a.findings, a.fine, a.accesses
		a.findings, a.fine, a.accesses = found, fine, accesses
		if stable {
			a.findings = append(a.findings, inner...)
			for in := range innerFine {
				a.fine[in] = true
			}
			for in := range innerAccesses {
				a.accesses[in] = true
			}
			break
		}
	}
	a.vars = a.behind(s, set, before, lo, hi, step)
}

// guesses reports whether nothing is known yet of how the loop's body changes a variable.
func (a *analysis) guesses(s *ir.For, set []int, before state) bool {
	return slices.ContainsFunc(set, func(id int) bool {
		c := a.loops[carriedKey{s, id}]
		return before[id].known && (c == nil || c.how == guessed)
	})
}

// carries lists the places of the variables that addresses depend on and that the loop's body
// sets.
func (a *analysis) carries(s *ir.For) []int {
	if list, ok := a.setIn[s]; ok {
		return list
	}
	seen := map[int]bool{}
	ir.Walk(s.Body, func(st ir.Stmt) bool {
		if in, ok := st.(*ir.Instr); ok && in.Op == ir.OpSet {
			if i, ok := a.places[in.Attr.Var]; ok {
				seen[i] = true
			}
		}
		return true
	})
	list := make([]int, 0, len(seen))
	for id := range seen {
		list = append(list, id)
	}
	sort.Ints(list)
	a.setIn[s] = list
	return list
}

// counter is the loop's index: lo plus a multiple of step, below hi. With a fixed lo it is at most the last such number
// below all that hi can be, even where hi is not fixed: hi of 3 to 4 and a step of 16 leave only the first turn. The
// condition keeps lo plus multiples from wrapping: one step beyond the last turn still lies in the index's type.
func (a *analysis) counter(s *ir.For, lo, hi form, step int64) *symbol {
	c := a.fresh(index, interval{a.lo(lo), add(a.hi(hi), -1)}.meet(rangeOf(s.I.Type)))
	c.x, c.y = lo, hi
	if lo.isConst() {
		c.mod, c.rem = step, ((lo.k%step)+step)%step
		if add(c.hi, step) <= rangeOf(s.I.Type).hi {
			c.hi = lo.k + floorDiv(c.hi-lo.k, step)*step
		}
	}
	a.vals[s.I.ID] = a.value(c)
	return c
}

type carriedKey struct {
	s *ir.For
	v int
}

// heads is what variables hold at the beginning of the body.
func (a *analysis) heads(s *ir.For, set []int, before state, counter *symbol, lo form, step int64) state {
	out := slices.Clone(before)
	for _, id := range set {
		if !before[id].known {
			continue // declared inside
		}
		c := a.loops[carriedKey{s, id}]
		if c == nil {
			c = &carried{iv: interval{inf, -inf}}
			a.loops[carriedKey{s, id}] = c
		}
		x := before[id]
		if c.how == stepping {
			if f, ok := a.stepped(x.f, c, of(counter).minus(lo), step); ok {
				out[id] = val{f: f, iv: a.both(f).meet(rangeOf(a.kept[id].Type)), known: true}
				continue
			}
			c.how = ranging
		}
		p := a.fresh(opaque, a.both(x.f).meet(x.iv).hull(c.iv))
		p.mod, p.rem = c.congruence(x.f)
		p.guess = c.how == guessed
		for _, g := range c.ups {
			if a.atMost(x.f.minus(g)) {
				p.ups = append(p.ups, g)
			}
		}
		for _, w := range append(a.origins(x.f), c.wraps...) {
			p.deps = append(p.deps, a.origin(w))
		}
		out[id] = val{f: of(p), iv: p.interval, known: true}
	}
	return out
}

// stepped is x behind the turns of which gone is step times as much.
func (a *analysis) stepped(x form, c *carried, gone form, step int64) (form, bool) {
	if c.step.lo == c.step.hi && c.step.lo%step == 0 {
		return sum(1, x, c.step.lo/step, gone)
	}
	turns := gone
	if step > 1 {
		q := a.divided(val{f: gone, iv: a.both(gone).meet(interval{0, inf}), known: true}, val{f: constant(step)}, ir.U64)
		turns = q.f
	}
	if c.step.lo == c.step.hi {
		return sum(1, x, c.step.lo, turns)
	}
	iv := a.both(turns).meet(interval{0, inf}).times(c.step)
	d := a.fresh(opaque, iv.hull(interval{0, 0}))
	d.ups, d.downs = []form{scaled(turns, c.step.hi)}, []form{scaled(turns, c.step.lo)}
	if c.mod > 1 && c.rem == 0 {
		d.mod = c.mod
	}
	return sum(1, x, 1, of(d))
}

// carriedOn compares what the body leaves with what it began with, and widens that where
// it does not hold. It reports whether it held.
func (a *analysis) carriedOn(s *ir.For, set []int, before, heads, after state, turn int) bool {
	stable := true
	for _, id := range set {
		if !before[id].known || !after[id].known {
			continue
		}
		c, t := a.loops[carriedKey{s, id}], a.kept[id].Type
		d := after[id].f.minus(heads[id].f)
		iv := a.both(d)
		inside := !slices.ContainsFunc(d.terms, func(t term) bool {
			return slices.ContainsFunc(heads[id].f.terms, func(u term) bool { return u.s == t.s })
		})
		small := inside && iv.lo > -inf && iv.hi < inf && d.k < inf
		switch c.how {
		case guessed:
			if small && iv.lo == 0 && iv.hi == 0 {
				continue // the body leaves it as it is
			}
			stable = false
			if small && len(after[id].f.terms) > 0 && after[id].f.coef(heads[id].f.terms0()) == 1 {
				c.how, c.step = stepping, iv
				c.mod, c.rem = congruence(d)
				continue
			}
			c.ranges()
			a.forget(s, id)
		case stepping:
			if small && iv.in(c.step) {
				continue
			}
			stable = false
			if small && turn < maxTurns/2 {
				c.step = c.step.hull(iv)
				continue
			}
			c.ranges()
			a.forget(s, id)
		case ranging:
			if !a.widened(c, id, t, heads[id], after[id], turn) {
				stable = false
			}
		}
	}
	return stable
}

// ranges gives up to say more of a variable than what it can be, which is what it holds
// before the loop, until more is seen.
func (c *carried) ranges() {
	c.how, c.iv, c.mod, c.rem, c.ups = ranging, interval{inf, -inf}, 0, 0, nil
}

// forget drops what is known of a variable in the loops inside of s: it came of a guess
// about s that did not hold.
func (a *analysis) forget(s *ir.For, id int) {
	ir.Walk(s.Body, func(st ir.Stmt) bool {
		if inner, ok := st.(*ir.For); ok {
			delete(a.loops, carriedKey{inner, id})
		}
		return true
	})
}

// congruence is what the variable, that held x before the loop, is modulo what.
func (c *carried) congruence(x form) (mod, rem int64) {
	mod, rem = congruence(x)
	if !c.iv.empty() {
		mod = gcd(gcd(mod, c.mod), rem-c.rem)
	}
	if mod == 0 {
		mod, rem = max(1, mod), 0
	}
	return mod, ((rem % mod) + mod) % mod
}

// terms0 is the first symbol of a form, which is the one that stands for a variable.
func (f form) terms0() *symbol {
	if len(f.terms) == 0 {
		return nil
	}
	return f.terms[0].s
}

// widened makes room in c for what the body leaves; it reports whether there was room.
func (a *analysis) widened(c *carried, id int, t ir.Type, head, after val, turn int) bool {
	p, _ := head.f.single()
	iv := a.both(after.f).meet(after.iv)
	held := iv.in(p.interval)
	mod, rem := congruence(after.f)
	if p.mod > 1 && (mod%p.mod != 0 || (rem-p.rem)%p.mod != 0) {
		held = false
	}
	if c.iv.empty() {
		c.mod, c.rem, c.ups = mod, rem, a.lastingBounds(after.f)
	} else if c.mod = gcd(gcd(mod, c.mod), rem-c.rem); c.mod > 0 {
		c.rem = ((rem % c.mod) + c.mod) % c.mod
	}
	if !held || c.iv.empty() {
		c.iv = c.iv.hull(iv)
		if turn >= 2 {
			c.iv = a.threshold(id, c.iv, p.interval, t, turn)
		}
	}
	ups := slices.DeleteFunc(slices.Clone(p.ups), func(g form) bool { return !a.atMost(after.f.minus(g)) })
	if len(ups) != len(p.ups) {
		held, c.ups, c.fell = false, ups, true
	} else if found := a.lastingBounds(after.f); len(c.ups) == 0 && len(found) > 0 && !c.fell && turn < maxTurns/2 {
		held, c.ups = false, found // of a variable whose bounds have been found since: the next turn shows whether they hold
	}
	for _, w := range a.origins(after.f) {
		if !slices.ContainsFunc(a.origins(head.f), w.same) && !slices.ContainsFunc(c.wraps, w.same) {
			c.wraps = append(c.wraps, w)
			held = false
		}
	}
	return held
}

// threshold widens what still grows to the next number that the kernel compares with.
func (a *analysis) threshold(id int, now, was interval, t ir.Type, turn int) interval {
	r, list := rangeOf(t), a.thresholds(id)
	if turn >= maxTurns-2 {
		return r
	}
	if now.hi > was.hi {
		i, _ := slices.BinarySearch(list, now.hi)
		if i < len(list) {
			now.hi = min(r.hi, list[i])
		} else {
			now.hi = r.hi
		}
	}
	if now.lo < was.lo {
		now.lo = min(now.lo, r.lo)
	}
	return now
}

// behind is what variables hold behind the loop.
func (a *analysis) behind(s *ir.For, set []int, before state, lo, hi form, step int64) state {
	out := slices.Clone(before)
	for _, id := range set {
		c := a.loops[carriedKey{s, id}]
		if !before[id].known || c == nil || c.how == guessed {
			continue
		}
		x := before[id]
		if c.how == stepping {
			out[id] = a.steppedOut(x, c, lo, hi, step, a.kept[id].Type)
			continue
		}
		p := a.fresh(opaque, a.both(x.f).meet(x.iv).hull(c.iv))
		p.mod, p.rem = c.congruence(x.f)
		for _, g := range c.ups {
			if a.atMost(x.f.minus(g)) {
				p.ups = append(p.ups, g)
			}
		}
		for _, w := range append(a.origins(x.f), c.wraps...) {
			p.deps = append(p.deps, a.origin(w))
		}
		out[id] = a.value(p)
	}
	return out
}

// steppedOut is what a variable that steps holds behind the loop.
func (a *analysis) steppedOut(x val, c *carried, lo, hi form, step int64, t ir.Type) val {
	length := hi.minus(lo)
	if !a.atMost(length.negated()) {
		length = a.extreme(larger, val{f: length, iv: a.both(length), known: true}, val{f: constant(0), known: true}).f
	}
	if step > 1 {
		q := a.divided(val{f: length.plus(step - 1), iv: a.both(length).meet(interval{0, inf}), known: true},
			val{f: constant(step)}, ir.U64)
		length, step = q.f, 1
	}
	f, ok := a.stepped(x.f, c, length, 1)
	if !ok {
		return a.unknown(t)
	}
	return val{f: f, iv: a.both(f).meet(rangeOf(t)), known: true}
}

// thresholds are the numbers near those that a variable's values are made with.
func (a *analysis) thresholds(id int) []int64 {
	if list, ok := a.numbers[id]; ok {
		return list
	}
	var list []int64
	var visit func(v *ir.Value, depth int)
	visit = func(v *ir.Value, depth int) {
		switch {
		case v.Const && v.Type.IsInt() && v.Bits < 1<<40:
			list = append(list, int64(v.Bits)-1, int64(v.Bits), int64(v.Bits)+1)
		case v.Def != nil && depth > 0:
			for _, x := range v.Def.Args {
				visit(x, depth-1)
			}
		}
	}
	for _, in := range a.slice.sets[a.kept[id]] {
		visit(in.Args[0], 6)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	a.numbers[id] = list
	return list
}
