package ir

import (
	"errors"
	"fmt"
)

// Field is one member of the params block the kernel's only argument points
// to: an 8-byte device pointer for each global root buffer, then the scalars,
// each at a multiple of its size.
type Field struct {
	Name   string
	Type   Type // U64 for a pointer
	Offset int  // bytes
	Buf    *Buf // the buffer the pointer is for, or nil
	Param  *Param
}

// ParamsLayout lists the members of the params block and its size in bytes, a
// multiple of 8.
func (k *Kernel) ParamsLayout() (fields []Field, size int) {
	for _, b := range k.Globals() {
		fields = append(fields, Field{Name: b.Name, Type: U64, Offset: size, Buf: b})
		size += 8
	}
	for _, p := range k.Params {
		n := p.Type.Size()
		size = (size + n - 1) / n * n
		fields = append(fields, Field{Name: p.Name, Type: p.Type, Offset: size, Param: p})
		size += n
	}
	return fields, (size + 7) / 8 * 8
}

// LayoutShared gives every shared root buffer that has none (Offset < 0) its
// byte offset, in order of declaration, and sets SharedBytes. All refusals
// come back joined, each an *Error: fixed offsets that overlap or go
// backwards, misalignment, and more than SharedLimit.
func (k *Kernel) LayoutShared() error {
	var errs []error
	refuse := func(pos Pos, what, format string, args ...any) {
		errs = append(errs, &Error{Pos: pos, Kind: KindPlace, What: what, Text: fmt.Sprintf(format, args...)})
	}
	end, last := 0, ""
	for _, b := range k.Shareds() {
		align := max(b.Align, b.Elem.Size())
		if b.Offset < 0 {
			b.Offset = (end + align - 1) / align * align
		}
		if b.Offset%align != 0 {
			refuse(b.Pos, "shared buffer "+b.String(), "is placed at byte %d, want a multiple of %d", b.Offset, align)
		}
		if b.Offset < end {
			refuse(b.Pos, "shared buffer "+b.String(), "is placed at byte %d, but %s, declared before it, ends at %d", b.Offset,
				last, end)
		}
		if e := b.Offset + int(b.Bytes()); e >= end {
			end, last = e, b.String()
		}
	}
	k.SharedBytes = end
	if end > k.SharedLimit && end > 0 {
		refuse(largest(k.Shareds()), "kernel "+k.Name, "%s", overBudget(k.Shareds(), int64(end), k.SharedLimit))
	}
	return errors.Join(errs...)
}
