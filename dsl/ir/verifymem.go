package ir

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// memoryMap checks the buffers: views against their roots, and that the
// shared ones are placed, aligned, apart and within the budget.
func (v *verifier) memoryMap() {
	for _, b := range v.k.Bufs {
		if b.Root != nil {
			v.view(b)
			continue
		}
		what := fmt.Sprintf("%s buffer %s", b.Space, b)
		switch {
		case b.Align < b.Elem.Size() || b.Align&(b.Align-1) != 0:
			v.errorf(KindPlace, b.Pos, what, "is aligned to %d bytes, want a power of two that is at least the element's %d",
				b.Align, b.Elem.Size())
		case b.Space == Global && b.Elem == MBar:
			v.errorf(KindPlace, b.Pos, what, "holds mbarriers, which live in shared memory only")
		case b.Space == Shared && b.ReadOnly:
			v.errorf(KindPlace, b.Pos, what, "is read-only, so nothing could fill it")
		case b.Host == HostKeeps && (b.Space == Shared || b.ReadOnly):
			v.errorf(KindPlace, b.Pos, what, "is one that the host keeps, want global memory that is not read-only")
		case b.Host != HostNone && b.Host != HostKeeps && (b.Space == Shared || b.Elem != U32 || b.ReadOnly):
			v.errorf(KindPlace, b.Pos, what,
				"is one that the host %s while the kernel runs, want global memory of u32 that is not read-only", b.Host)
		case b.Map != nil:
			v.tensorMap(b, what)
		case b.Space == Shared && b.Len == 0:
			v.errorf(KindPlace, b.Pos, what, "has no elements; only a global buffer's length is left to the host")
		case b.Space == Shared && b.Offset < 0:
			v.errorf(KindPlace, b.Pos, what, "has no place; LayoutShared gives one")
		case b.Space == Shared && b.Offset%b.Align != 0:
			v.errorf(KindPlace, b.Pos, what, "is placed at byte %d, want a multiple of %d", b.Offset, b.Align)
		}
	}
	v.sharedMap()
}

func (v *verifier) view(b *Buf) {
	r, k := b.Root, v.k
	what := fmt.Sprintf("view %s", b)
	switch {
	case r.Root != nil || r.ID < 0 || r.ID >= len(k.Bufs) || k.Bufs[r.ID] != r || r.Space != b.Space:
		v.errorf(KindPlace, b.Pos, what, "has the root %s, want a buffer of this kernel, of the same space, that is no view",
			r)
	case b.Elem == MBar || r.Elem == MBar:
		v.errorf(KindPlace, b.Pos, what, "sees %s as %s; mbarriers have no other form", r.Elem, b.Elem)
	case b.Offset < 0 || r.Len > 0 && int64(b.Offset)+b.Bytes() > r.Bytes():
		v.errorf(KindPlace, b.Pos, what, "covers bytes %d..%d of %s, which has %d", b.Offset, int64(b.Offset)+b.Bytes(), r,
			r.Bytes())
	case r.Align%b.Elem.Size() != 0 || b.Offset%b.Elem.Size() != 0:
		v.errorf(KindPlace, b.Pos, what, "has elements of %d bytes at byte %d of %s, which is aligned to %d", b.Elem.Size(),
			b.Offset, r, r.Align)
	}
}

func (v *verifier) sharedMap() {
	bs := slices.DeleteFunc(v.k.Shareds(), func(b *Buf) bool { return b.Offset < 0 })
	slices.SortStableFunc(bs, func(a, b *Buf) int { return cmp.Compare(a.Offset, b.Offset) })
	var end int64
	for i, b := range bs {
		if i > 0 && int64(b.Offset) < end {
			v.errorf(KindPlace, b.Pos, fmt.Sprintf("shared buffer %s", b), "takes bytes %d..%d, which overlap %s at %d..%d",
				b.Offset, int64(b.Offset)+b.Bytes(), bs[i-1], bs[i-1].Offset, end)
		}
		end = max(end, int64(b.Offset)+b.Bytes())
	}
	if end > int64(v.k.SharedLimit) || end > int64(v.k.SharedBytes) {
		v.errorf(KindPlace, largest(bs), "kernel "+v.k.Name, "%s",
			overBudget(bs, end, min(v.k.SharedLimit, max(v.k.SharedBytes, 0))))
	}
}

// largest is where the largest buffer was declared.
func largest(bs []*Buf) Pos {
	return slices.MaxFunc(bs, func(a, b *Buf) int { return cmp.Compare(a.Bytes(), b.Bytes()) }).Pos
}

// overBudget says how much shared memory is asked for, by whom, and what there is.
func overBudget(bs []*Buf, end int64, limit int) string {
	bs = slices.Clone(bs)
	slices.SortStableFunc(bs, func(a, b *Buf) int { return cmp.Compare(b.Bytes(), a.Bytes()) })
	var parts []string
	for i, b := range bs {
		if i == 4 && len(bs) > 5 {
			parts = append(parts, fmt.Sprintf("%d more", len(bs)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %d", b, b.Bytes()))
	}
	return fmt.Sprintf("its shared buffers end at byte %d (%s), but a CTA has %d", end, strings.Join(parts, ", "), limit)
}

// addresses checks what is known of each memory operand at generation time:
// constant indices against bounds, and alignment.
func (v *verifier) addresses() {
	v.instrs(func(in *Instr) {
		if err := in.HostRace(); err != nil {
			v.errorf(KindMemory, in.Pos, in.Op.String(), "%v", err)
		}
		for i, m := range in.Mem {
			n, align := in.Touches(i)
			v.address(in, m, n, align)
		}
	})
}

// Touches is how many bytes memory operand i covers, as far as is known, and
// the alignment it needs.
func (s *Instr) Touches(i int) (bytes int64, align int) {
	e := s.Mem[i].Buf.Elem.Size()
	switch s.Op {
	case OpLd, OpSt:
		return int64(lanes(s) * e), lanes(s) * e
	case OpWaitMBar, OpWaitMem, OpWaitTag:
		if i == 2 {
			return int64(NoteWords * e), NoteWords * e
		}
	case OpLdMatrix, OpCopyAsync:
		return 16, 16
	case OpTensorG2S:
		if i == 0 {
			return s.BoxBytes(), MapAlign
		}
	case OpWGMMA:
		if i >= len(s.Attr.Tiles) {
			return 16, 16 // refused already
		}
		t := s.Attr.Tiles[i]
		rows := s.Columns()
		if i == 0 && len(s.Mem) == 2 {
			rows = 64
		}
		return t.Reach(rows), 16
	case OpBulkG2S:
		if i == 2 {
			return int64(e), e
		}
		if c := s.Args; len(c) == 1 && c[0].Const && c[0].Bits < 1<<20 {
			return int64(c[0].Bits), 16
		}
		return 16, 16
	}
	return int64(e), e
}

func (v *verifier) address(in *Instr, m Addr, bytes int64, align int) {
	b, op := m.Buf, in.Op.String()
	root, e := b.Base(), int64(b.Elem.Size())
	have, place := root.Align, int64(0) // place: of element 0, from a point that is aligned to have
	if b != root {
		place = int64(b.Offset)
	}
	if b.Space == Shared && root.Offset >= 0 {
		have, place = align, place+int64(root.Offset)
	}
	switch {
	case have < align:
		v.errorf(KindMemory, in.Pos, op, "moves %d bytes at once, but %s is aligned to %d; declare it with Align(%d)", align,
			b, root.Align, align)
		return
	case place%int64(align) != 0:
		v.errorf(KindMemory, in.Pos, op,
			"moves %d bytes at once, but %s starts at byte %d of %s memory; declare it with Align(%d)", align, b, place, b.Space,
			align)
		return
	}
	index := int64(0)
	switch {
	case m.Index != nil && !m.Index.Const:
		return
	case m.Index != nil:
		index = int64(m.Index.Bits)
	}
	if index < 0 {
		v.errorf(KindMemory, in.Pos, op, "%s is before the buffer's first element", m)
		return
	}
	if last := index + max(bytes-1, 0)/e; b.Len > 0 && (index >= b.Len || last >= b.Len) {
		v.errorf(KindMemory, in.Pos, op, "%s reaches element %d, but the buffer ends with element %d", m, max(index, last),
			b.Len-1)
		return
	}
	if index*e%int64(align) != 0 {
		v.errorf(KindMemory, in.Pos, op, "%s is at byte %d, want a multiple of %d", m, index*e, align)
	}
}
