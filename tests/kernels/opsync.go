package kernels

import (
	"fmt"
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// bulkCopy moves 4 KiB into shared memory in two copies, uses the place again
// for two more, and reads what came.
func bulkCopy(r *rows) {
	k := r.k
	src := r.words("bulk_in", 9)
	stage := dsl.Shared[dsl.U32](k, "bulk_stage", 1024, dsl.Align(128))
	bar := dsl.NewMBars(k, "bulk_landed", 2)
	gate := dsl.NewMBars(k, "bulk_gate", 1)
	k.If(k.Tid().EqC(0), func() {
		bar.Init(dsl.At(0), k.U32(1))
		bar.Init(dsl.At(1), k.U32(1))
		gate.Init(dsl.At(0), k.U32(2*rowThreads/rowGrid))
		k.FenceMBarInit()
	})
	k.Barrier()
	base := k.CTA().MulC(1024).Named("base")
	read := func(round int) {
		r.put(ir.OpBulkG2S, "first half", stage.Load(k.Tid()))
		r.put(ir.OpBulkG2S, "second half", fold(stage.LoadN(k.Tid().MulC(4).AddC(512), 4)))
	}
	copies := func(from int) {
		for n, h := range []ir.Hint{ir.NoHint, ir.EvictFirst} {
			bar.ArriveExpect(dsl.At(n), k.U32(2048))
			dsl.BulkCopy(stage, dsl.At(512*n), src, base.AddC(from+512*n), k.U32(2048), bar, dsl.At(n), dsl.CacheHint(h))
		}
	}
	k.If(k.Tid().EqC(0), func() { copies(0) })
	bar.Wait(dsl.At(0), k.U32(0))
	bar.Wait(dsl.At(1), k.U32(0))
	read(0)
	// The stage is written again by the async proxy: every reader fences, then arrives.
	k.FenceProxyAsyncShared()
	gate.Arrive(dsl.At(0))
	gate.ArriveN(dsl.At(0), k.U32(1))
	k.If(k.Tid().EqC(0), func() {
		gate.Wait(dsl.At(0), k.U32(0))
		copies(64)
	})
	bar.Wait(dsl.At(0), k.U32(1))
	bar.Wait(dsl.At(1), k.U32(1))
	read(1)
	r.put(ir.OpMBarArrive, "gate passed", k.U32(1))
	r.putP(ir.OpMBarTest, "complete", bar.Test(dsl.At(0), k.U32(1)))
	r.putP(ir.OpMBarTest, "complete, the other parity", bar.Test(dsl.At(0), k.U32(0)))
	r.put(ir.OpMBarArriveN, "gate passed", k.U32(1))
	r.put(ir.OpMBarExpect, "bytes came", k.U32(1))
	r.put(ir.OpMBarInit, "done", k.U32(1))
	r.put(ir.OpFenceMBar, "done", k.U32(1))
	k.FenceProxyAsync()
	k.FenceProxyAsyncGlobal()
	r.put(ir.OpFenceProxy, "done", k.U32(1))
	r.bar = bar
}

// namedBarriers hands words from two warps to the other two and back.
func namedBarriers(r *rows) {
	k := r.k
	box := dsl.Shared[dsl.U32](k, "box", 64)
	back := dsl.Shared[dsl.U32](k, "box_back", 64)
	got := dsl.NewVar(k.U32(0), "got")
	k.Roles(
		dsl.Role{Name: "givers", First: 0, End: 2, Body: func() {
			box.Store(k.Tid(), r.u)
			k.NamedArrive(1, 4)
			k.NamedBarrier(2, 4)
			got.Set(back.Load(k.Tid()))
		}},
		dsl.Role{Name: "takers", First: 2, End: 4, Body: func() {
			k.NamedBarrier(1, 4)
			v := box.Load(k.Tid().SubC(64))
			back.Store(k.Tid().SubC(64), v.MulC(3))
			got.Set(v)
			k.NamedArrive(2, 4)
		}},
	)
	r.put(ir.OpBarSync, "words handed over", got.Get())
	r.put(ir.OpBarArrive, "words handed back", got.Get().AddC(1))
	k.Barrier()
	box.Store(k.Tid().AndC(63), k.Tid().AndC(63).MulC(7), dsl.Relaxed(dsl.CTAScope)) // two threads, one value
	k.Barrier()
	r.put(ir.OpBarCTA, "words of other warps", box.Load(k.Tid().XorC(33).AndC(63)))
	warp := dsl.Shared[dsl.U32](k, "warp_box", rowThreads/rowGrid)
	warp.Store(k.Tid(), r.v)
	k.SyncWarp()
	r.put(ir.OpSyncWarp, "words of other lanes", warp.Load(k.Tid().XorC(5)))
}

// waits holds a grid barrier and every kind of wait, each of which ends.
func waits(r *rows) {
	k := r.k
	counters := r.zeros("counters", 8)
	flag := r.words("flags", 1) // word 0 is 0, word 1 is not
	k.Barrier()
	k.If(k.Tid().EqC(0), func() {
		dsl.ReduceAdd(counters, dsl.At(0), k.U32(1), dsl.Release(dsl.GPUScope))
		dsl.WaitUntil(counters, dsl.At(0), dsl.GE, k.Grid(), dsl.Acquire(dsl.GPUScope))
	})
	k.Barrier()
	for n := range 4 {
		r.put([...]ir.Op{ir.OpRedAdd, ir.OpAtomMax, ir.OpAtomOr, ir.OpAtomAdd}[n], "all threads on one word",
			r.common.Load(dsl.At(n)))
	}
	sleep := func(a *ir.Attr) { a.Imm = 40 }
	dsl.WaitUntil(counters, dsl.At(0), dsl.EQ, k.Grid(), dsl.Relaxed(dsl.GPUScope))
	dsl.WaitUntil(counters, dsl.At(0), dsl.NE, k.U32(77), dsl.Volatile())
	dsl.WaitUntil(counters, dsl.At(0), dsl.GE, k.Grid().SubC(5), dsl.Acquire(dsl.SysScope), sleep) // wraps: below zero
	r.put(ir.OpWaitMem, "ended", k.U32(1))
	met := dsl.WaitUntilOr(counters, dsl.At(0), dsl.GE, k.Grid(), flag, dsl.At(0), dsl.Acquire(dsl.GPUScope))
	r.putP(ir.OpWaitMem, "condition met, flag not set", met)
	stopped := dsl.WaitUntilOr(counters, dsl.At(1), dsl.NE, k.U32(0), flag, dsl.At(1), dsl.Relaxed(dsl.GPUScope), sleep)
	r.putP(ir.OpWaitMem, "stopped by the flag", stopped)
	r.putP(ir.OpWaitMBar, "phase complete, flag not set", r.bar.WaitOr(dsl.At(0), k.U32(1), flag, dsl.At(0)))
	never := dsl.NewMBars(k, "never", 1)
	k.If(k.Tid().EqC(0), func() { never.Init(dsl.At(0), k.U32(1)) })
	k.Barrier()
	r.putP(ir.OpWaitMBar, "stopped by the flag", never.WaitOr(dsl.At(0), k.U32(0), flag, dsl.At(1)))
	taggedWaits(r, flag)
	notedWaits(r, counters, flag, never)
}

// taggedWaits are waits for 128 bits with a tag: given at once, and written by the
// CTA's last thread while the others poll.
func taggedWaits(r *rows, flag dsl.Buf[dsl.U32]) {
	k := r.k
	words := dsl.View[dsl.B128](r.zeros("tagged", 4*rowGrid))
	gpu := dsl.Relaxed(dsl.GPUScope)
	tag := k.CTA().AddC(7)
	given := dsl.Join(k.Tid(), k.U32(1), k.U32(2), tag)
	for i, v := range dsl.Split(dsl.WaitTag(words, k.CTA(), given, tag, gpu)) {
		r.put(ir.OpWaitTag, fmt.Sprintf("given, word %d", i), v)
	}
	first := words.Load(k.CTA(), gpu)
	k.If(k.Tid().EqC(k.Warps()*dsl.WarpSize-1), func() {
		words.Store(k.CTA(), dsl.Join(k.CTA().AddC(100), k.U32(200), k.U32(300), tag), gpu)
	})
	for i, v := range dsl.Split(dsl.WaitTag(words, k.CTA(), first, tag, gpu)) {
		r.put(ir.OpWaitTag, fmt.Sprintf("polled, word %d", i), v)
	}
}

// notedWaits are waits that note that they were stopped: not when they were not,
// once when they were, and not again.
func notedWaits(r *rows, counters, flag dsl.Buf[dsl.U32], never dsl.MBars) {
	k := r.k
	notes := dsl.Shared[dsl.U32](k, "notes", k.Warps()*dsl.NoteWords, dsl.Align(16))
	k.If(k.Tid().LtC(k.Warps()*dsl.NoteWords), func() { notes.Store(k.Tid(), k.U32(0)) })
	k.Barrier()
	read := func(op ir.Op, name string) {
		k.SyncWarp()
		for i := range dsl.NoteWords - 1 { // the last is the time
			r.put(op, name, notes.Load(k.Warp().MulC(dsl.NoteWords).AddC(i)))
		}
		k.SyncWarp()
	}
	note := func(site int) dsl.Note {
		return dsl.Note{To: notes, Site: site, Tag: k.CTA().AddC(100), Detail: k.Warp().AddC(200)}
	}
	r.bar.WaitOrNote(dsl.At(0), k.U32(1), flag, dsl.At(1), note(1))
	dsl.WaitUntilOrNote(counters, dsl.At(0), dsl.GE, k.Grid(), flag, dsl.At(1), note(2), dsl.Acquire(dsl.GPUScope))
	read(ir.OpWaitMBar, "nothing noted")
	never.WaitOrNote(dsl.At(0), k.U32(0), flag, dsl.At(1), note(3))
	read(ir.OpWaitMBar, "noted that the flag stopped it")
	dsl.WaitUntilOrNote(counters, dsl.At(1), dsl.NE, k.U32(0), flag, dsl.At(1), note(4), dsl.Relaxed(dsl.GPUScope))
	read(ir.OpWaitMem, "noted before")
}

func warpOps(r *rows) {
	k := r.k
	r.put(ir.OpShflIdx, "u32", dsl.Shfl(r.u, k.Lane().MulC(5).AddC(40)))
	r.putF(ir.OpShflIdx, "f32", dsl.Shfl(r.h, k.U32(7)))
	r.put(ir.OpShflXor, "u32", dsl.ShflXor(r.u, 21))
	r.putI(ir.OpShflUp, "i32", dsl.ShflUp(r.i, 3))
	r.put(ir.OpShflDown, "bf16x2", dsl.Bits[dsl.U32](dsl.ShflDown(dsl.Bits[dsl.BF16x2](r.v), 30)))
	few := k.Lane().LtC(31).Or(k.Warp().EqC(1))
	r.putP(ir.OpVoteAll, "", dsl.All(few))
	r.putP(ir.OpVoteAny, "", dsl.Any(few.Not()))
	r.put(ir.OpBallot, "", dsl.Ballot(r.u.AndC(1).EqC(1)))
	r.putF(ir.OpShflXor, "warp sum", dsl.WarpSum(r.h))
}

// tensorCore multiplies matrices of small integers, whose sums are exact in
// any order, and once matrices of fractions.
func tensorCore(r *rows) {
	k := r.k
	const rowsA = 16
	a := dsl.Shared[dsl.BF16](k, "mma_a", 4*rowsA*16, dsl.Align(16))
	warp := k.Warp().MulC(rowsA * 16).Named("tile")
	small := func(n int) dsl.Val[dsl.F32] { // −8 … 8, differs by lane and n
		v := k.Lane().MulC(7).AddC(3 * n).Add(k.Warp())
		return dsl.Cast[dsl.F32](dsl.Cast[dsl.I32](v.RemC(17)).Sub(k.I32(8)))
	}
	for n := range 8 {
		a.Store(warp.Add(k.Lane().MulC(8)).AddC(n), dsl.Cast[dsl.BF16](small(n)))
	}
	k.SyncWarp()
	row := warp.Add(k.Lane().RemC(16).MulC(16)).Add(k.Lane().DivC(16).MulC(8)).Named("row")
	fa, ft := dsl.LoadMatrix(a, row, false), dsl.LoadMatrix(a, row, true)
	for n := range 4 {
		r.put(ir.OpLdMatrix, "matrix", dsl.Bits[dsl.U32](fa[n]))
		r.put(ir.OpLdMatrix, "matrix, transposed", dsl.Bits[dsl.U32](ft[n]))
	}
	c := [4]dsl.Val[dsl.F32]{small(9), small(10), small(11), small(12)}
	d := dsl.MMA(fa, [2]dsl.Val[dsl.BF16x2]{ft[0], ft[1]}, c)
	for n := range 4 {
		r.putF(ir.OpMMA, "small integers", d[n]).Check = Zero
	}
	for _, scale := range []float64{1, 0x1p-17} { // the second makes f16 subnormals of all
		a, b := [4]dsl.Val[dsl.F16x2](halves(k, fa[:], scale)), [2]dsl.Val[dsl.F16x2](halves(k, ft[:2], scale))
		d := dsl.MMA(a, b, [4]dsl.Val[dsl.F32]{k.F32(0), k.F32(0), k.F32(0), k.F32(0)})
		for n := range 4 {
			r.putF(ir.OpMMA, "small integers in f16", d[n].Mul(k.F32(1/scale/scale))).Check = Zero
		}
	}
	pair := func(n int) dsl.Val[dsl.BF16x2] {
		return dsl.Pack[dsl.BF16x2](r.h.Mul(k.F32(0.1*float64(n+1))), dsl.ShflXor(r.h, n+1))
	}
	d = dsl.MMA([4]dsl.Val[dsl.BF16x2]{pair(0), pair(1), pair(2), pair(3)}, [2]dsl.Val[dsl.BF16x2]{pair(4), pair(5)}, d)
	for n := range 4 {
		r.near(ir.OpMMA, "fractions", d[n], 1e-3, 1e-5)
	}
}

// tensorBytes multiplies matrices of bytes that differ by lane, word and byte, of both kinds, with
// sums at the edge of 32 bits, which wrap.
func tensorBytes(r *rows) {
	k := r.k
	word := func(n int) dsl.Val[dsl.U32] { return dsl.ShflXor(r.u, n).MulC(2654435761).XorC(n * 0x1234567) }
	signed := func(n int) dsl.Val[dsl.I32] { return dsl.Bits[dsl.I32](word(n)) }
	b := [2]dsl.Val[dsl.I32]{signed(5), signed(6)}
	for _, c := range []int{-3, math.MaxInt32 - 100} {
		top := k.I32(c)
		all := [4]dsl.Val[dsl.I32]{top, top, top, top}
		d := dsl.MMABytes([4]dsl.Val[dsl.U32]{word(1), word(2), word(3), word(4)}, b, all)
		e := dsl.MMABytes([4]dsl.Val[dsl.I32]{signed(1), signed(2), signed(3), signed(4)}, b, all)
		for n := range d {
			r.putI(ir.OpIMMA, "u8 by s8", d[n])
			r.putI(ir.OpIMMA, "s8 by s8", e[n])
		}
	}
	r.put(ir.OpReduxMax, "u32", dsl.ReduxMax(word(7)))
	r.putI(ir.OpReduxMax, "i32", dsl.ReduxMax(signed(8)))
	r.put(ir.OpReduxAdd, "u32", dsl.ReduxAdd(word(9)))
	r.putI(ir.OpReduxAdd, "i32", dsl.ReduxAdd(signed(10)))
}

// halves are the small integers of a bf16 matrix times scale as f16.
func halves(k *dsl.Kernel, ps []dsl.Val[dsl.BF16x2], scale float64) (out []dsl.Val[dsl.F16x2]) {
	for _, p := range ps {
		lo, hi := dsl.Unpack(p)
		out = append(out, dsl.Pack[dsl.F16x2](lo.Mul(k.F32(scale)), hi.Mul(k.F32(scale))))
	}
	return out
}
