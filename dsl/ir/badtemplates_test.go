package ir_test

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// Templates with mistakes, one each unless said otherwise. The refusals are
// goldens in testdata/refusals.txt, with the lines of this file and of the
// table that calls them.

type kern = *dsl.Kernel

func words(k kern) dsl.Buf[dsl.U32] { return dsl.Global[dsl.U32](k, "words", 64) }

// sink uses a value.
func sink(k kern, vs ...u32) {
	out := dsl.Global[dsl.U32](k, "sink", 64)
	for i, v := range vs {
		out.Store(dsl.At(i), v)
	}
}

func laneBranch(k kern, body func()) { k.If(k.Lane().LtC(4), body) }

func warpBranch(k kern, body func()) { k.If(k.Warp().EqC(0), body) }

func inRole(k kern, first, end int, body func()) {
	k.Roles(dsl.Role{Name: "consumer", First: first, End: end, Body: body})
}

// Values and variables.

func valueLeavesLoop(k kern) {
	var last u32
	k.For(k.U32(0), k.U32(4), func(i u32) { last = i.AddC(1) })
	sink(k, last)
}

func indexLeavesLoop(k kern) {
	var last u32
	k.For(k.U32(0), k.U32(4), func(i u32) { last = i })
	sink(k, last)
}

func valueLeavesIf(k kern) {
	var x u32
	laneBranch(k, func() { x = k.CTA().AddC(1) })
	sink(k, x)
}

func valueLeavesThenForElse(k kern) {
	var x u32
	k.IfElse(k.Lane().LtC(4), func() { x = k.CTA().AddC(1) }, func() { sink(k, x) })
}

func valueLeavesRole(k kern) {
	var x u32
	inRole(k, 0, 2, func() { x = k.Lane().AddC(1) })
	sink(k, x)
}

func variableLeavesIf(k kern) {
	var x *dsl.Var[dsl.U32]
	laneBranch(k, func() { x = dsl.NewVar(k.U32(0), "count") })
	x.Set(k.Lane())
	sink(k, x.Get())
}

func valueOfAnotherKernel(k kern) {
	other := dsl.New("other", dsl.Options{Warps: 1})
	sink(k, k.Lane(), other.Lane())
}

func bufferOfAnotherKernel(k kern) {
	other := dsl.New("other", dsl.Options{Warps: 1})
	dst, src, bars := dsl.Shared[dsl.U32](k, "dst", 64), words(other), dsl.NewMBars(k, "bars", 1)
	bars.Init(dsl.At(0), k.U32(1))
	dsl.BulkCopy(dst, nil, src, nil, k.U32(64), bars, nil)
}

func unusedValue(k kern) { k.Lane().MulC(4).AddC(1).Named("column") }

func unusedReduction(k kern) { dsl.WarpMax(k.Lane()) }

// Control.

func shuffleInLaneBranch(k kern) {
	laneBranch(k, func() { sink(k, dsl.ShflXor(k.Lane(), 1)) })
}

func shuffleInLaneLoop(k kern) {
	x := dsl.NewVar(k.U32(0), "x")
	k.ForStep(k.Lane(), k.U32(100), 32, func(i u32) { x.Set(x.Get().Add(dsl.WarpSum(i))) })
	sink(k, x.Get())
}

func matrixInLoadedLoop(k kern) {
	tile, n := dsl.Shared[dsl.BF16](k, "tile", 256), words(k).Load(dsl.At(3)).Named("n")
	k.For(k.U32(0), n, func(i u32) {
		a := dsl.LoadMatrix(tile, k.Lane().MulC(8), false)
		sink(k, dsl.Bits[dsl.U32](a[0]))
	})
}

func voteUnderVariable(k kern) {
	stage := dsl.NewVar(k.U32(0), "stage")
	laneBranch(k, func() { stage.Set(k.U32(1)) })
	k.If(stage.Get().EqC(0), func() { k.Assert(dsl.All(k.Lane().LtC(32)), "small") })
}

func barrierInLaneBranch(k kern) { laneBranch(k, k.Barrier) }

func barrierInWarpBranch(k kern) { warpBranch(k, k.Barrier) }

func barrierInElse(k kern) {
	k.IfElse(k.Warp().EqC(0), func() { sink(k, k.Lane()) }, k.Barrier)
}

func barrierInLoadedLoop(k kern) {
	k.For(k.U32(0), words(k).Load(nil), func(u32) { k.Barrier() })
}

func barrierInRole(k kern) { inRole(k, 0, 2, k.Barrier) }

func namedBarrierInWarpBranch(k kern) {
	inRole(k, 0, 2, func() { warpBranch(k, func() { k.NamedBarrier(1, 2) }) })
}

func namedArriveInLaneBranch(k kern) { laneBranch(k, func() { k.NamedArrive(1, 4) }) }

func rolesInBranch(k kern) { warpBranch(k, func() { inRole(k, 0, 1, k.SyncWarp) }) }

func rolesInRole(k kern) { inRole(k, 0, 2, func() { inRole(k, 0, 1, k.SyncWarp) }) }

// Barriers, roles, mbarriers.

func namedBarrierOfTooManyWarps(k kern) { k.NamedBarrier(1, 5) }

func namedBarrierOfTooFewWarps(k kern) { inRole(k, 1, 4, func() { k.NamedBarrier(1, 2) }) }

func namedBarrierZero(k kern) { k.NamedBarrier(0, 4) }

func emptyRole(k kern) { inRole(k, 2, 2, k.SyncWarp) }

func roleBeyondCTA(k kern) { inRole(k, 3, 6, k.SyncWarp) }

func overlappingRoles(k kern) {
	k.Roles(dsl.Role{Name: "producer", First: 0, End: 2, Body: k.SyncWarp},
		dsl.Role{Name: "consumer", First: 1, End: 4, Body: k.SyncWarp})
}

func mbarrierNeverInitialised(k kern) {
	full := dsl.NewMBars(k, "full", 2)
	full.Wait(dsl.At(0), k.U32(0))
	full.Wait(dsl.At(1), k.U32(0))
}

func mbarrierLiterals(k kern) { // four mistakes
	full := dsl.NewMBars(k, "full", 1)
	full.Init(nil, k.U32(0))
	full.ArriveN(nil, k.U32(0))
	full.ArriveExpect(nil, k.U32(1<<20))
	full.Wait(nil, k.U32(2))
}

func bulkCopies(k kern) { // six mistakes
	dst, src, full := dsl.Shared[dsl.U32](k, "dst", 64), words(k), dsl.NewMBars(k, "full", 1)
	full.Init(nil, k.U32(1))
	dsl.BulkCopy(dst, nil, src, nil, k.U32(24), full, nil)
	dsl.BulkCopy(dst, nil, src, nil, k.U32(0), full, nil)
	dsl.BulkCopy(dst, nil, src, nil, k.U32(1<<20), full, nil)
	dsl.BulkCopy(dst, dsl.At(2), src, nil, k.U32(16), full, nil)
	dsl.BulkCopy(dst, nil, src, dsl.At(52), k.U32(64), full, nil)
	dsl.BulkCopy(dst, nil, src, nil, k.U32(16), full, dsl.At(1))
}

// Memory.

func storeToReadOnly(k kern) {
	x := dsl.Global[dsl.U32](k, "weights", 8, dsl.ReadOnly())
	x.Store(dsl.At(0), k.U32(1))
	dsl.ReduceAdd(x, dsl.At(0), k.U32(1), dsl.Relaxed(dsl.GPUScope))
}

func indexOutOfBounds(k kern) { // four mistakes
	x, odd := words(k), dsl.Global[dsl.U32](k, "odd", 63)
	sink(k, x.Load(dsl.At(64)), x.Load(dsl.At(-1)), x.LoadN(dsl.At(62), 4)[0], odd.LoadN(dsl.At(60), 4)[0])
}

func misalignedVector(k kern) {
	x := dsl.Shared[dsl.U32](k, "x", 64)
	x.Store(k.Lane(), k.Lane())
	sink(k, x.LoadN(dsl.At(3), 2)...)
}

func sharedOverBudget(k kern) {
	dsl.Shared[dsl.B128](k, "ring", 100)
	dsl.Shared[dsl.F32](k, "x", 256)
}

func sharedOverlap(k kern) {
	dsl.Shared[dsl.F32](k, "a", 64, dsl.PlaceAt(0))
	dsl.Shared[dsl.F32](k, "b", 64, dsl.PlaceAt(128))
	dsl.Shared[dsl.F32](k, "c", 64, dsl.PlaceAt(514))
}

func sharedReadOnlyOrEmpty(k kern) {
	dsl.Shared[dsl.F32](k, "a", 64, dsl.ReadOnly())
	dsl.Shared[dsl.F32](k, "b", 0)
}

func accessForms(k kern) { // six mistakes
	x := words(k)
	s := dsl.Shared[dsl.U32](k, "s", 8)
	sink(k, x.LoadN(nil, 3)[0], x.Load(nil, dsl.Release(dsl.GPUScope)), x.Load(nil, dsl.Acquire(dsl.WarpScope)),
		x.Load(nil, dsl.CacheHint(ir.NonCoherent)), s.Load(nil, dsl.CacheHint(ir.EvictLast)))
	x.StoreN(nil, []u32{k.U32(0), k.U32(0), k.U32(0), k.U32(0), k.U32(0)})
}

// Arithmetic.

func typesWithoutForm(k kern) { // four mistakes
	b := dsl.Global[dsl.BF16](k, "b", 8).Load(nil)
	sink(k, dsl.Bits[dsl.U32](dsl.Cast[dsl.F32](b.Add(b))), dsl.Cast[dsl.U32](b), dsl.Bits[dsl.U32](b))
	k.If(b.Lt(b), k.SyncWarp)
}

func literalsOutOfRange(k kern) { // six mistakes
	a := k.Lane()
	sink(k, a.DivC(0), a.Rem(k.U32(0)), dsl.ShflXor(a, 32), a.AddC(1<<32))
	k.Nanosleep(k.U32(2e6))
	k.ForStep(k.U32(0), a, 0, func(i u32) { sink(k, i) })
}

// several is several mistakes of the finished program.
func several(k kern) {
	barrierInRole(k)
	valueLeavesIf(k)
	unusedValue(k)
	barrierInWarpBranch(k)
}

// buildAndProgram has mistakes of building and of the program; what may
// follow from the former (an mbarrier left without its init) is not reported.
func buildAndProgram(k kern) {
	full := dsl.NewMBars(k, "full", 1)
	dsl.Global[dsl.U32](k, "full", 1)
	full.Wait(nil, k.U32(0))
	dsl.Shared[dsl.U32](k, "too long", 1000)
	barrierInLaneBranch(k)
}
