package ir

import (
	"fmt"
	"slices"
)

func lanes(in *Instr) int { return max(in.Attr.Lanes, 1) }

// access checks what loads and stores share: one address, element type T, a
// vector of 1, 2 or 4 lanes of at most 16 bytes, an order of the right kind.
func access(in *Instr, args int, orders ...Order) error {
	if err := counts(in, args, 1); err != nil {
		return err
	}
	b, n := in.Mem[0].Buf, lanes(in)
	switch {
	case b.Elem != in.T:
		return fmt.Errorf("accesses %s, whose elements are %s, as %s; make a view", b, b.Elem, in.T)
	case in.T == MBar || in.T == Pred:
		return fmt.Errorf("cannot move %s", in.T)
	case n != 1 && n != 2 && n != 4, n*in.T.Size() > 16:
		return fmt.Errorf("moves %d × %s, want 1, 2 or 4 elements and at most 16 bytes", n, in.T)
	case !slices.Contains(orders, in.Attr.Order):
		return fmt.Errorf("has order %s, want %s", in.Attr.Order, alternatives(orders))
	}
	return hints(in)
}

// alternatives is "a, b or c".
func alternatives(orders []Order) string {
	s := orders[0].String()
	for i, o := range orders[1:] {
		sep := ", "
		if i == len(orders)-2 {
			sep = " or "
		}
		s += sep + o.String()
	}
	return s
}

func hints(in *Instr) error {
	a, b := in.Attr, in.Mem[0].Buf
	switch {
	case (a.Order == Relaxed || a.Order == Acquire || a.Order == Release || a.Order == AcqRel) && a.Scope < CTA:
		return fmt.Errorf("has order %s at scope %s, want cta, cluster, gpu or sys", a.Order, a.Scope)
	case a.Hint != NoHint && b.Space == Shared:
		return fmt.Errorf("has cache hint %s on shared memory", a.Hint)
	case a.Hint == NonCoherent && (!b.Base().ReadOnly || a.Order != Weak):
		return fmt.Errorf("has hint nc, which wants a weak load of a read-only buffer")
	}
	return nil
}

func load(in *Instr) ([]Type, error) {
	if err := access(in, 0, Weak, Relaxed, Acquire, Volatile); err != nil {
		return nil, err
	}
	return slices.Repeat([]Type{in.T}, lanes(in)), nil
}

func store(in *Instr) ([]Type, error) {
	n := lanes(in)
	if err := access(in, n, Weak, Relaxed, Release, Volatile); err != nil {
		return nil, err
	}
	if in.Mem[0].Buf.Base().ReadOnly {
		return nil, fmt.Errorf("writes %s, which is read-only", in.Mem[0].Buf)
	}
	return nil, wantTypes(in, slices.Repeat([]Type{in.T}, n))
}

func atomic(args int, result bool, ts ...Type) sig {
	return func(in *Instr) ([]Type, error) {
		if err := access(in, args, Relaxed, Acquire, Release, AcqRel); err != nil {
			return nil, err
		}
		if !slices.Contains(ts, in.T) {
			return nil, fmt.Errorf("has no form for %s", in.T)
		}
		if in.Mem[0].Buf.Base().ReadOnly {
			return nil, fmt.Errorf("writes %s, which is read-only", in.Mem[0].Buf)
		}
		if !result {
			return nil, wantTypes(in, slices.Repeat([]Type{in.T}, args))
		}
		return []Type{in.T}, wantTypes(in, slices.Repeat([]Type{in.T}, args))
	}
}

func ldmatrix(in *Instr) ([]Type, error) {
	if err := counts(in, 0, 1); err != nil {
		return nil, err
	}
	b := in.Mem[0].Buf
	if b.Space != Shared || b.Elem == MBar {
		return nil, fmt.Errorf("reads %s in %s memory, want shared", b, b.Space)
	}
	return []Type{BF16x2, BF16x2, BF16x2, BF16x2}, nil
}

// bulk checks dst, src, mbarrier and the byte count; multiples of 16 and the
// 2²⁰ limit are checked where the count is known: by the planner, the
// verifier (constants) and the executor.
func bulk(in *Instr) ([]Type, error) {
	if err := counts(in, 1, 3); err != nil {
		return nil, err
	}
	dst, src, bar := in.Mem[0].Buf, in.Mem[1].Buf, in.Mem[2].Buf
	switch {
	case dst.Space != Shared || dst.Elem == MBar:
		return nil, fmt.Errorf("copies into %s, want a data buffer in shared memory", dst)
	case src.Space != Global:
		return nil, fmt.Errorf("copies from %s, want global memory", src)
	case bar.Elem != MBar:
		return nil, fmt.Errorf("completes on %s, want an mbarrier", bar)
	}
	return nil, wantTypes(in, []Type{U32})
}

// copyAsync checks dst and src.
func copyAsync(in *Instr) ([]Type, error) {
	if err := counts(in, 0, 2); err != nil {
		return nil, err
	}
	dst, src := in.Mem[0].Buf, in.Mem[1].Buf
	switch {
	case dst.Space != Shared || dst.Elem == MBar:
		return nil, fmt.Errorf("copies into %s, want a data buffer in shared memory", dst)
	case src.Space != Global:
		return nil, fmt.Errorf("copies from %s, want global memory", src)
	}
	return nil, nil
}

func named(in *Instr) ([]Type, error) {
	if err := counts(in, 0, 0); err != nil {
		return nil, err
	}
	if in.Attr.Imm < 1 || in.Attr.Imm > 15 || in.Attr.N < 32 || in.Attr.N%32 != 0 {
		return nil, fmt.Errorf("has id %d and %d threads, want id 1 to 15 and a positive multiple of 32", in.Attr.Imm,
			in.Attr.N)
	}
	return nil, nil
}

func fence(in *Instr) ([]Type, error) {
	if err := counts(in, 0, 0); err != nil {
		return nil, err
	}
	if o := in.Attr.Order; (o != AcqRel && o != SeqCst) || in.Attr.Scope < CTA {
		return nil, fmt.Errorf("has order %s and scope %s, want acq_rel or sc, and cta or wider", o, in.Attr.Scope)
	}
	return nil, nil
}

func fenceProxy(in *Instr) ([]Type, error) {
	if in.Attr.Imm < FenceAll || in.Attr.Imm > FenceShared {
		return nil, fmt.Errorf("covers space %d, want all, global or shared", in.Attr.Imm)
	}
	return nil, counts(in, 0, 0)
}

func isMBar(in *Instr, i int) error {
	if b := in.Mem[i].Buf; b.Elem != MBar || b.Space != Shared {
		return fmt.Errorf("names %s, want an mbarrier in shared memory", b)
	}
	return nil
}

func mbar(args int) sig {
	return func(in *Instr) ([]Type, error) {
		if err := counts(in, args, 1); err != nil {
			return nil, err
		}
		if err := isMBar(in, 0); err != nil {
			return nil, err
		}
		return nil, wantTypes(in, slices.Repeat([]Type{U32}, args))
	}
}

// mbarTest has an mbarrier and a parity.
func mbarTest(in *Instr) ([]Type, error) {
	if _, err := mbar(1)(in); err != nil {
		return nil, err
	}
	return []Type{Pred}, nil
}

// abortable checks what a wait may have behind its first address: a u32 flag,
// with which it also ends when that is not 0, and its one result says so; and
// behind that NoteWords words a warp of shared memory. The warp's lane 0 then
// notes there, unless the first word is not 0 any more, that its wait ended so:
// the site Attr.N, the two values behind the wait's own, and globaltimer's low
// word. There is no result.
func abortable(in *Instr) ([]Type, error) {
	if len(in.Mem) == 1 {
		return nil, nil
	}
	if f := in.Mem[1].Buf; f.Elem != U32 {
		return nil, fmt.Errorf("has abort flag %s of %s, want u32", f, f.Elem)
	}
	if len(in.Mem) == 2 {
		return []Type{Pred}, nil
	}
	if n := in.Mem[2]; n.Buf.Elem != U32 || n.Buf.Space != Shared || n.Buf.Root != nil || n.Buf.Align < 16 ||
		n.Index != nil && !(n.Index.Const && n.Index.Bits == 0) {
		return nil, fmt.Errorf("notes in %s, want u32 in shared memory, aligned to 16, and no index", n)
	}
	if in.Attr.N < 1 {
		return nil, fmt.Errorf("is site %d, want at least 1", in.Attr.N)
	}
	return nil, nil
}

// NoteWords is the length of a warp's note.
const NoteWords = 4

// waitArgs checks the values and the number of addresses of a wait, of which args are
// those of every form.
func waitArgs(in *Instr, args ...Type) error {
	if len(in.Mem) > 2 {
		args = append(args, U32, U32)
	}
	if err := counts(in, len(args), min(max(len(in.Mem), 1), 3)); err != nil {
		return err
	}
	return wantTypes(in, args)
}

func waitMBar(in *Instr) ([]Type, error) {
	if err := waitArgs(in, U32); err != nil {
		return nil, err
	}
	if err := isMBar(in, 0); err != nil {
		return nil, err
	}
	return abortable(in)
}

func waitMem(in *Instr) ([]Type, error) {
	if err := waitArgs(in, U32); err != nil {
		return nil, err
	}
	if err := polls(in, U32); err != nil {
		return nil, err
	}
	return abortable(in)
}

// polls checks how a wait reads what it polls, elements of t.
func polls(in *Instr, t Type) error {
	a, b := in.Attr, in.Mem[0].Buf
	switch {
	case in.T != t || b.Elem != t:
		return fmt.Errorf("polls %s of %s as %s, want %s", b, b.Elem, in.T, t)
	case a.Order != Relaxed && a.Order != Acquire && a.Order != Volatile:
		return fmt.Errorf("has order %s, want relaxed, acquire or volatile", a.Order)
	case a.Order != Volatile && a.Scope < CTA:
		return fmt.Errorf("has order %s at scope %s, want cta, cluster, gpu or sys", a.Order, a.Scope)
	}
	return nil
}

// waitTag is a wait with the bits as its result. A flag that ends it needs a note; the
// result is what was read last then.
func waitTag(in *Instr) ([]Type, error) {
	if err := waitArgs(in, U32, B128); err != nil {
		return nil, err
	}
	if err := polls(in, B128); err != nil {
		return nil, err
	}
	if len(in.Mem) == 2 {
		return nil, fmt.Errorf("has abort flag %s without a note", in.Mem[1].Buf)
	}
	if _, err := abortable(in); err != nil {
		return nil, err
	}
	return []Type{B128}, nil
}
