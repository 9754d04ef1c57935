package emit

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/ir"
)

// row says how an op is spelled. Exactly one of its functions is set.
type row struct {
	expr func(p *printer, in *ir.Instr) expr        // the result, the vector of results, or the statement without ";"
	each func(p *printer, in *ir.Instr, i int) expr // result i on its own
	stmt func(p *printer, in *ir.Instr)             // a declaration or assignment
}

// ops is the table of spellings, one row per op of the IR.
func ops() (t [256]row) {
	arithmeticOps(&t)
	registerOps(&t)
	memoryOps(&t)
	synchroOps(&t)
	warpOps(&t)
	groupOps(&t)

	// These print nothing: a uniform value is its operand, an assertion is the executor's.
	t[ir.OpUniform] = row{stmt: func(*printer, *ir.Instr) {}}
	t[ir.OpAssert] = row{stmt: func(*printer, *ir.Instr) {}}
	return t
}

func arithmeticOps(t *[256]row) {
	t[ir.OpAdd] = row{expr: sum("+", precAdd)}
	t[ir.OpSub] = row{expr: sum("-", precAdd)}
	t[ir.OpMul] = row{expr: product}
	t[ir.OpMulHi] = row{expr: callOf("__umulhi")}
	t[ir.OpDiv] = row{expr: quotient}
	t[ir.OpRem] = row{expr: binary("%", precMul)}
	t[ir.OpMin] = row{expr: byFloat("fminf", "min")}
	t[ir.OpMax] = row{expr: byFloat("fmaxf", "max")}
	t[ir.OpNeg] = row{expr: negation}
	t[ir.OpAbs] = row{expr: magnitude}
	t[ir.OpFma] = row{expr: callOf("fmaf")}
	t[ir.OpAnd] = row{expr: logic("&", precAnd, "&&", precAndAnd)}
	t[ir.OpOr] = row{expr: logic("|", precOr, "||", precOrOr)}
	t[ir.OpXor] = row{expr: logic("^", precXor, "!=", precEq)}
	t[ir.OpNot] = row{expr: complement}
	t[ir.OpShl] = row{expr: shiftLeft}
	t[ir.OpShr] = row{expr: shiftRight}
	t[ir.OpExp2] = row{expr: helperCall("exp2")}
	t[ir.OpLog2] = row{expr: helperCall("log2")}
	t[ir.OpRcp] = row{expr: helperCall("rcp")}
	t[ir.OpRsqrt] = row{expr: helperCall("rsqrt")}
	t[ir.OpSqrt] = row{expr: callOf("__fsqrt_rn")}
	t[ir.OpSin] = row{expr: helperCall("sin")}
	t[ir.OpCos] = row{expr: helperCall("cos")}
	t[ir.OpTanh] = row{expr: helperCall("tanh")}
	t[ir.OpRint] = row{expr: callOf("rintf")}
	t[ir.OpFloor] = row{expr: callOf("floorf")}
	t[ir.OpOpaque] = row{expr: helperCall("opaque")}

	t[ir.OpEq] = row{expr: binary("==", precEq)}
	t[ir.OpNe] = row{expr: binary("!=", precEq)}
	t[ir.OpLt] = row{expr: binary("<", precRel)}
	t[ir.OpLe] = row{expr: binary("<=", precRel)}
	t[ir.OpGt] = row{expr: binary(">", precRel)}
	t[ir.OpGe] = row{expr: binary(">=", precRel)}
	t[ir.OpSelect] = row{expr: choice}

	t[ir.OpCvt] = row{expr: conversion}
	t[ir.OpBits] = row{expr: sameBits}
	t[ir.OpPack] = row{expr: packing}
	t[ir.OpUnpack] = row{each: unpacking}
	t[ir.OpSplit] = row{each: func(p *printer, in *ir.Instr,
		i int) expr {
		return atom(p.arg(in, 0).in(precAtom) + components[i])
	}}
	t[ir.OpJoin] = row{expr: callOf("make_uint4")}
	t[ir.OpPrmt] = row{expr: func(p *printer, in *ir.Instr) expr {
		return call(p.fixed("prmt"), append(p.texts(in), fmt.Sprintf("0x%04xu", uint16(in.Attr.Imm)))...)
	}}
	t[ir.OpLop3] = row{expr: func(p *printer, in *ir.Instr) expr {
		return call(fmt.Sprintf("%s<0x%02x>", p.fixed("lop3"), uint8(in.Attr.Imm)), p.texts(in)...)
	}}
	t[ir.OpDot2] = row{expr: helperCall("dp2a")}
	t[ir.OpPrmtBy] = row{expr: func(p *printer, in *ir.Instr) expr { return call(p.fixed("prmt"), p.texts(in)...) }}
}

func registerOps(t *[256]row) {
	t[ir.OpLane] = row{expr: text("lane")}
	t[ir.OpWarp] = row{expr: text("warp")}
	t[ir.OpTid] = row{expr: text("tid")}
	t[ir.OpCTA] = row{expr: text("cta")}
	t[ir.OpGrid] = row{expr: text("grid")}
	t[ir.OpSMID] = row{expr: helperCall("smid")}
	t[ir.OpClock] = row{expr: helperCall("clock")}
	t[ir.OpGlobalTimer] = row{expr: helperCall("globaltimer")}
	t[ir.OpParam] = row{expr: func(p *printer, in *ir.Instr) expr { return atom(p.params[in.Attr.Param]) }}
	t[ir.OpVar] = row{stmt: declareVar}
	t[ir.OpGet] = row{expr: func(p *printer, in *ir.Instr) expr { return atom(p.variable(in)) }}
	t[ir.OpSet] = row{stmt: func(p *printer,
		in *ir.Instr) {
		p.line(in.Pos, "%s = %s;", p.variable(in), p.bare(in.Args[0]))
	}}
}

func memoryOps(t *[256]row) {
	t[ir.OpLd] = row{expr: spellLd}
	t[ir.OpSt] = row{expr: spellSt}
	t[ir.OpAtomAdd] = atomicOp("atom", "add")
	t[ir.OpAtomMax] = atomicOp("atom", "max")
	t[ir.OpAtomMin] = atomicOp("atom", "min")
	t[ir.OpAtomOr] = atomicOp("atom", "or")
	t[ir.OpAtomExch] = atomicOp("atom", "exch")
	t[ir.OpAtomCAS] = atomicOp("atom", "cas")
	t[ir.OpRedAdd] = atomicOp("red", "add")
	t[ir.OpLdMatrix] = row{expr: func(p *printer, in *ir.Instr) expr {
		name := "ldmatrix"
		if in.Attr.Imm == 1 {
			name = "ldmatrix_trans"
		}
		return call(p.fixed(name), p.address(in.Mem[0]))
	}}
	t[ir.OpBulkG2S] = row{expr: spellBulk}
	t[ir.OpCopyAsync] = row{expr: func(p *printer, in *ir.Instr) expr {
		return call(p.fixed("copy_async"), p.address(in.Mem[0]), p.address(in.Mem[1]))
	}}
	t[ir.OpCopyCommit] = row{expr: helperCall("copy_commit")}
	t[ir.OpCopyWait] = row{expr: withNumber("copy_wait")}
}

func synchroOps(t *[256]row) {
	t[ir.OpBarCTA] = row{expr: text("__syncthreads()")}
	t[ir.OpBarSync] = row{expr: named("bar_sync")}
	t[ir.OpBarArrive] = row{expr: named("bar_arrive")}
	t[ir.OpSyncWarp] = row{expr: text("__syncwarp()")}
	t[ir.OpFence] = row{expr: func(p *printer, in *ir.Instr) expr {
		return spellFence(p, "fence"+qualifiers(in.Attr.Order, in.Attr.Scope),
			"Orders this thread's accesses before it against those after it")
	}}
	t[ir.OpFenceProxy] = row{expr: func(p *printer, in *ir.Instr) expr {
		space := map[int64]string{ir.FenceAll: "", ir.FenceGlobal: ".global", ir.FenceShared: ".shared::cta"}[in.Attr.Imm]
		return spellFence(p, "fence.proxy.async"+space, "Orders ordinary accesses against those of bulk copies")
	}}
	t[ir.OpFenceMBar] = row{expr: helperCall("fence_mbarrier_init")}
	t[ir.OpMBarInit] = row{expr: mbarrier("mbar_init")}
	t[ir.OpMBarArrive] = row{expr: mbarrier("mbar_arrive")}
	t[ir.OpMBarArriveN] = row{expr: mbarrier("mbar_arrive_n")}
	t[ir.OpMBarExpect] = row{expr: mbarrier("mbar_arrive_expect")}
	t[ir.OpMBarTest] = row{expr: mbarrier("mbar_test")}
	t[ir.OpWaitMBar] = row{expr: spellWaitMBar}
	t[ir.OpWaitMem] = row{expr: spellWaitMem}
	t[ir.OpWaitTag] = row{expr: spellWaitTag}
	t[ir.OpNanosleep] = row{expr: callOf("__nanosleep")}
	t[ir.OpGridWait] = row{expr: helperCall("wait_for_prior")}
	t[ir.OpGridLaunch] = row{expr: helperCall("launch_dependents")}
}

func warpOps(t *[256]row) {
	t[ir.OpShflIdx] = row{expr: collective("__shfl_sync")}
	t[ir.OpShflXor] = row{expr: collective("__shfl_xor_sync")}
	t[ir.OpShflUp] = row{expr: collective("__shfl_up_sync")}
	t[ir.OpShflDown] = row{expr: collective("__shfl_down_sync")}
	t[ir.OpVoteAll] = row{expr: collective("__all_sync")}
	t[ir.OpVoteAny] = row{expr: collective("__any_sync")}
	t[ir.OpBallot] = row{expr: collective("__ballot_sync")}
	t[ir.OpReduxMax] = row{expr: collective("__reduce_max_sync")}
	t[ir.OpReduxAdd] = row{expr: collective("__reduce_add_sync")}
	t[ir.OpMMA] = row{expr: matrixProduct}
	t[ir.OpIMMA] = row{expr: byteProduct}
}
