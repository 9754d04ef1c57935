package sass

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
)

// Finding is one place where the machine code does what the program does not.
type Finding struct {
	// of the machine instruction, bytes from the kernel's start, or its line of PTX; -1 where none is to blame
	Address int
	Text    string // both sides in words
}

// Revision is raised whenever Check refuses what it took before, so that reports that were kept are made again.
const Revision = 3

// Report is what a check saw.
type Report struct {
	Revision     int  // of the check
	PTX          bool `json:",omitempty"` // what was held is not the machine code but the PTX before it
	Instructions int  // of the machine code; of PTX those that synchronise, access memory or branch
	Events       int  // of them that synchronise
	Accesses     int  // of them that are plain accesses which events order
	Placed       int  // of these events and accesses, that their line of the text leads to the program's instruction
	Places       int  // events of the program
	States       int  // pairs of machine instruction and set of places that were visited
	Findings     []Finding
}

// Err is nil without findings, else a [*Mismatch].
func (r *Report) Err() error {
	if len(r.Findings) == 0 {
		return nil
	}
	return &Mismatch{r.Findings, r.PTX}
}

// Mismatch is machine code, or the PTX before it, that does not synchronise as its program does.
type Mismatch struct {
	Findings []Finding
	PTX      bool
}

// level names what was held against the program.
func level(ptx bool) string {
	if ptx {
		return "PTX"
	}
	return "machine code"
}

// Error has a line for each finding, after the first.
func (m *Mismatch) Error() string {
	var b strings.Builder
	b.WriteString("the " + level(m.PTX) + " does not synchronise as the program does:")
	for _, f := range m.Findings {
		b.WriteString("\n  ")
		switch {
		case f.Address >= 0 && m.PTX:
			fmt.Fprintf(&b, "line %d: ", f.Address)
		case f.Address >= 0:
			fmt.Fprintf(&b, "%#x: ", f.Address)
		}
		b.WriteString(f.Text)
	}
	return b.String()
}

const (
	maxFindings = 8
	maxStates   = 1 << 22
)

// Check holds the disassembly of a cubin (nvdisasm -c -gi; compiled with -lineinfo, which changes no instruction)
// against kernel k and the text that was printed of it.
func Check(k *ir.Kernel, text *emit.Source, disassembly string) (*Report, error) {
	c, err := parse(disassembly, k.Name)
	if err != nil {
		return nil, err
	}
	return check(k, text, c)
}

// CheckPTX holds the PTX of a kernel (compiled with -lineinfo) against kernel k and the text that was printed of it:
// what the front end of the compiler made, before ptxas. It is for where there is no nvdisasm.
func CheckPTX(k *ir.Kernel, text *emit.Source, ptx string) (*Report, error) {
	c, err := parsePTX(ptx, k.Name)
	if err != nil {
		return nil, err
	}
	return check(k, text, c)
}

func check(k *ir.Kernel, text *emit.Source, c *code) (*Report, error) {
	printed := map[*ir.Instr]bool{}
	for _, ins := range text.Instrs {
		for _, in := range ins {
			printed[in] = true
		}
	}
	p, err := newProgram(k, printed, c.ptx)
	if err != nil {
		return nil, fmt.Errorf("sass: %w", err)
	}
	w := &walk{p: p, c: c, r: &Report{Revision: Revision, PTX: c.ptx, Instructions: len(c.ins)}, sets: map[string]int{},
		seen: map[state]bool{}, from: map[state][]state{}, reported: map[int]bool{},
		matched: make([]bool, len(p.places))}
	w.live = guards(c)
	w.label(text)
	w.run()
	w.endless()
	w.unmatched()
	return w.r, nil
}

// state is a point of the machine code with what is known there.
type state struct {
	at    int
	set   int    // of places, by number
	known uint32 // predicates: bit i: it is known, bit 16+i: it is true
}

type walk struct {
	p        *program
	c        *code
	r        *Report
	sets     map[string]int
	members  [][]int
	labels   [][]int // by machine instruction: the places of its kind that its line leads to
	seen     map[state]bool
	todo     []state
	from     map[state][]state // by state: those that lead to it
	ends     []state           // before an exit
	reported map[int]bool
	matched  []bool
	live     []uint32 // by machine instruction: predicates, as bits, that guards ask for before they are written
}

// label finds, by the lines that the compiler noted, which places a machine instruction can stand for. The compiler's
// notes are sometimes those of another poll (loops that it rotated share them), so where a poll is possible they are
// not believed.
func (w *walk) label(text *emit.Source) {
	byInstr := map[*ir.Instr][]int{}
	for i, pl := range w.p.places {
		if pl.in != nil {
			byInstr[pl.in] = append(byInstr[pl.in], i)
		}
		if pl.kind != "" && !pl.plain {
			w.r.Places++
		}
	}
	w.labels = make([][]int, len(w.c.ins))
	for i, in := range w.c.ins {
		if in.kind == "" {
			continue
		}
		if in.plain {
			w.r.Accesses++
		} else {
			w.r.Events++
		}
		if in.line < 1 || in.line > len(text.Instrs) {
			continue
		}
		weakened := -1
		for _, x := range text.Instrs[in.line-1] {
			for _, at := range byInstr[x] {
				if stands(in.kind, w.p.places[at].kind) {
					w.labels[i] = append(w.labels[i], at)
				} else if weakens(in.kind, w.p.places[at].kind) {
					weakened = at
				}
			}
		}
		if len(w.labels[i]) > 0 {
			w.r.Placed++
		} else if weakened >= 0 {
			w.reported[i] = true
			w.r.Findings = append(w.r.Findings,
				Finding{in.address, in.say() + " is weak, where the program has " + w.p.say(weakened)})
		}
	}
}

// number is the set's number; equal sets have one.
func (w *walk) number(set []int) int {
	slices.Sort(set)
	set = slices.Compact(set)
	key := fmt.Sprint(set)
	n, ok := w.sets[key]
	if !ok {
		n = len(w.members)
		w.sets[key] = n
		w.members = append(w.members, set)
	}
	return n
}

// push goes on at s, behind state from.
func (w *walk) push(from, s state) {
	if s.at >= len(w.c.ins) {
		return
	}
	s.known &= w.live[s.at] | w.live[s.at]<<16
	w.from[s] = append(w.from[s], from)
	if !w.seen[s] {
		w.seen[s] = true
		w.todo = append(w.todo, s)
	}
}

func (w *walk) run() {
	start := state{set: w.number([]int{0})}
	w.push(start, start)
	for len(w.todo) > 0 && len(w.r.Findings) < maxFindings {
		if len(w.seen) > maxStates {
			w.r.Findings = append(w.r.Findings, Finding{-1, fmt.Sprintf("more than %d states: the check gave up", maxStates)})
			break
		}
		s := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.step(s)
	}
	w.r.States = len(w.seen)
}

// endless reports where no way leads to an exit any more: a loop that nothing in it ends. It says nothing of who waits
// for whom.
func (w *walk) endless() {
	if len(w.r.Findings) > 0 {
		return // walks end at findings
	}
	ending := map[state]bool{}
	todo := slices.Clone(w.ends)
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !ending[s] {
			ending[s] = true
			todo = append(todo, w.from[s]...)
		}
	}
	at := -1
	for s := range w.seen {
		if !ending[s] && (at < 0 || s.at < at) {
			at = s.at
		}
	}
	if at >= 0 {
		w.r.Findings = append(w.r.Findings,
			Finding{w.c.ins[at].address, w.c.ins[at].say() + " is in a loop that never ends, where the program has none"})
	}
}

// step goes on from one state: with the instruction where its guard may hold, past it where it may not.
func (w *walk) step(at state) {
	s := at
	in := &w.c.ins[s.at]
	bit := predicate(in.guard)
	knows, is := s.known>>bit&1 == 1, s.known>>(16+bit)&1 == 1
	if in.guard != "" && (!knows || is == in.negated) && (in.kind != "" || in.target >= 0) {
		skip := s // its guard does not hold here
		skip.at++
		if !in.plain {
			skip.known = know(s.known, bit, in.negated)
		}
		w.push(at, skip)
		if knows {
			return
		}
	}
	if in.guard != "" && (!in.plain && in.kind != "" || in.target >= 0) {
		s.known = know(s.known, bit, !in.negated)
	}
	if to, from, not := in.elects(); to >= 0 {
		next := s
		next.at++
		for _, is := range []bool{false, true} {
			if knows := s.known>>from&1 == 1; !knows || (s.known>>(16+from)&1 == 1) == is {
				next.known = know(know(s.known, from, is), to, is != not)
				w.push(at, next)
			}
		}
		return
	}
	set, ok := w.take(s, in)
	if in.kind == kindExit {
		w.ends = append(w.ends, at)
	}
	if !ok || in.kind == kindExit {
		return
	}
	next := state{at: s.at + 1, set: set, known: s.known &^ in.written()}
	if in.target >= 0 {
		if len(in.op) > 2 && in.op[1] == "U" && in.op[2] == "ANY" {
			// Back to a bulk copy once for each lane that makes one; each lane makes one.
			w.push(at, next)
			return
		}
		taken := next
		taken.at = in.target
		w.push(at, taken)
		if !conditional(in) {
			return // what a guard does not let pass is on its way already
		}
	}
	w.push(at, next)
}

// elects is what a vote of the warp gives a uniform predicate, -1 where an instruction is none: whether a thread's
// predicate holds anywhere. What one elected lane does for its warp is written so, and is that lane's: to it both
// predicates are one.
func (in *instruction) elects() (to, from int, not bool) {
	if in.op[0] != "VOTEU" || len(in.op) < 2 || in.op[1] != "ANY" || in.guard != "" || len(in.args) != 2 ||
		in.args[0][0] != 'U' || len(in.args[0]) != 3 {
		return -1, -1, false
	}
	name := strings.TrimPrefix(in.args[1], "!")
	if len(name) != 2 || name[0] != 'P' || name[1] < '0' || name[1] > '6' || in.args[0][2] > '6' {
		return -1, -1, false
	}
	return predicate(in.args[0]), predicate(name), name != in.args[1]
}

// know notes a predicate's value.
func know(known uint32, bit int, is bool) uint32 {
	known |= 1 << bit
	if is {
		return known | 1<<(16+bit)
	}
	return known &^ (1 << (16 + bit))
}

// conditional says whether a branch without guard may fall through, as those with a register or predicate operand do.
func conditional(in *instruction) bool { return len(in.args) > 1 || in.op[len(in.op)-1] == "DIV" }
