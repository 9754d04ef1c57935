package interp

import "github.com/mkgen/mkgen/dsl/ir"

// allocator maps values and variables to register rows by their live ranges in
// the flattened program, so that a warp's file stays small. While the program
// is being emitted operands name live ranges; assign replaces them by rows.
type allocator struct {
	values map[*ir.Value]operand
	vars   map[*ir.Var]operand
	ranges []liveRange
	loops  []int32   // positions of the open loops' begins, outermost first
	extend [][]int32 // for each open loop, ranges that live to its end
}

type liveRange struct {
	def, last int32
	wide      bool // two rows
	slot      int32
}

func (al *allocator) init() {
	al.values, al.vars = map[*ir.Value]operand{}, map[*ir.Var]operand{}
}

func (al *allocator) add(pc int32, t ir.Type) operand {
	al.ranges = append(al.ranges, liveRange{def: pc, last: pc, wide: t == ir.B128})
	return operand(len(al.ranges) - 1)
}

// define starts a value's live range.
func (al *allocator) define(v *ir.Value, pc int32) operand {
	o := al.add(pc, v.Type)
	al.values[v] = o
	return o
}

// use extends a value's live range to pc and, when it was defined before a loop
// that is still open, to the end of the outermost such loop.
func (al *allocator) use(v *ir.Value, pc int32) (operand, bool) {
	o, ok := al.values[v]
	if ok {
		al.touch(o, pc)
	}
	return o, ok
}

// variable is the range of x, which declare starts; −1 if it was never declared.
func (al *allocator) variable(x *ir.Var, declare bool, pc int32) operand {
	if o, ok := al.vars[x]; ok {
		al.touch(o, pc)
		return o
	}
	if !declare {
		return -1
	}
	o := al.add(pc, x.Type)
	al.vars[x] = o
	return o
}

func (al *allocator) touch(o operand, pc int32) {
	r := &al.ranges[o]
	r.last = max(r.last, pc)
	for i, begin := range al.loops {
		if begin > r.def {
			al.extend[i] = append(al.extend[i], o)
			return
		}
	}
}

func (al *allocator) openLoop(begin int32) {
	al.loops = append(al.loops, begin)
	al.extend = append(al.extend, nil)
}

func (al *allocator) closeLoop(end int32) {
	n := len(al.loops) - 1
	for _, o := range al.extend[n] {
		al.ranges[o].last = max(al.ranges[o].last, end)
	}
	al.loops, al.extend = al.loops[:n], al.extend[:n]
}

// assign gives every live range its rows and rewrites the code's operands. A
// row is handed on only after the instruction that last reads it, so that no
// instruction's result shares a row with its argument.
func (al *allocator) assign(code []inst) int {
	begins, ends := make([][]int32, len(code)), make([][]int32, len(code))
	for i, r := range al.ranges {
		begins[r.def] = append(begins[r.def], int32(i))
		ends[r.last] = append(ends[r.last], int32(i))
	}
	var free, freeWide []int32
	rows := int32(0)
	take := func(wide bool) int32 {
		list, n := &free, int32(1)
		if wide {
			list, n = &freeWide, 2
		}
		if k := len(*list); k > 0 {
			s := (*list)[k-1]
			*list = (*list)[:k-1]
			return s
		}
		rows += n
		return rows - n
	}
	for pc := range code {
		for _, i := range begins[pc] {
			al.ranges[i].slot = take(al.ranges[i].wide)
		}
		for _, i := range ends[pc] {
			if al.ranges[i].wide {
				freeWide = append(freeWide, al.ranges[i].slot)
			} else {
				free = append(free, al.ranges[i].slot)
			}
		}
		al.rewrite(&code[pc])
	}
	return int(rows)
}

func (al *allocator) rewrite(in *inst) {
	fix := func(o *operand) {
		if *o >= 0 {
			*o = al.ranges[*o].slot
		}
	}
	for i := range in.a {
		fix(&in.a[i])
	}
	for i := range in.r {
		fix(&in.r[i])
	}
	for i := range in.vars {
		fix(&in.vars[i])
	}
	for i := range in.mem {
		if !in.mem[i].none {
			fix(&in.mem[i].index)
		}
	}
	if in.attr != nil && in.attr.Var != nil {
		fix(&in.slot)
	}
}
