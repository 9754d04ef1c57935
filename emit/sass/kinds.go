package sass

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Kinds that stand for themselves; those of accesses, fences and barriers have scope, width or number behind them.
const (
	kindExit      = "exit"
	kindInval     = "drop L1 lines"
	kindArrive    = "mbarrier arrive"
	kindExpect    = "mbarrier expect"
	kindInit      = "mbarrier init"
	kindTry       = "mbarrier try_wait"
	kindTest      = "mbarrier test_wait"
	kindBulk      = "bulk copy"
	kindTensor    = "tensor copy"
	kindAsync     = "cp.async"
	kindCommit    = "cp.async commit"
	kindClusterIn = "cluster arrive"
	kindCluster   = "cluster wait"
	kindGroup     = "wgmma fence"
	kindWGMMA     = "wgmma"
	kindRegisters = "setmaxnreg"
	kindGridWait  = "griddepcontrol wait"
	kindGridGo    = "griddepcontrol launch"
)

// The plain accesses, by space.
const (
	plainLoad        = "load of global"
	plainStore       = "store to global"
	plainSharedLoad  = "load of shared"
	plainSharedStore = "store to shared"
)

func isPlain(kind string) bool {
	switch kind {
	case plainLoad, plainStore, plainSharedLoad, plainSharedStore:
		return true
	}
	return false
}

// lets says whether plain accesses to a space may be exchanged with an event. Strong accesses order none to other
// places: what does are the fences and dropped lines beside them, which an acquire of the CTA's scope has not: its
// accesses are exchanged with none. A proxy fence of one space orders no accesses to the other.
func lets(event, space string) bool {
	for _, what := range []string{"ld", "st", "rmw"} {
		if strings.HasPrefix(event, what+".") && !strings.HasPrefix(event, what+".cta.") ||
			strings.HasPrefix(event, what+" of shared.") {
			return true
		}
	}
	if event == kindInit && space == "global" {
		return true // a write of shared memory, which only what comes behind it orders
	}
	return event == proxyFence(ir.FenceGlobal) && space == "shared" || event == proxyFence(ir.FenceShared) &&
		space == "global"
}

func access(what string, s ir.Scope, bits int) string { return fmt.Sprintf("%s.%s.%d", what, s, bits) }

func copyWait(groups int) string { return fmt.Sprintf("cp.async wait %d", groups) }

func membar(s ir.Scope) string { return "membar." + s.String() }

func proxyFence(space int64) string {
	return "proxy fence of " + [...]string{"all", "global", "shared"}[space]
}

// asWritten are the items of an instruction in PTX, where ptxas has neither added nor left out one, and where a fence
// says whether it is sequentially consistent.
func asWritten(in *ir.Instr, seq []item) []item {
	switch {
	case in.Op == ir.OpWGMMAFence:
		return []item{{kind: kindGroup}}
	case in.Op == ir.OpWGMMA:
		return seq[1:]
	case in.Op == ir.OpFence && in.Attr.Order == ir.SeqCst:
		return append([]item{{kind: "fence.sc." + in.Attr.Scope.String()}}, seq[1:]...)
	}
	return seq
}

// items are the machine instructions that an instruction becomes, those apart that synchronise nothing. It is an error
// where this package does not know them.
func items(in *ir.Instr) ([]item, error) {
	one := func(kind string) ([]item, error) { return []item{{kind: kind}}, nil }
	switch in.Op {
	case ir.OpLd, ir.OpSt:
		return ordered(in), nil
	case ir.OpLdMatrix:
		return one(plainSharedLoad)
	case ir.OpAtomAdd, ir.OpAtomMax, ir.OpAtomMin, ir.OpAtomOr, ir.OpAtomExch, ir.OpAtomCAS, ir.OpRedAdd:
		return ordered(in), nil
	case ir.OpBulkG2S:
		return one(kindBulk)
	case ir.OpTensorG2S:
		return one(kindTensor)
	case ir.OpCopyAsync:
		return one(kindAsync)
	case ir.OpCopyCommit:
		return one(kindCommit)
	case ir.OpCopyWait:
		return one(copyWait(in.Attr.N))
	case ir.OpBarCTA:
		return one("bar.sync 0")
	case ir.OpBarCluster:
		return []item{{kind: membar(ir.GPU)}, {kind: kindClusterIn}, {kind: kindCluster}, {kind: kindInval}}, nil
	case ir.OpBarSync:
		return one(fmt.Sprintf("bar.sync %d of %d", in.Attr.Imm, in.Attr.N))
	case ir.OpBarArrive:
		return one(fmt.Sprintf("bar.arrive %d of %d", in.Attr.Imm, in.Attr.N))
	case ir.OpFence:
		if in.Attr.Scope == ir.CTA {
			return one(membar(ir.CTA))
		}
		return []item{{kind: membar(in.Attr.Scope)}, {kind: kindInval}}, nil
	case ir.OpFenceProxy:
		if in.Attr.Imm == ir.FenceAll {
			return []item{{kind: membar(ir.GPU)}, {kind: proxyFence(ir.FenceShared)}}, nil
		}
		return one(proxyFence(in.Attr.Imm))
	case ir.OpMBarInit:
		return one(kindInit)
	case ir.OpMBarArrive, ir.OpMBarArriveN, ir.OpMBarArriveAt:
		return one(kindArrive)
	case ir.OpMBarExpect:
		return one(kindExpect)
	case ir.OpMBarTest:
		return one(kindTest)
	case ir.OpWGMMAFence:
		return []item{{kindGroup, true}}, nil
	case ir.OpWGMMA:
		return []item{{kindGroup, true}, {kindWGMMA, false}}, nil
	case ir.OpWGMMAWait:
		return one(fmt.Sprintf("wgmma wait %d", in.Attr.N))
	case ir.OpSetMaxReg:
		return one(kindRegisters)
	case ir.OpGridWait:
		return one(kindGridWait)
	case ir.OpGridLaunch:
		return one(kindGridGo)
	case ir.OpSyncWarp, ir.OpFenceMBar, ir.OpWGMMACommit, ir.OpNanosleep, ir.OpAssert, ir.OpVar, ir.OpSet, ir.OpGet:
		return nil, nil // no instruction of their own, or none that can be told from others
	}
	if e := in.Op.Info().Effect; e == ir.Writes || e == ir.Synchro {
		return nil, fmt.Errorf("%s at %s: what it becomes in machine code is not known here; give it a case in emit/sass",
			in.Op, in.Pos.Line)
	}
	return nil, nil
}

// ordered is an access with what its order adds: a fence before a release, dropped lines of L1 behind an acquire.
func ordered(in *ir.Instr) []item {
	a, shared := in.Attr, in.Mem[0].Buf.Space == ir.Shared
	bits := 8 * in.T.Size() * max(a.Lanes, 1)
	var it item
	switch {
	case a.Hint == ir.NonCoherent:
		return nil // reads what nothing writes
	case in.Op == ir.OpLd && shared:
		return []item{{kind: plainSharedLoad}}
	case in.Op == ir.OpSt && shared:
		return []item{{kind: plainSharedStore}}
	case in.Op == ir.OpLd && a.Order == ir.Weak:
		return []item{{kind: plainLoad}}
	case in.Op == ir.OpSt && a.Order == ir.Weak:
		return []item{{kind: plainStore}}
	case in.Op == ir.OpLd:
		it.kind = access("ld", strong(a), bits)
	case in.Op == ir.OpSt:
		it.kind = access("st", strong(a), bits)
	default:
		it.kind = access("rmw", strong(a), bits)
	}
	if shared {
		it.kind = strings.Replace(it.kind, ".", " of shared.", 1)
	}
	seq := []item{it}
	if a.Order == ir.Release || a.Order == ir.AcqRel {
		seq = append([]item{{kind: membar(a.Scope)}}, seq...)
	}
	if (a.Order == ir.Acquire || a.Order == ir.AcqRel) && a.Scope > ir.CTA {
		seq = append(seq, item{kind: kindInval})
	}
	return seq
}

// strong is the scope that an ordered access has in machine code.
func strong(a ir.Attr) ir.Scope {
	if a.Order == ir.Volatile {
		return ir.Sys
	}
	return a.Scope
}

// pollKind is what a wait repeats.
func pollKind(in *ir.Instr) string {
	switch in.Op {
	case ir.OpWaitMBar:
		return kindTry
	case ir.OpWaitTag:
		return access("ld", in.Attr.Scope, 128)
	}
	return access("ld", strong(in.Attr), 8*in.T.Size())
}
