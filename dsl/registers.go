package dsl

import "github.com/mkgen/mkgen/dsl/ir"

func special[T Elem](k *Kernel, op ir.Op) Val[T] {
	return op1[T](k, &ir.Instr{Op: op, T: typeOf[T]()})
}

// Lane is the thread's index in its warp, 0 to 31.
func (k *Kernel) Lane() Val[U32] { return special[U32](k, ir.OpLane) }

// Warp is the warp's index in its CTA.
func (k *Kernel) Warp() Val[U32] { return special[U32](k, ir.OpWarp) }

// Tid is the thread's index in its CTA, 32·Warp + Lane.
func (k *Kernel) Tid() Val[U32] { return special[U32](k, ir.OpTid) }

// CTA is the CTA's index in the grid.
func (k *Kernel) CTA() Val[U32] { return special[U32](k, ir.OpCTA) }

// Grid is the number of CTAs.
func (k *Kernel) Grid() Val[U32] { return special[U32](k, ir.OpGrid) }

// SMID is the SM the CTA runs on; only for reports.
func (k *Kernel) SMID() Val[U32] { return special[U32](k, ir.OpSMID) }

// Clock counts this SM's cycles.
func (k *Kernel) Clock() Val[U64] { return special[U64](k, ir.OpClock) }

// GlobalTimer is in nanoseconds and ticks coarsely.
func (k *Kernel) GlobalTimer() Val[U64] { return special[U64](k, ir.OpGlobalTimer) }

// Scalar declares a scalar of the params block (i32, u32, u64 or f32) and
// returns its value, the same in every thread.
func Scalar[T Num](k *Kernel, name, doc string) Val[T] {
	var t T
	p := &ir.Param{ID: len(k.ir.Params), Name: name, Type: t.irType(), Doc: doc}
	k.checkName(name)
	k.ir.Params = append(k.ir.Params, p)
	in := k.emit(&ir.Instr{Op: ir.OpParam, T: p.Type, Attr: ir.Attr{Param: p}})
	if in == nil {
		return Val[T]{k: k, v: ir.ConstInt(ir.U32, 0)}
	}
	in.Res[0].Hint = name
	return Val[T]{k: k, v: in.Res[0]}
}

// checkName refuses what is not an identifier or is taken in the params block
// or in shared memory.
func (k *Kernel) checkName(name string) {
	k.Require(isIdent(name), "name %q is not a C identifier", name)
	if pos, taken := k.names[name]; taken {
		k.errorf("name %q is taken, by the declaration at %s", name, pos.Line)
		return
	}
	k.names[name] = k.here()
}

// Var is a mutable register of type T, one copy a thread.
type Var[T Elem] struct {
	_ noCompare
	k *Kernel
	x *ir.Var
}

// NewVar declares a variable with its first value. It lives to the end of the
// block that declares it.
func NewVar[T Elem](init Val[T], name string) *Var[T] {
	k := kern(init.k)
	x := &ir.Var{ID: len(k.ir.Vars), Type: typeOf[T](), Hint: name}
	k.ir.Vars = append(k.ir.Vars, x)
	k.emit(&ir.Instr{Op: ir.OpVar, T: x.Type, Args: []*ir.Value{init.v}, Attr: ir.Attr{Var: x}})
	return &Var[T]{k: k, x: x}
}

// NewArray declares n variables with one first value; indices are Go ints.
func NewArray[T Elem](init Val[T], n int, name string) []*Var[T] {
	xs := make([]*Var[T], n)
	for i := range xs {
		xs[i] = NewVar(init, name)
	}
	return xs
}

// Get is the variable's value here and now; a later Set does not change it.
func (x *Var[T]) Get() Val[T] {
	return op1[T](x.k, &ir.Instr{Op: ir.OpGet, T: x.x.Type, Attr: ir.Attr{Var: x.x}})
}

// Set changes the variable.
func (x *Var[T]) Set(v Val[T]) {
	x.k.emit(&ir.Instr{Op: ir.OpSet, T: x.x.Type, Args: []*ir.Value{v.v}, Attr: ir.Attr{Var: x.x}})
}
