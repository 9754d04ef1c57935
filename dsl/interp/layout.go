package interp

import (
	"fmt"
	"math/bits"

	"github.com/mkgen/mkgen/dsl/ir"
)

// maxGran is log2 of the largest shadow granule, 16 bytes.
const maxGran = 4

func isAtomic(op ir.Op) bool { return op >= ir.OpAtomAdd && op <= ir.OpRedAdd }

// layout lists the root buffers and works out each one's shadow granule: the
// largest power of two, up to 16 bytes, that divides the offset and the length
// of every access to it. A vector access counts whole: it is aligned to its
// size, and any other access covers whole granules too, so nothing is lost.
func (l *loader) layout(k *ir.Kernel) error {
	for _, b := range k.Bufs {
		if b.Root != nil {
			continue
		}
		info := rootInfo{buf: b, size: b.Bytes(), gran: maxGran, mbar0: -1}
		if b.Space == ir.Shared && (b.Offset < 0 || b.Len <= 0) {
			return fmt.Errorf("%s: shared buffer %s has offset %d and length %d; lay shared memory out first", b.Pos, b,
				b.Offset, b.Len)
		}
		if b.Space == ir.Shared && b.Offset%16 != 0 {
			info.gran = min(info.gran, uint(bits.TrailingZeros(uint(b.Offset))))
		}
		if b.Elem == ir.MBar {
			info.mbar0 = int32(l.p.mbars)
			l.p.mbars += int(b.Len)
		}
		l.p.rootOf[b] = int32(len(l.p.roots))
		l.p.roots = append(l.p.roots, info)
	}
	k.Instrs(l.scanAccess)
	return nil
}

func (l *loader) scanAccess(s *ir.Instr) {
	for _, x := range s.Attr.Vars {
		if _, ok := l.p.groupVars[x]; !ok {
			l.p.groupVars[x] = int32(len(l.p.groupVars))
		}
	}
	l.p.copies = l.p.copies || s.Op == ir.OpCopyAsync
	l.p.overlaps = l.p.overlaps || s.Op == ir.OpGridWait || s.Op == ir.OpGridLaunch
	for i, a := range s.Mem {
		r, ok := l.p.rootOf[a.Buf.Base()]
		if !ok || a.Buf.Elem == ir.MBar {
			continue
		}
		info := &l.p.roots[r]
		size := a.Buf.Elem.Size()
		switch {
		case s.Op == ir.OpLd || s.Op == ir.OpSt:
			size *= max(s.Attr.Lanes, 1)
			info.strong = info.strong || s.Attr.Order != ir.Weak
			info.written = info.written || s.Op == ir.OpSt
		case isAtomic(s.Op):
			info.strong, info.written = true, true
		case s.Op == ir.OpTensorG2S && i == 1:
			continue // its pieces begin at multiples of 16 bytes
		case s.Op == ir.OpTensorG2S || s.Op == ir.OpWGMMA:
			size = 16
			info.written = info.written || s.Op == ir.OpTensorG2S
		case s.Op == ir.OpBulkG2S || s.Op == ir.OpLdMatrix || s.Op == ir.OpCopyAsync:
			size = 16
			info.written = info.written || s.Op != ir.OpLdMatrix && i == 0
		case i == 2 && s.Op.Waits():
			info.written = true
		case s.Op.Waits():
			info.strong = true
		}
		if size == 0 {
			continue
		}
		info.gran = min(info.gran, uint(bits.TrailingZeros(uint(size))))
		if a.Buf.Root != nil && a.Buf.Offset != 0 {
			info.gran = min(info.gran, uint(bits.TrailingZeros(uint(a.Buf.Offset))))
		}
	}
}
