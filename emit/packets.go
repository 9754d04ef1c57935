package emit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// poll is a run of statements that waits for several LL packets of one buffer, as grid.LL.All emits it: for each packet
// in turn, where its flag is missing, a wait for it, then another load of each later packet whose flag is missing.
type poll struct {
	packets []guard // whose op waits
	taken   []*ir.Instr
}

// guard is four statements: a variable's packet is got and split, its last word compared, and where that is not the
// flag another packet is put into the variable.
type guard struct {
	x      *ir.Var
	flag   *ir.Value
	op     *ir.Instr // what makes the other packet
	rest   []ir.Stmt // of the branch, behind it
	instrs []*ir.Instr
}

const guardStmts = 4

// guardOf returns the guard that list begins with, whose packet op makes.
func guardOf(list []ir.Stmt, op ir.Op) (g guard, ok bool) {
	if len(list) < guardStmts {
		return g, false
	}
	branch, ok := list[3].(*ir.If)
	if !ok || branch.Else != nil {
		return g, false
	}
	then := branch.Then.Stmts
	refill := []ir.Op{op, ir.OpSet}
	if op == ir.OpWaitTag {
		refill = []ir.Op{ir.OpGet, op, ir.OpSet}
	}
	if len(then) < len(refill) {
		return g, false
	}
	for i, want := range append([]ir.Op{ir.OpGet, ir.OpSplit, ir.OpNe}, refill...) {
		in, ok := slices.Concat(list[:3], then[:len(refill)])[i].(*ir.Instr)
		if !ok || in.Op != want {
			return g, false
		}
		g.instrs = append(g.instrs, in)
	}
	get, split, ne, set := g.instrs[0], g.instrs[1], g.instrs[2], g.instrs[len(g.instrs)-1]
	g.x, g.flag, g.op, g.rest = get.Attr.Var, ne.Args[1], g.instrs[len(g.instrs)-2], then[len(refill):]
	ok = g.x.Type == ir.B128 && split.Args[0] == get.Res[0] && len(split.Res) == 4 && ne.Args[0] == split.Res[3] &&
		branch.Cond == ne.Res[0] && set.Attr.Var == g.x && set.Args[0] == g.op.Res[0]
	if again := g.instrs[3]; again.Op == ir.OpGet {
		ok = ok && again.Attr.Var == g.x && g.op.Args[0] == g.flag && g.op.Args[1] == again.Res[0]
	}
	return g, ok
}

// pollOf returns the poll of two or more packets that list begins with, or nil. A run that differs from one in any
// operand is none, and is printed statement by statement.
func (p *printer) pollOf(list []ir.Stmt) *poll {
	f := &poll{}
	for n := 1; len(f.packets) < n; {
		g, ok := guardOf(list[min(len(list), guardStmts*len(f.packets)):], ir.OpWaitTag)
		if !ok || len(f.packets) > 0 && !sameWait(f.packets[0].op, g.op) || !waitsForItself(g.op) {
			return nil
		}
		f.packets = append(f.packets, g)
		n = len(f.packets) + len(g.rest)/guardStmts
		if n != len(f.packets[0].rest)/guardStmts+1 || len(g.rest)%guardStmts != 0 {
			return nil
		}
		f.taken = append(f.taken, g.instrs...)
	}
	if len(f.packets) < 2 || !f.reloads() || !p.closed(f.taken) {
		return nil
	}
	return f
}

// sameWait reports whether two waits differ in nothing but the packet.
func sameWait(a, b *ir.Instr) bool {
	if len(a.Mem) != len(b.Mem) || len(a.Args) != len(b.Args) || a.Mem[0].Buf != b.Mem[0].Buf {
		return false
	}
	for i := range a.Mem[1:] {
		if !sameAddr(a.Mem[1+i], b.Mem[1+i]) {
			return false
		}
	}
	return a.Args[0] == b.Args[0] && (len(a.Args) < 3 || a.Args[2] == b.Args[2]) && a.Attr.N == b.Attr.N &&
		a.Attr.Order == b.Attr.Order && a.Attr.Scope == b.Attr.Scope && a.Attr.Hint == b.Attr.Hint
}

// sameAddr reports whether two addresses are one place, as far as is plain to see.
func sameAddr(a, b ir.Addr) bool {
	x, y := a.Index, b.Index
	return a.Buf == b.Buf && (x == y || x != nil && y != nil && x.Const && y.Const && x.Bits == y.Bits && x.Type == y.Type)
}

// waitsForItself reports whether a wait's note, if it has one, is of the packet's index, a u32 of the program.
func waitsForItself(wait *ir.Instr) bool {
	i := wait.Mem[0].Index
	return i != nil && i.Type == ir.U32 && (len(wait.Mem) == 1 || len(wait.Mem) == 3 && wait.Args[3] == i)
}

// reloads reports whether behind each wait the later packets are loaded again, in their order, as strongly as the wait
// loads. It takes those instructions, too.
func (f *poll) reloads() bool {
	for i, g := range f.packets {
		for j, later := range f.packets[i+1:] {
			again, ok := guardOf(g.rest[guardStmts*j:], ir.OpLd)
			ld, wait := again.op, later.op
			if !ok || len(again.rest) > 0 || again.x != later.x || again.flag != later.flag ||
				!sameAddr(ld.Mem[0], wait.Mem[0]) || ld.Attr.Order != wait.Attr.Order || ld.Attr.Scope != wait.Attr.Scope ||
				ld.Attr.Hint != wait.Attr.Hint || max(ld.Attr.Lanes, 1) != 1 {
				return false
			}
			f.taken = append(f.taken, again.instrs...)
		}
	}
	return true
}

// closed reports whether all of ins are printed and nothing else reads what they make.
func (p *printer) closed(ins []*ir.Instr) bool {
	first, last := p.pl.at[ins[0]].pos, 0
	for _, in := range ins {
		last = max(last, p.pl.at[in].pos)
	}
	for _, in := range ins {
		if !p.pl.live[in] {
			return false
		}
		for _, r := range in.Res {
			for _, u := range p.pl.uses[r.ID] {
				if u.pos < first || u.pos > last {
					return false
				}
			}
		}
	}
	return true
}

// poll prints one as a call.
func (p *printer) poll(f *poll) {
	p.taken = slices.Clone(f.taken)
	defer func() { p.taken = nil }()
	wait := f.packets[0].op
	one := strings.TrimPrefix(p.waitTag(wait), "ptx::")
	args := []string{p.buf(wait.Mem[0].Buf), p.bare(f.packets[0].flag)}
	if len(wait.Mem) > 1 {
		args = append(args, p.address(wait.Mem[1]), p.address(wait.Mem[2]), fmt.Sprint(wait.Attr.N), p.bare(wait.Args[2]))
	}
	for _, g := range f.packets {
		args = append(args, p.bare(g.op.Mem[0].Index), p.variable(g.instrs[0]))
	}
	name := strings.Replace(one, "wait_packet", "wait_packets", 1)
	again := strings.TrimSuffix(strings.Replace(one, "wait_packet", "load_missing", 1), "_noted")
	load := tagLoad(wait)
	p.need(again, 2, func() string { return loadMissingHelper(again, load) })
	all := p.need(name, 3, func() string { return waitPacketsHelper(name, one, again, len(wait.Mem) > 1) })
	p.line(wait.Pos, "%s;", call(all, args...).text)
}

func loadMissingHelper(name, load string) string {
	return fmt.Sprintf(`// Loads each packet p[at] whose flag v misses again into v.
template <class... Rest>
%[1]s void %[2]s(const uint4* p, u32 flag, u32 at, uint4& v, Rest&&... rest) {
  if (v.w != flag) {
    v = %[3]s(&p[at]);
  }
  if constexpr (sizeof...(rest) > 0) {
    %[2]s(p, flag, rest...);
  }
}`, device, name, load)
}

func waitPacketsHelper(name, one, again string, noted bool) string {
	params, args, last := "", "", ""
	if noted {
		params, args = " const u32* abort, u32* notes, u32 site, u32 word,", " abort, notes, site, word,"
		last = "," + args + " at"
	}
	each, missing := strings.Replace(name, "packets", "each", 1), strings.Replace(name, "wait_packets", "missing", 1)
	return fmt.Sprintf(`// Waits for packets p[at], loaded into v before, one after another. After a wait it loads those of the rest again whose
// flag is missing: they may have come meanwhile.
template <class... Rest>
%[1]s void %[8]s(const uint4* p, u32 flag,%[5]s u32 at, uint4& v, Rest&&... rest) {
  if (v.w != flag) {
    v = %[3]s(&p[at], flag, v%[7]s);
    if constexpr (sizeof...(rest) > 0) {
      %[4]s(p, flag, rest...);
    }
  }
  if constexpr (sizeof...(rest) > 0) {
    %[8]s(p, flag,%[6]s rest...);
  }
}

// Whether the flag of one of these packets is missing.
template <class... Rest>
%[1]s bool %[9]s(u32 flag, u32 at, const uint4& v, const Rest&... rest) {
  if constexpr (sizeof...(rest) > 0) {
    return (v.w != flag) | %[9]s(flag, rest...);
  } else {
    return v.w != flag;
  }
}

// Waits for packets p[at], loaded into v before. Mostly all are there: that is one branch.
template <class... Packets>
%[1]s void %[2]s(const uint4* p, u32 flag,%[5]s Packets&&... packets) {
  if (%[9]s(flag, packets...)) {
    %[8]s(p, flag,%[6]s packets...);
  }
}`, device, name, one, again, params, args, last, each, missing)
}
