package ir

// literals checks operands fixed at generation time against the hardware's
// ranges.
func (v *verifier) literals() { v.instrs(v.literal) }

func (v *verifier) literal(in *Instr) {
	bad := func(format string, args ...any) { v.errorf(KindLiteral, in.Pos, in.Op.String(), format, args...) }
	last := func() (int64, bool) { // the last operand, if it is constant
		if n := len(in.Args); n > 0 && in.Args[n-1].Const {
			return int64(in.Args[n-1].Bits), true
		}
		return 0, false
	}
	switch in.Op {
	case OpBulkG2S:
		if n, ok := last(); ok && (n <= 0 || n%16 != 0 || n >= 1<<20) {
			bad("copies %d bytes, want a positive multiple of 16 below 2^20", n)
		}
	case OpMBarInit:
		if n, ok := last(); ok && (n <= 0 || n >= 1<<20) {
			bad("counts %d arrivals a phase, want 1 to 2^20-1", n)
		}
	case OpMBarArriveN:
		if n, ok := last(); ok && (n <= 0 || n >= 1<<20) {
			bad("arrives %d times, want 1 to 2^20-1", n)
		}
	case OpMBarExpect:
		if n, ok := last(); ok && (n < 0 || n >= 1<<20) {
			bad("expects %d bytes, want fewer than 2^20", n)
		}
	case OpWaitMBar, OpMBarTest:
		if len(in.Args) > 0 && in.Args[0].Const && in.Args[0].Bits > 1 {
			bad("waits for parity %d, want 0 or 1", int64(in.Args[0].Bits))
		}
	case OpMBarArriveAt:
		if n, ok := last(); ok && n >= int64(max(v.k.ClusterSize, 1)) {
			bad("arrives at CTA %d of a cluster of %d", n, max(v.k.ClusterSize, 1))
		}
	case OpTensorG2S:
		if m := in.Attr.Imm; m>>max(v.k.ClusterSize, 1) != 0 {
			bad("copies into the CTAs of mask %#x of a cluster of %d", m, max(v.k.ClusterSize, 1))
		}
	case OpDiv, OpRem:
		if n, ok := last(); ok && n == 0 && in.Args[0].Type.IsInt() {
			bad("divides by the constant 0")
		}
	case OpShflXor, OpShflUp, OpShflDown:
		if n, ok := last(); ok && (n < 0 || n > 31) {
			bad("moves by %d lanes, want 0 to 31", n)
		}
	case OpNanosleep:
		if n, ok := last(); ok && n > 1e6 {
			bad("sleeps %d ns, the hardware's limit is 1000000", n)
		}
	case OpLop3:
		if s := in.Attr.Imm; s < 0 || s > 0xff {
			bad("has table 0x%x, want 8 bits", s)
		}
	case OpPrmt:
		if s := in.Attr.Imm; s < 0 || s > 0xffff {
			bad("has selector 0x%x, want 16 bits", s)
		}
	}
	if in.Attr.Lanes > 1 && in.Op != OpLd && in.Op != OpSt {
		bad("moves %d elements at once; only ld and st have vectors", in.Attr.Lanes)
	}
}
