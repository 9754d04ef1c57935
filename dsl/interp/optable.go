package interp

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/ir"
)

// A binder chooses the function that executes an instruction, by its types.
type binder func(s *ir.Instr) (stepFn, error)

// fixedStep always chooses fn.
func fixedStep(fn stepFn) binder {
	return func(*ir.Instr) (stepFn, error) { return fn, nil }
}

// byType chooses by the first argument's type.
func byType(fns map[ir.Type]stepFn) binder {
	return func(s *ir.Instr) (stepFn, error) { return pick(fns, s.Args[0].Type) }
}

func pick(fns map[ir.Type]stepFn, t ir.Type) (stepFn, error) {
	if fn, ok := fns[t]; ok {
		return fn, nil
	}
	return nil, fmt.Errorf("has no meaning for %s", t)
}

// bind is the function for s; an op without a row is our own mistake.
func bind(s *ir.Instr) (stepFn, error) {
	b, ok := meanings()[s.Op]
	if !ok {
		panic(fmt.Sprintf("BUG: op %s has no meaning", s.Op))
	}
	return b(s)
}

// OpsWithoutMeaning lists the ops that have no row here; there must be none.
func OpsWithoutMeaning() []ir.Op {
	var out []ir.Op
	for _, op := range ir.AllOps() {
		if meanings()[op] == nil {
			out = append(out, op)
		}
	}
	return out
}

// opMeanings is the table of meanings, one row an op; it is never changed.
var opMeanings = buildMeanings()

func meanings() map[ir.Op]binder { return opMeanings }

func buildMeanings() map[ir.Op]binder {
	t := map[ir.Op]binder{}
	for _, part := range []map[ir.Op]binder{arithmeticRows(), choiceRows(), machineRows(), memoryRows(), syncRows(),
		warpRows()} {
		for op, b := range part {
			t[op] = b
		}
	}
	return t
}

func choiceRows() map[ir.Op]binder {
	return map[ir.Op]binder{
		ir.OpEq:     compare(func(c int) bool { return c == 0 }),
		ir.OpNe:     compare(func(c int) bool { return c != 0 }),
		ir.OpLt:     compare(func(c int) bool { return c == -1 }),
		ir.OpLe:     compare(func(c int) bool { return c == -1 || c == 0 }),
		ir.OpGt:     compare(func(c int) bool { return c == 1 }),
		ir.OpGe:     compare(func(c int) bool { return c == 1 || c == 0 }),
		ir.OpSelect: selection,
		ir.OpCvt:    conversion,
		ir.OpBits:   fixedStep(stepCopy),
		ir.OpPack:   packing,
		ir.OpUnpack: unpacking,
		ir.OpSplit:  fixedStep(stepSplit),
		ir.OpJoin:   fixedStep(stepJoin),
		ir.OpPrmt:   fixedStep(stepPrmt),
		ir.OpPrmtBy: fixedStep(stepPrmtBy),
		ir.OpLop3:   fixedStep(stepLop3),
		ir.OpDot2:   fixedStep(stepDot2),
	}
}

func machineRows() map[ir.Op]binder {
	return map[ir.Op]binder{
		ir.OpLane:        perLane(func(m *machine, w *warp, l int) uint64 { return uint64(l) }),
		ir.OpWarp:        perLane(func(m *machine, w *warp, l int) uint64 { return uint64(w.wi) }),
		ir.OpTid:         perLane(func(m *machine, w *warp, l int) uint64 { return uint64(int(w.wi)*32 + l) }),
		ir.OpCTA:         perLane(func(m *machine, w *warp, l int) uint64 { return uint64(w.cta.id) }),
		ir.OpGrid:        perLane(func(m *machine, w *warp, l int) uint64 { return uint64(len(m.ctas)) }),
		ir.OpClusterRank: perLane(func(m *machine, w *warp, l int) uint64 { return uint64(w.cta.id % m.clusterSize()) }),
		ir.OpSMID:        perLane(func(m *machine, w *warp, l int) uint64 { return uint64(w.cta.id) }),
		ir.OpClock:       perLane(func(m *machine, w *warp, l int) uint64 { return uint64(m.steps) }),
		ir.OpGlobalTimer: perLane(func(m *machine, w *warp, l int) uint64 { return uint64(m.since + m.steps) }),
		ir.OpParam:       fixedStep(stepParam),
		ir.OpVar:         setting,
		ir.OpGet:         getting,
		ir.OpSet:         setting,
	}
}

func memoryRows() map[ir.Op]binder {
	return map[ir.Op]binder{
		ir.OpLd:        loading,
		ir.OpSt:        storing,
		ir.OpAtomAdd:   atomics(func(old, a, b uint64) uint64 { return old + a }),
		ir.OpAtomMax:   atomicMinMax(1),
		ir.OpAtomMin:   atomicMinMax(-1),
		ir.OpAtomOr:    atomics(func(old, a, b uint64) uint64 { return old | a }),
		ir.OpAtomExch:  atomics(func(old, a, b uint64) uint64 { return a }),
		ir.OpAtomCAS:   fixedStep(stepCAS),
		ir.OpRedAdd:    reduceAdd,
		ir.OpLdMatrix:  fixedStep(stepLdMatrix),
		ir.OpBulkG2S:   fixedStep(stepBulk),
		ir.OpTensorG2S: fixedStep(stepTensor),
		ir.OpCopyAsync: fixedStep(stepCopyAsync),
	}
}

func syncRows() map[ir.Op]binder {
	return map[ir.Op]binder{
		ir.OpBarCTA:       fixedStep(stepBarCTA),
		ir.OpBarCluster:   fixedStep(stepBarCluster),
		ir.OpBarSync:      fixedStep(stepBarSync),
		ir.OpBarArrive:    fixedStep(stepBarArrive),
		ir.OpSyncWarp:     fixedStep(stepSyncWarp),
		ir.OpFence:        fixedStep(stepFence),
		ir.OpFenceProxy:   fixedStep(stepFenceProxy),
		ir.OpCopyCommit:   fixedStep(stepCopyCommit),
		ir.OpCopyWait:     fixedStep(stepCopyWait),
		ir.OpFenceMBar:    fixedStep(stepFenceMBar),
		ir.OpMBarInit:     fixedStep(stepMBarInit),
		ir.OpMBarArrive:   fixedStep(stepMBarArrive),
		ir.OpMBarArriveN:  fixedStep(stepMBarArriveN),
		ir.OpMBarArriveAt: fixedStep(stepMBarArriveAt),
		ir.OpMBarExpect:   fixedStep(stepMBarExpect),
		ir.OpMBarTest:     fixedStep(stepMBarTest),
		ir.OpWaitMBar:     fixedStep(stepWaitMBar),
		ir.OpWaitMem:      fixedStep(stepWaitMem),
		ir.OpWaitTag:      fixedStep(stepWaitTag),
		ir.OpNanosleep:    fixedStep(func(*machine, *warp, *inst) {}),
		ir.OpGridWait:     fixedStep(stepGridWait),
		ir.OpGridLaunch:   fixedStep(stepGridLaunch),
	}
}

func warpRows() map[ir.Op]binder {
	return map[ir.Op]binder{
		ir.OpShflIdx:     shuffle(func(l int, x uint32) int { return int(x & 31) }),
		ir.OpShflXor:     shuffle(func(l int, x uint32) int { return l ^ int(x&31) }),
		ir.OpShflUp:      shuffle(func(l int, x uint32) int { return l - int(x&31) }),
		ir.OpShflDown:    shuffle(func(l int, x uint32) int { return l + int(x&31) }),
		ir.OpVoteAll:     vote(func(b uint32) uint64 { return bit(b == fullMask) }),
		ir.OpVoteAny:     vote(func(b uint32) uint64 { return bit(b != 0) }),
		ir.OpBallot:      vote(func(b uint32) uint64 { return uint64(b) }),
		ir.OpReduxMax:    redux,
		ir.OpReduxAdd:    redux,
		ir.OpMMA:         matrixProduct,
		ir.OpIMMA:        byteProduct,
		ir.OpElect:       fixedStep(stepElect),
		ir.OpWGMMA:       wgmma,
		ir.OpWGMMAFence:  fixedStep(stepWGMMAFence),
		ir.OpWGMMACommit: fixedStep(stepWGMMACommit),
		ir.OpWGMMAWait:   fixedStep(stepWGMMAWait),
		ir.OpSetMaxReg:   fixedStep(stepSetMaxReg),
		ir.OpUniform:     fixedStep(stepUniform),
		ir.OpAssert:      fixedStep(stepAssert),
	}
}
