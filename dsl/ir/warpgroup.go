package ir

import "fmt"

// FragmentA is the number of registers a thread holds of a wgmma's A, 64×16, where it is not in memory.
const FragmentA = 4

// Columns is a wgmma's N: 8 to 256.
func (s *Instr) Columns() int {
	n := len(s.Attr.Vars)
	if len(s.Mem) == 1 {
		n -= FragmentA
	}
	return 2 * n
}

// wgmma checks the sums, the registers of A and how the operands in memory lie.
func wgmma(in *Instr) ([]Type, error) {
	if len(in.Args) != 0 || len(in.Mem) != 1 && len(in.Mem) != 2 {
		return nil, fmt.Errorf("has %d values and %d addresses, want none and those of B, or of A and B", len(in.Args),
			len(in.Mem))
	}
	if err := counts(in, 0, len(in.Mem)); err != nil {
		return nil, err
	}
	if in.T != BF16x2 && in.T != F16x2 && in.T != E4M3x2 {
		return nil, fmt.Errorf("multiplies %s, want bf16x2, f16x2 or e4m3x2", in.T)
	}
	if in.T == E4M3x2 && len(in.Mem) != 2 {
		return nil, fmt.Errorf("multiplies e4m3x2 in registers, want both operands in memory")
	}
	if n := in.Columns(); n < 8 || n > 256 || n%8 != 0 {
		return nil, fmt.Errorf("has %d variables, which are sums of %d columns, want 8, 16, … 256", len(in.Attr.Vars), n)
	}
	for i, x := range in.Attr.Vars {
		want := F32
		if len(in.Mem) == 1 && i < FragmentA {
			want = in.T
		}
		if x == nil || x.Type != want {
			return nil, fmt.Errorf("has variable %d %s, want %s", i, x, want)
		}
	}
	if in.Attr.Imm&^1 != 0 {
		return nil, fmt.Errorf("has %d for what is in the sums, want 0 or 1", in.Attr.Imm)
	}
	if len(in.Attr.Tiles) != len(in.Mem) {
		return nil, fmt.Errorf("says how %d operands lie, want %d", len(in.Attr.Tiles), len(in.Mem))
	}
	for i, m := range in.Mem {
		if t := in.Attr.Tiles[i]; m.Buf.Space != Shared || m.Buf.Elem == MBar {
			return nil, fmt.Errorf("reads %s in %s memory, want shared", m.Buf, m.Buf.Space)
		} else if t.Swizzle != 64 && t.Swizzle != 128 || t.Stride < 0 || t.Stride%16 != 0 || t.Stride >= 1<<18 {
			return nil, fmt.Errorf("has rows of %d bytes in groups %d bytes apart, want 64 or 128 and a multiple of 16 below 2^18", t.Swizzle, t.Stride)
		} else if t.Stride%(8*t.Swizzle) != 0 || t.Across%(8*t.Swizzle) != 0 {
			return nil, fmt.Errorf("has groups of 8 rows of operand %d %d and %d bytes apart, want multiples of their %d bytes: the swizzle begins anew with each", i, t.Stride, t.Across, 8*t.Swizzle)
		} else if t.Across != 0 && in.T == E4M3x2 {
			return nil, fmt.Errorf("has columns of operand %d of e4m3x2 in rows, want rows in rows", i)
		} else if t.Across != 0 && (i < len(in.Mem)-1 || t.Across < 0 || t.Across%16 != 0 || t.Across >= 1<<18) {
			return nil, fmt.Errorf("has columns of operand %d in rows, %d bytes on, want that of B, and a multiple of 16 below 2^18", i, t.Across)
		}
	}
	return nil, nil
}

func groupWait(in *Instr) ([]Type, error) {
	if in.Attr.N < 0 || in.Attr.N > 7 {
		return nil, fmt.Errorf("leaves %d groups under way, want 0 to 7", in.Attr.N)
	}
	return nil, counts(in, 0, 0)
}

// LaunchRegisters is how many registers a thread has when a launch begins: a CTA's share of an SM's, in eights.
func (k *Kernel) LaunchRegisters() int {
	const ofSM, most = 65536, 248
	return min(ofSM/(32*k.Warps*max(k.PerSM, 1))/8*8, most)
}

func setMaxReg(in *Instr) ([]Type, error) {
	if n := in.Attr.N; n < 24 || n > 256 || n%8 != 0 {
		return nil, fmt.Errorf("sets %d registers, want a multiple of 8 from 24 to 256", n)
	}
	return nil, counts(in, 0, 0)
}

// MapAlign is the alignment in bytes of what a tensor map copies into shared memory.
const MapAlign = 128

// MapBytes is the size of a tensor map, MapPlace its alignment.
const (
	MapBytes = 128
	MapPlace = 64
)

// TensorMap describes a part of a global buffer as an array of three dimensions, of 2-byte elements, the first
// contiguous, and the box that one copy takes of it. The host makes the 128 bytes of hardware descriptor from it
// (cuTensorMapEncodeTiled: no interleaving, no swizzle, what lies outside reads as 0).
type TensorMap struct {
	Of      *Buf     // a root buffer in global memory
	From    int64    // bytes from its start
	Dims    [3]int64 // elements; of the last dimension 0 for as many as a buffer of unknown length holds
	Strides [2]int64 // bytes from one element of dimension 1 to the next, and of dimension 2
	Box     [3]int   // elements, at most 256 in a dimension
}

// BoxBytes is what a copy moves.
func (m *TensorMap) BoxBytes() int64 { return 2 * int64(m.Box[0]) * int64(m.Box[1]) * int64(m.Box[2]) }

// Problem says why a buffer of that many bytes cannot have this map, or nothing: its last dimension has no element, or
// some that a coordinate does not reach, which is an i32.
func (m *TensorMap) Problem(bytes int64) string {
	if n := m.Within(bytes)[2]; n < 1 || n > 1<<31 {
		return fmt.Sprintf("a tensor map of %d elements in its last dimension, over %s of %d bytes, want 1 to 2^31", n, m.Of,
			bytes)
	}
	return ""
}

// Within is Dims over a buffer of that many bytes.
func (m *TensorMap) Within(bytes int64) [3]int64 {
	d := m.Dims
	if d[2] == 0 {
		d[2] = max(0, (bytes-m.From)/m.Strides[1])
	}
	return d
}

// End is the first byte of Of behind the array.
func (m *TensorMap) End() int64 {
	return m.From + 2*m.Dims[0] + (m.Dims[1]-1)*m.Strides[0] + (m.Dims[2]-1)*m.Strides[1]
}

// BoxBytes is what a tensor copy moves into a CTA; 0 where its map is missing.
func (s *Instr) BoxBytes() int64 {
	if len(s.Mem) < 2 || s.Mem[1].Buf.Map == nil {
		return 0
	}
	return s.Mem[1].Buf.Map.BoxBytes()
}

// tensorCopy checks dst, map, mbarrier and the three coordinates.
func tensorCopy(in *Instr) ([]Type, error) {
	if err := counts(in, 3, 3); err != nil {
		return nil, err
	}
	dst, from, bar := in.Mem[0].Buf, in.Mem[1], in.Mem[2].Buf
	switch {
	case dst.Space != Shared || dst.Elem == MBar:
		return nil, fmt.Errorf("copies into %s, want a data buffer in shared memory", dst)
	case from.Buf.Map == nil || from.Index != nil:
		return nil, fmt.Errorf("copies from %s, want a tensor map without an index", from)
	case bar.Elem != MBar:
		return nil, fmt.Errorf("completes on %s, want an mbarrier", bar)
	case in.Attr.Imm < 0 || in.Attr.Imm > 1<<16-1:
		return nil, fmt.Errorf("has a mask of %#x, want 16 bits", in.Attr.Imm)
	}
	return nil, wantTypes(in, []Type{I32, I32, I32})
}

// tensorMap checks a buffer that holds a tensor map.
func (v *verifier) tensorMap(b *Buf, what string) {
	m := b.Map
	bad := func(format string, args ...any) { v.errorf(KindPlace, b.Pos, what, format, args...) }
	switch {
	case b.Space != Global || !b.ReadOnly || b.Bytes() != MapBytes || b.Align < MapPlace:
		bad("holds a tensor map, want read-only global memory of %d bytes, aligned to %d", MapBytes, MapPlace)
		return
	case m.Of == nil || m.Of.Root != nil || m.Of.Space != Global || m.Of.ID < 0 || m.Of.ID >= len(v.k.Bufs) ||
		v.k.Bufs[m.Of.ID] != m.Of:
		bad("describes %s, want a root buffer of this kernel in global memory", m.Of)
		return
	case m.From%16 != 0 || m.From < 0 || m.Of.Align < 16:
		bad("describes %s, aligned to %d, from byte %d, want multiples of 16", m.Of, m.Of.Align, m.From)
	case m.Of.Len > 0 && m.End() > m.Of.Bytes():
		bad("describes %s up to byte %d, but it has %d", m.Of, m.End(), m.Of.Bytes())
	}
	for i, d := range m.Dims {
		if m.Of.Len == 0 && i == 2 && d == 0 {
			d = 1
		}
		if d < 1 || d > 1<<31 || m.Box[i] < 1 || m.Box[i] > 256 {
			bad("has a box of %d of %d elements in dimension %d, want 1 to 256 of 1 to 2^31, which coordinates reach", m.Box[i],
				d, i)
		}
	}
	for i, s := range m.Strides {
		if s < 16 || s%16 != 0 || s >= 1<<40 {
			bad("has a stride of %d bytes in dimension %d, want a multiple of 16 below 2^40", s, i+1)
			return
		}
	}
	if s := m.Strides; s[1]%s[0] != 0 {
		bad("has strides of %d and %d bytes, want a multiple of the first as the second", s[0], s[1])
	}
	if m.Box[0]*2%16 != 0 || m.BoxBytes() >= 1<<20 {
		bad("has a box of %d bytes in rows of %d, want fewer than 2^20 in multiples of 16", m.BoxBytes(), 2*m.Box[0])
	}
}
