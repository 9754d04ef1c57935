package verify

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/table"
)

// Coverage is how much of the real kernel's program the runs have executed: of each role's
// instructions those that have a counterpart which ran. Missing are the others.
type Coverage struct {
	Roles   []RoleLines
	Missing []MissingLine
}

// RoleLines is a role's instructions in the real kernel, and those whose counterparts ran.
type RoleLines struct {
	Role       string
	All, Ran   int
	Lines, Hit int // Go lines that they come from, and those of which some ran
}

// MissingLine is a Go line whose N instructions in a region of a role did not run, of All.
type MissingLine struct {
	Role, Region string
	Pos          ir.Pos
	N, All       int
	Whole        bool // none of the line's instructions ran, in any region of the role
}

// instrKey tells an instruction from all others of its kernel: its role, region, Go
// lines and op, and how many like it there are before. Where the real kernel unrolls further, its
// later instructions have no counterpart in a small one.
type instrKey struct {
	role, region string
	pos          ir.Pos
	op           ir.Op
	n            int
}

// keysOf are the keys of a kernel's instructions, in the order of ir.Kernel.Instrs.
func keysOf(k *ir.Kernel) (keys []instrKey) {
	seen := map[instrKey]int{}
	var block func(b *ir.Block, region, role string)
	block = func(b *ir.Block, region, role string) {
		for _, s := range b.Stmts {
			switch s := s.(type) {
			case *ir.Instr:
				key := instrKey{role: role, region: region, pos: s.Pos, op: s.Op}
				seen[key]++
				key.n = seen[key]
				keys = append(keys, key)
			case *ir.Region:
				block(s.Body, s.Name, role)
			case *ir.Roles:
				for _, r := range s.Roles {
					block(r.Body, region, r.Name)
				}
			default:
				for _, inner := range ir.Blocks(s) {
					block(inner, region, role)
				}
			}
		}
	}
	block(k.Body, "", "all warps")
	return keys
}

// executed are the keys of the instructions that ran.
type executed map[instrKey]bool

// add adds those of a kernel, whose instructions ran so often.
func (e executed) add(k *ir.Kernel, ran []int64) {
	if len(ran) == 0 {
		return
	}
	keys := keysOf(k)
	if len(keys) != len(ran) {
		panic(fmt.Sprintf("BUG: verify: %d instructions, %d counts", len(keys), len(ran)))
	}
	for i, n := range ran {
		if n > 0 {
			e[keys[i]] = true
		}
	}
}

// of compares with the real kernel's instructions.
func (e executed) of(real *ir.Kernel) *Coverage {
	type place struct {
		role, region string
		pos          ir.Pos
	}
	type line struct {
		role string
		pos  ir.Pos
	}
	all, ran, lines := map[place]int{}, map[place]int{}, map[line]bool{}
	roles := map[string]*RoleLines{}
	var names []string
	for _, key := range keysOf(real) {
		r := roles[key.role]
		if r == nil {
			r = &RoleLines{Role: key.role}
			roles[key.role], names = r, append(names, key.role)
		}
		p, l := place{key.role, key.region, key.pos}, line{key.role, key.pos}
		r.All++
		all[p]++
		if e[key] {
			r.Ran++
			ran[p]++
		}
		lines[l] = lines[l] || e[key]
	}
	x := &Coverage{}
	for l, hit := range lines {
		roles[l.role].Lines++
		if hit {
			roles[l.role].Hit++
		}
	}
	for p, n := range all {
		if ran[p] < n {
			x.Missing = append(x.Missing, MissingLine{p.role, p.region, p.pos, n - ran[p], n, !lines[line{p.role, p.pos}]})
		}
	}
	slices.SortFunc(x.Missing, func(a, b MissingLine) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Region, b.Region),
			cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Caller, b.Pos.Caller))
	})
	for _, name := range names {
		x.Roles = append(x.Roles, *roles[name])
	}
	return x
}

// write prints the roles, and the Go lines of which nothing ran; with every, each place some of whose
// instructions did not.
func (x *Coverage) write(b *bytes.Buffer, every bool) {
	t := table.New("of the real kernel's program", ">instructions", ">executed", ">Go lines", ">executed")
	for _, r := range x.Roles {
		t.Row(r.Role, r.All, r.Ran, r.Lines, r.Hit)
	}
	b.WriteByte('\n')
	must(t.Write(b, "  "))
	missing := table.New("not executed", "in", "line", ">instructions", ">of")
	n := 0
	for _, m := range x.Missing {
		if every || m.Whole {
			n++
			missing.RowWithin([]int{0, 0, 32}, m.Role, m.Region, m.Pos.String(), m.N, m.All)
		}
	}
	if n > 0 {
		b.WriteByte('\n')
		must(missing.Write(b, "  "))
	}
}
