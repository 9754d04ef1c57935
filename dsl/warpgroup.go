package dsl

import "github.com/mkgen/mkgen/dsl/ir"

// Tile says how an operand of WGMMA lies in shared memory: see ir.Tile.
type Tile = ir.Tile

// WarpsPerGroup is the number of warps of a warpgroup; the first of them is a multiple of it.
const WarpsPerGroup = 4

// WGMMA adds A·B to the sums by the warpgroup's tensor core, asynchronously: A is 64×16, from element ai of a, B 16×N,
// its N columns stored as rows from element bi of b, both bf16 (P is BF16x2) or f16; of e4m3 (P is E4M3x2) A is 64×32
// and B 32×N, and the GPU keeps about 14 bits of a sum. N is 2·len(sums), 8 to 256. Warp w
// of the four holds rows 16w … 16w+15: with g = lane/4 and t = lane%4, sums 4j, 4j+1 are columns 8j+2t, 8j+2t+1 of row
// g, sums 4j+2, 4j+3 of row g+8. The next columns of K begin 32 bytes on in a row of the tile.
//
// WGMMAFence goes between other uses of the sums and the first WGMMA, WGMMACommit and WGMMAWait behind the last one.
// What ordinary stores wrote there needs FenceProxyAsyncShared before, and nothing may overwrite the operands until
// then.
func WGMMA[P Packed, A, B Elem](sums []*Var[F32], a Buf[A], ai Index, ta Tile, b Buf[B], bi Index, tb Tile) {
	in := &ir.Instr{Op: ir.OpWGMMA, T: typeOf[P](), Mem: append(a.addr(ai), b.addr(bi)...),
		Attr: ir.Attr{Vars: varsOf(sums), Tiles: []Tile{ta, tb}}}
	a.aligned(16)
	b.aligned(16)
	kern(a.k, b.k).emit(in)
}

// WGMMARegisters is WGMMA with A in variables, each warp's 16 rows as MMA wants them. They may be read, not set, until
// the wait.
func WGMMARegisters[P Pair, B Elem](sums []*Var[F32], a [4]*Var[P], b Buf[B], bi Index, tb Tile, o ...WGMMAOpt) {
	in := &ir.Instr{Op: ir.OpWGMMA, T: typeOf[P](), Mem: b.addr(bi),
		Attr: ir.Attr{Vars: append(varsOf(a[:]), varsOf(sums)...), Tiles: []Tile{tb}}}
	for _, x := range o {
		in.Attr.Imm |= int64(x)
	}
	b.aligned(16)
	kern(b.k).emit(in)
}

// WGMMAOpt says what becomes of the sums.
type WGMMAOpt int

// Overwrite sets the sums to the products, whatever is in them.
const Overwrite WGMMAOpt = 1

func varsOf[T Elem](xs []*Var[T]) []*ir.Var {
	out := make([]*ir.Var, len(xs))
	for i, x := range xs {
		out[i] = x.x
	}
	return out
}

// WGMMAFence orders the warp's accesses to registers before its WGMMAs behind it.
func (k *Kernel) WGMMAFence() { k.emit(&ir.Instr{Op: ir.OpWGMMAFence}) }

// WGMMACommit makes a group of the WGMMAs since the last one.
func (k *Kernel) WGMMACommit() { k.emit(&ir.Instr{Op: ir.OpWGMMACommit}) }

// WGMMAWait waits until at most pending (0 to 7) of the warp's groups are under way.
func (k *Kernel) WGMMAWait(pending int) {
	k.emit(&ir.Instr{Op: ir.OpWGMMAWait, Attr: ir.Attr{N: pending}})
}

// MoreRegisters gives the warpgroup's threads n registers each (a multiple of 8, 24 to 256), waiting until other
// warpgroups have given up as many.
func (k *Kernel) MoreRegisters(n int) {
	k.emit(&ir.Instr{Op: ir.OpSetMaxReg, Attr: ir.Attr{N: n, Imm: 1}})
}

// FewerRegisters leaves the warpgroup's threads n registers each.
func (k *Kernel) FewerRegisters(n int) {
	k.emit(&ir.Instr{Op: ir.OpSetMaxReg, Attr: ir.Attr{N: n}})
}

// Elect holds in one lane of the warp, always the same one.
func (k *Kernel) Elect() Pred { return opPred(k, &ir.Instr{Op: ir.OpElect}) }
