package mutate

import (
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Key says where in a kernel an instruction is, by the kernel's structure alone: no line of a
// source, no number. Instructions with equal keys are of one kind in equal surroundings.
//
// A neighbour is an instruction that touches memory or synchronises, the nearest in the text of
// the same role, whatever blocks lie between; "" where there is none.
type Key struct {
	Op     string // "wait.mbar @empty", "red.add.release @barrier": what it is and its buffers
	Role   string // the role whose warps execute it, "" if all do
	Region string // the regions around it, the outermost first: "layers/qkv"; "" for none
	Front  string // the neighbour before it
	Behind string // the neighbour after it
}

// String is "producer, qkv: ld @page_table; wait.mbar @empty; fence.proxy.async".
func (k Key) String() string {
	place := k.Role
	if k.Region != "" {
		place = strings.TrimPrefix(place+", "+k.Region, ", ")
	}
	return strings.TrimPrefix(place+": ", ": ") + k.Front + "; " + k.Op + "; " + k.Behind
}

// spell is an instruction as keys name it: the operation and its buffers, of a wait only the one
// it waits for, of a wait for memory and of atomics also the order, and of a proxy fence its space.
func spell(in *ir.Instr) string {
	s, mem := in.Op.String(), in.Mem
	if in.Op == ir.OpWaitMem || atomic(in.Op) {
		s += "." + in.Attr.Order.String()
	}
	switch in.Op {
	case ir.OpFenceProxy:
		s += [...]string{ir.FenceAll: "", ir.FenceGlobal: ".global", ir.FenceShared: ".shared"}[in.Attr.Imm]
	case ir.OpWaitMBar, ir.OpWaitMem, ir.OpWaitTag:
		mem = mem[:1]
	}
	for _, m := range mem {
		s += " @" + m.Buf.Name
	}
	return s
}

// keys are the keys of all instructions of a kernel, in the order of ir.Kernel.Instrs.
func keys(k *ir.Kernel) []Key {
	var out []Key
	last := map[string]int{} // role: the number of the neighbour before, -1 none
	var block func(b *ir.Block, role, region string)
	block = func(b *ir.Block, role, region string) {
		for _, s := range b.Stmts {
			switch s := s.(type) {
			case *ir.Instr:
				n, key := len(out), Key{Op: spell(s), Role: role, Region: region}
				at, ok := last[role]
				if ok {
					key.Front = out[at].Op
				}
				out = append(out, key)
				if matters(s) {
					for i := at; ok && i < n; i++ {
						if out[i].Role == role {
							out[i].Behind = key.Op
						}
					}
					last[role] = n
				}
			case *ir.Region:
				block(s.Body, role, strings.TrimPrefix(region+"/"+s.Name, "/"))
			case *ir.Roles:
				for _, r := range s.Roles {
					block(r.Body, r.Name, region)
				}
			default:
				for _, inner := range ir.Blocks(s) {
					block(inner, role, region)
				}
			}
		}
	}
	block(k.Body, "", "")
	return out
}

// SameKind reports whether m and o break instructions of equal keys in the same way.
func (m Mutation) SameKind(o Mutation) bool { return m.Name == o.Name && m.Key == o.Key }

// Kinds are the first mutations of each kind, in order.
func Kinds(ms []Mutation) (first []Mutation) {
	type kind struct {
		name string
		key  Key
	}
	seen := map[kind]bool{}
	for _, m := range ms {
		if k := (kind{m.Name, m.Key}); !seen[k] {
			seen[k] = true
			first = append(first, m)
		}
	}
	return first
}
