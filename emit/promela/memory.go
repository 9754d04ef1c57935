package promela

import (
	"cmp"
	"fmt"

	"github.com/mkgen/mkgen/dsl/ir"
)

// memory writes an operation on memory or one that synchronises.
func (t *thread) memory(in *ir.Instr) {
	x := t.x
	switch in.Op {
	case ir.OpLd:
		t.values[in.Res[0]] = t.load(in)
	case ir.OpSt:
		t.store(in)
	case ir.OpRedAdd:
		t.add(in)
	case ir.OpWaitMem:
		w := t.val(in.Args[0])
		cond := map[ir.Cond]string{ir.CondEQ: "==", ir.CondNE: "!=", ir.CondGE: ">="}[in.Attr.Cond]
		t.pick(in, x.place(t.at(in, 0)), func(value []word) string { return fmt.Sprintf("%s %s %s", value[0], cond, w) })
	case ir.OpWaitTag:
		t.waitTag(in)
	case ir.OpBarCTA:
		t.meet(in, x.bar(t.cta, 0, x.k.Warps*x.o.Lanes))
	case ir.OpBarSync:
		t.meet(in, x.bar(t.cta, int(in.Attr.Imm), in.Attr.N/32*x.o.Lanes))
	case ir.OpSyncWarp:
		if x.o.Lanes > 1 {
			t.meet(in, x.bar(t.cta, 16+t.warp, x.o.Lanes))
		}
	case ir.OpFenceMBar:
	case ir.OpFenceProxy:
		if in.Attr.Imm != ir.FenceGlobal { // what copies read is read-only
			t.tick()
			t.line("proxy_fence(%d);", t.num)
		}
	case ir.OpMBarInit:
		b, n := x.mbar(t.at(in, 0)).num, t.val(in.Args[0])
		t.line("mbar_count[%d] = %s; mbar_left[%d] = %s;", b, n, b, n)
	case ir.OpMBarArrive, ir.OpMBarExpect:
		t.arrive(in)
	case ir.OpWaitMBar:
		b, parity := x.mbar(t.at(in, 0)), t.val(in.Args[0])
		t.step(in, fmt.Sprintf("((mbar_phase[%d] & 1) != %s)", b.num, parity))
		t.line("wait_mbar(%d, %d, %d, %d);", t.num, b.num, x.lay.mbarRow(b)+1, x.lay.waited(b))
	case ir.OpBulkG2S:
		t.copy(in)
	case ir.OpSetMaxReg:
		t.registers(in)
	default:
		no("%s at %s has no form", in.Op, in.Pos)
	}
}

// at is the place of a memory operand.
func (t *thread) at(in *ir.Instr, i int) at {
	m := in.Mem[i]
	if m.Buf.Root != nil {
		no("%s at %s accesses a view", in.Op, in.Pos)
	}
	var elem uint32
	if m.Index != nil {
		w := t.val(m.Index)
		if !w.known {
			no("%s at %s has an address that is only known when it runs", in.Op, in.Pos)
		}
		elem = w.n
	}
	if m.Buf.Len > 0 && int64(elem) >= m.Buf.Len {
		no("%s at %s is outside of %s", in.Op, in.Pos, m.Buf)
	}
	if m.Buf.Space == ir.Global {
		return at{m.Buf, -1, int64(elem)}
	}
	return at{m.Buf, t.cta, int64(elem)}
}

func accessOf(in *ir.Instr, write bool) access {
	a := access{write: write, scope: in.Attr.Scope, strong: in.Attr.Order != ir.Weak}
	if a.strong && a.scope != ir.CTA && a.scope < ir.GPU {
		no("%s at %s has the scope of the %s", in.Op, in.Pos, a.scope)
	}
	if in.Attr.Order == ir.Volatile || max(in.Attr.Lanes, 1) > 1 {
		no("%s at %s is volatile or of a vector", in.Op, in.Pos)
	}
	return a
}

func (t *thread) load(in *ir.Instr) []word {
	p, a := t.x.place(t.at(in, 0)), accessOf(in, false)
	if a.strong {
		return t.pick(in, p, nil)
	}
	t.access(p, a)
	value := p.words(t.x, "", 0)
	if p.strong() {
		value = p.words(t.x, p.newest(), 0)
	}
	return t.fetch(value)
}

func (t *thread) fetch(value []word) (got []word) {
	for _, w := range value {
		if !w.known {
			r := t.reg()
			t.line("%s = %s;", r, w)
			w = r
		}
		got = append(got, w)
	}
	return got
}

// pick reads a value that the thread may still see and that meets a condition: a strong load, or a wait for memory.
// Where the thread waits it goes on with any such value, not only with the newest.
func (t *thread) pick(in *ir.Instr, p *place, cond func([]word) string) []word {
	a := accessOf(in, false)
	if !a.strong {
		no("%s at %s is a weak wait", in.Op, in.Pos)
	}
	p.strongly(t.agent)
	t.step(in, "")
	t.line("if")
	for i := range p.length() {
		also := ""
		if cond != nil {
			also = " && " + cond(p.words(t.x, "", i))
		}
		t.line(":: (newest[%d] >= %d && V[%d] <= %d%s) -> c = %d;", p.id, i, t.x.lay.view(t.num, p), i, also, i)
	}
	t.line("fi;")
	return t.seen(in, p, a)
}

// seen is the rest of a strong read: c is the number of the value.
func (t *thread) seen(in *ir.Instr, p *place, a access) []word {
	x := t.x
	t.access(p, a)
	t.line("V[%d] = c;", x.lay.view(t.num, p))
	if o := in.Attr.Order; o == ir.Acquire || o == ir.AcqRel {
		t.line("%sjoin(%d, %d + c)%s;", t.mutual(p, "c", a), t.num, p.row, t.ending(p))
	}
	got := t.fetch(p.words(x, "c", 0))
	t.line("c = 0;")
	t.line("forget_%s();", p.at)
	return got
}

// mutual begins a guard: whether the writer of a value and this access have scopes that include each other. It is empty
// where all accesses of the place have the GPU's.
func (t *thread) mutual(p *place, i string, a access) string {
	if !p.narrow(t.x) {
		return ""
	}
	by := fmt.Sprintf("writer[%d + %s]", p.row-t.x.lay.values, i)
	same := fmt.Sprintf("((%s >> 1) == %d)", by, t.cta)
	if a.scope >= ir.GPU {
		same = fmt.Sprintf("((%s & 1) || %s)", by, same)
	}
	return "if :: " + same + " -> "
}

func (t *thread) ending(p *place) string {
	if p.narrow(t.x) {
		return " :: else fi"
	}
	return ""
}

func (t *thread) waitTag(in *ir.Instr) {
	p, tag, given := t.x.place(t.at(in, 0)), t.val(in.Args[0]), t.vals(in.Args[1])
	a := accessOf(in, false)
	p.strongly(t.agent)
	t.step(in, "")
	t.line("if")
	t.line(":: %s == %s -> c = 255;", given[3], tag)
	for i := range p.length() {
		t.line(":: (%s != %s && newest[%d] >= %d && V[%d] <= %d && %s == %s) -> c = %d;", given[3], tag, p.id, i,
			t.x.lay.view(t.num, p), i,
			p.words(t.x, "", i)[3], tag, i)
	}
	t.line("fi;")
	var got []word
	for _, w := range given {
		r := t.reg()
		t.line("%s = %s;", r, w)
		got = append(got, r)
	}
	t.line("if")
	t.line(":: c != 255 ->")
	for i, w := range t.seen(in, p, a) {
		t.line("%s = %s;", got[i], w)
	}
	t.line(":: else -> c = 0;")
	t.line("fi;")
	t.values[in.Res[0]] = got
}

func (t *thread) store(in *ir.Instr) {
	p, a, value := t.x.place(t.at(in, 0)), accessOf(in, true), t.vals(in.Args[0])
	if a.strong {
		t.step(in, "")
		p.strongly(t.agent)
	}
	t.access(p, a)
	p.set(value)
	if p.strong() {
		t.write(in, p, a, value)
		return
	}
	for i, w := range value {
		if cell := p.words(t.x, "", 0)[i]; !cell.known {
			t.line("%s = %s;", cell, w)
		}
	}
}

func (t *thread) add(in *ir.Instr) {
	p, a := t.x.place(t.at(in, 0)), accessOf(in, true)
	if in.T != ir.U32 {
		no("%s at %s adds %s", in.Op, in.Pos, in.T)
	}
	a.rmw = true
	t.step(in, "")
	p.strongly(t.agent)
	t.access(p, a)
	p.set([]word{{s: "?"}})
	old := p.words(t.x, p.newest()+" - 1", 0)[0]
	t.write(in, p, a, []word{{s: fmt.Sprintf("%s + %s", old, t.val(in.Args[0]))}})
}

// write puts a value behind the others of a strong place. A read-modify-write carries on what the value before it
// released.
func (t *thread) write(in *ir.Instr, p *place, a access, value []word) {
	x, n, view := t.x, p.newest(), t.x.lay.view(t.num, p)
	if !a.rmw && p.writers() > 1 { // a place before others' values is not in the model
		t.line("assert(V[%d] == %s || no_stores_in_no_order);", view, n)
	}
	p.writes++
	t.line("%s++;", n)
	for i, w := range value {
		if cell := p.words(x, n, 0)[i]; !cell.known {
			t.line("%s = %s;", cell, w)
		}
	}
	if a.rmw {
		t.line("%sjoin(%d + %s, %d + %s)%s;", t.mutual(p, n+" - 1", a), p.row, n, p.row-1, n, t.ending(p))
	}
	t.line("V[%d] = %s;", view, n)
	if o := in.Attr.Order; o == ir.Release || o == ir.AcqRel {
		t.tick()
		t.line("join(%d + %s, %d);", p.row, n, t.num)
	}
	if p.narrow(x) {
		t.line("writer[%d + %s] = %d;", p.row-x.lay.values, n, 2*t.cta+int(truth(a.scope >= ir.GPU)))
	}
}

// tick begins a new epoch of the thread: what it does from here on is not in what it has released.
func (t *thread) tick() {
	if c := t.x.lay.clock(t.num); c >= 0 {
		t.line("V[%d]++;", t.x.lay.cellAt(t.num, c))
	}
}

// access checks an access against those of all others that it may race with, and notes it.
func (t *thread) access(p *place, a access) {
	p.note(t.agent, a)
	for _, s := range t.x.check(p, t.agent, a) {
		t.line("%s", s)
	}
}

func (t *thread) meet(in *ir.Instr, b *bar) {
	x := t.x
	generation := t.met[b] & 1
	t.met[b]++
	t.step(in, "")
	t.tick()
	t.line("arrive_bar(%d, %d, %d, %d);", t.num, b.num, x.lay.barRow(b), b.need)
	t.step(in, fmt.Sprintf("(bar_generation[%d] != %d)", b.num, generation))
	t.line("wait_bar(%d, %d, %d, %d);", t.num, b.num, x.lay.barRow(b), b.need)
}

func (t *thread) arrive(in *ir.Instr) {
	x, b := t.x, t.x.mbar(t.at(in, 0))
	bytes := number(0)
	if in.Op == ir.OpMBarExpect {
		bytes = t.val(in.Args[0])
	}
	t.step(in, "")
	t.tick()
	t.line("arrive_mbar(%d, %d, %d, %d, %s);", t.num, b.num, x.lay.mbarRow(b), x.lay.waited(b), bytes)
}

// registers is setmaxnreg: a warp gives registers to the CTA, or waits for those that others have given. It orders
// nothing. Values are registers a thread, of each warp.
func (t *thread) registers(in *ir.Instr) {
	if t.x.o.Lanes > 1 {
		no("%s at %s is of a warp's lanes together, want one a warp", in.Op, in.Pos)
	}
	more := in.Attr.N - cmp.Or(t.nreg, t.x.k.LaunchRegisters())
	t.nreg = in.Attr.N
	guard := ""
	if more > 0 {
		guard = fmt.Sprintf("(registers[%d] >= %d)", t.cta, more)
	}
	t.step(in, guard)
	if more != 0 && (more > 0) != (in.Attr.Imm == 1) {
		t.line("assert(no_warpgroup_apart);")
	}
	t.line("registers[%d] = registers[%d] - (%d);", t.cta, t.cta, more)
}

func (t *thread) copy(in *ir.Instr) {
	x := t.x
	bytes := t.val(in.Args[0])
	c := &copied{num: len(x.copies), by: t, dst: t.at(in, 0), src: t.at(in, 1), bar: x.mbar(t.at(in, 2)), bytes: bytes.n}
	c.elems = int64(bytes.n) / int64(c.dst.buf.Elem.Size())
	if !c.src.buf.ReadOnly || c.src.buf.Elem != c.dst.buf.Elem || !bytes.known || x.k.Grid != 1 {
		no("the copy at %s is of what may change, between types, of a size that is only known when it runs, or in a kernel of several CTAs", in.Pos)
	}
	x.copies = append(x.copies, c)
	row := len(x.threads) + c.num
	t.step(in, "")
	t.tick()
	t.line("join(%d, %d);", row, t.num)
	t.line("issued[%d] = 1; in_flight++;", c.num)
}

// copiedTo is what a copy writes to a place.
func (x *exporter) copiedTo(c *copied, p *place) (value []word) {
	from := c.src
	from.elem += p.elem - c.dst.elem
	for w := range p.word {
		value = append(value, number(x.initial(from, w)))
	}
	return value
}

// end writes a thread's end: it counts, forgets what it knew, and the last one looks at the results.
func (t *thread) end() {
	t.close()
	t.line("end_thread(%d);", t.num)
	t.close()
}
