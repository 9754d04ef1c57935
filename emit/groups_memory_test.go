package emit_test

import (
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

func negInf() float64 { return math.Inf(-1) }

// hinted loads and stores every width of one element type.
func widths[T dsl.Elem](k *dsl.Kernel, name string, lanes []int, opts ...dsl.MemOpt) {
	in := dsl.Global[T](k, name+"_in", 0)
	out := dsl.Global[T](k, name+"_out", 0)
	for _, n := range lanes {
		out.StoreN(k.Tid().MulC(n), in.LoadN(k.Tid().MulC(n), n, opts...), opts...)
	}
}

func memoryWeak(k *dsl.Kernel) {
	widths[dsl.F32](k, "f32", []int{1, 2, 4})
	widths[dsl.BF16](k, "bf16", []int{1, 2, 4})
	widths[dsl.F16](k, "f16", []int{2})
	widths[dsl.U16](k, "u16", []int{4})
	widths[dsl.I32](k, "i32", []int{1, 2, 4})
	widths[dsl.U32](k, "u32", []int{4})
	widths[dsl.U64](k, "u64", []int{1, 2})
	widths[dsl.BF16x2](k, "bf16x2", []int{1, 4})
	widths[dsl.B128](k, "b128", []int{1})
	ro := dsl.Global[dsl.U32](k, "ro", 0, dsl.ReadOnly())
	rq := dsl.Global[dsl.B128](k, "rq", 0, dsl.ReadOnly())
	sh := dsl.Shared[dsl.U32](k, "sh", 1024, dsl.Align(16), dsl.Doc("words"))
	wide := dsl.View[dsl.B128](sh)
	for _, h := range []ir.Hint{ir.NonCoherent, ir.NoAllocate, ir.EvictFirst, ir.EvictLast} {
		sh.StoreN(k.Tid().MulC(4), ro.LoadN(k.Tid().MulC(4), 4, dsl.CacheHint(h)))
		wide.Store(k.Tid(), rq.Load(k.Tid(), dsl.CacheHint(h)))
	}
	k.Barrier()
	wide.Store(k.Lane(), wide.Load(k.Tid()))
	data := dsl.Global[dsl.U32](k, "data", 0)
	for _, h := range []ir.Hint{ir.NoAllocate, ir.EvictFirst, ir.EvictLast} {
		data.StoreN(k.Tid().MulC(2), data.LoadN(k.Tid().MulC(2), 2, dsl.CacheHint(h)), dsl.CacheHint(h))
	}
}

func memoryOrdered(k *dsl.Kernel) {
	sh := dsl.Shared[dsl.U32](k, "sh", 1024)
	sf := dsl.Shared[dsl.F32](k, "sf", 1024, dsl.Align(16))
	u := dsl.Global[dsl.U32](k, "u", 0)
	l := dsl.Global[dsl.U64](k, "l", 0)
	h := dsl.Global[dsl.BF16](k, "h", 0)
	f := dsl.Global[dsl.F32](k, "f", 0)
	q := dsl.Global[dsl.B128](k, "q", 0)
	sq := dsl.Shared[dsl.B128](k, "sq", 8)
	for _, s := range []ir.Scope{ir.CTA, ir.GPU, ir.Sys} {
		u.Store(dsl.At(1), u.Load(dsl.At(0), dsl.Acquire(s)), dsl.Release(s))
		q.Store(dsl.At(1), q.Load(dsl.At(0), dsl.Relaxed(s)), dsl.Relaxed(s))
		l.Store(dsl.At(1), l.Load(dsl.At(0), dsl.Relaxed(s)), dsl.Relaxed(s))
	}
	q.Store(dsl.At(3), q.Load(dsl.At(2), dsl.Acquire(dsl.GPUScope)), dsl.Release(dsl.GPUScope))
	q.Store(dsl.At(5), q.Load(dsl.At(4), dsl.Volatile()), dsl.Volatile())
	sq.Store(dsl.At(1), sq.Load(dsl.At(0), dsl.Relaxed(dsl.CTAScope)), dsl.Relaxed(dsl.CTAScope))
	f.StoreN(dsl.At(4), f.LoadN(dsl.At(0), 4, dsl.Relaxed(dsl.GPUScope)), dsl.Relaxed(dsl.GPUScope))
	h.Store(dsl.At(4), h.Load(dsl.At(0), dsl.Relaxed(dsl.GPUScope)), dsl.Relaxed(dsl.GPUScope))
	h.StoreN(dsl.At(8), h.LoadN(dsl.At(0), 2, dsl.Volatile()), dsl.Volatile())
	sh.Store(dsl.At(1), sh.Load(dsl.At(0), dsl.Acquire(dsl.CTAScope)), dsl.Release(dsl.CTAScope))
	sh.Store(dsl.At(3), sh.Load(dsl.At(2), dsl.Volatile()), dsl.Volatile())
	sf.StoreN(dsl.At(4), sf.LoadN(dsl.At(0), 2, dsl.Relaxed(dsl.CTAScope)), dsl.Relaxed(dsl.CTAScope))
	u.Store(dsl.At(3), u.Load(dsl.At(2), dsl.Relaxed(dsl.GPUScope), dsl.CacheHint(ir.EvictLast)),
		dsl.Relaxed(dsl.GPUScope), dsl.CacheHint(ir.EvictLast))
	u.Load(dsl.At(9), dsl.Acquire(dsl.GPUScope)) // kept although nobody reads the value
}

// atomicForms are all atomics on one type, on one buffer.
func atomicForms[T dsl.Int](k *dsl.Kernel, b dsl.Buf[T], bits bool, opts ...dsl.MemOpt) {
	v := b.Load(dsl.At(9))
	dsl.AtomicAdd(b, dsl.At(0), v, opts...)
	b.Store(k.Tid(), dsl.AtomicMax(b, dsl.At(1), v, opts...))
	b.Store(k.Tid(), dsl.AtomicMin(b, dsl.At(2), v, opts...))
	if bits {
		b.Store(k.Tid(), dsl.AtomicOr(b, dsl.At(3), v, opts...))
		b.Store(k.Tid(), dsl.AtomicExch(b, dsl.At(4), v, opts...))
		b.Store(k.Tid(), dsl.AtomicCAS(b, dsl.At(5), v, dsl.Lit[T](k, 7), opts...))
	}
	dsl.ReduceAdd(b, dsl.At(6), v, opts...)
}

func atomics(k *dsl.Kernel) {
	atomicForms(k, dsl.Global[dsl.U32](k, "u", 0), true, dsl.AcqRel(dsl.GPUScope))
	atomicForms(k, dsl.Global[dsl.I32](k, "i", 0), false, dsl.Relaxed(dsl.GPUScope))
	atomicForms(k, dsl.Global[dsl.U64](k, "l", 0), true, dsl.Release(dsl.SysScope))
	atomicForms(k, dsl.Shared[dsl.U32](k, "su", 64), true, dsl.Acquire(dsl.CTAScope))
	atomicForms(k, dsl.Shared[dsl.I32](k, "si", 64), false, dsl.AcqRel(dsl.CTAScope))
	atomicForms(k, dsl.Shared[dsl.U64](k, "sl", 64), true, dsl.Relaxed(dsl.CTAScope))
	dsl.ReduceAdd(dsl.Global[dsl.F32](k, "f", 0), dsl.At(0), k.F32(1), dsl.Relaxed(dsl.GPUScope))
	dsl.ReduceAdd(dsl.Shared[dsl.F32](k, "sf", 64), dsl.At(0), k.F32(1), dsl.Relaxed(dsl.CTAScope))
	hinted := dsl.Global[dsl.U32](k, "hinted", 0)
	dsl.ReduceAdd(hinted, dsl.At(0), k.U32(1), dsl.Relaxed(dsl.GPUScope), dsl.CacheHint(ir.EvictLast))
	dsl.ReduceAdd(hinted, dsl.At(1), k.U32(1), dsl.Relaxed(dsl.GPUScope), dsl.CacheHint(ir.NoAllocate))
	dsl.AtomicAdd(hinted, dsl.At(2), k.U32(1), dsl.Relaxed(dsl.GPUScope), dsl.CacheHint(ir.EvictFirst))
}

func bulk(k *dsl.Kernel) {
	w := dsl.Global[dsl.BF16](k, "w", 4096, dsl.ReadOnly(), dsl.Doc("weights"))
	out := dsl.Global[dsl.U32](k, "out", 512)
	stage := dsl.Shared[dsl.U32](k, "stage", 2048, dsl.Align(128), dsl.Doc("two halves"))
	bar := dsl.NewMBars(k, "landed", 2)
	k.If(k.Tid().EqC(0), func() {
		bar.Init(dsl.At(0), k.U32(1))
		bar.Init(dsl.At(1), k.U32(1))
		k.FenceMBarInit()
	})
	k.Barrier()
	k.If(k.Tid().EqC(0), func() {
		for i, h := range []ir.Hint{ir.NoHint, ir.EvictFirst} {
			bar.ArriveExpect(dsl.At(i), k.U32(4096))
			dsl.BulkCopy(stage, dsl.At(1024*i), w, dsl.At(2048*i), k.U32(4096), bar, dsl.At(i), dsl.CacheHint(h))
		}
	})
	for i := range 2 {
		bar.Wait(dsl.At(i), k.U32(0))
	}
	out.StoreN(k.Tid().MulC(4), stage.LoadN(k.Tid().MulC(4), 4))
	k.FenceProxyAsync()
	k.FenceProxyAsyncShared()
	k.FenceProxyAsyncGlobal()
	k.If(bar.Test(dsl.At(1), k.U32(1)), func() { bar.Arrive(dsl.At(1)) })
	bar.ArriveN(dsl.At(0), k.U32(3))
}

// copies has two groups of a lane's copies under way.
func copies(k *dsl.Kernel) {
	in := dsl.Global[dsl.BF16](k, "in", 4096, dsl.ReadOnly(), dsl.Align(16))
	out := dsl.Global[dsl.U32](k, "out", 512)
	stage := dsl.Shared[dsl.B128](k, "stage", 256)
	at := k.Tid().Named("at")
	for i := range 2 {
		dsl.CopyAsync(stage, at.AddC(128*i), in, at.MulC(8).AddC(1024*i))
		k.CopyCommit()
	}
	k.CopyWait(1)
	k.FenceProxyAsyncShared()
	k.CopyWait(0)
	k.Barrier()
	words := dsl.View[dsl.U32](stage)
	out.StoreN(at.MulC(4), words.LoadN(at.XorC(33).MulC(4), 4))
}

func barriers(k *dsl.Kernel) {
	k.Region("halves", func() {
		k.Roles(
			dsl.Role{Name: "first", First: 0, End: 2, Body: func() { k.NamedArrive(1, 4); k.NamedBarrier(2, 2) }},
			dsl.Role{Name: "second", First: 2, End: 4, Body: func() { k.NamedBarrier(1, 4); k.NamedBarrier(15, 2) }},
		)
	})
	k.SyncWarp()
	k.Fence(dsl.CTAScope)
	k.Fence(dsl.GPUScope)
	k.FenceSC(dsl.SysScope)
	k.Barrier()
	k.Nanosleep(k.U32(100))
	k.LaunchDependents()
	k.WaitForPrior()
}

func waits(k *dsl.Kernel) {
	flags := dsl.Global[dsl.U32](k, "flags", 0)
	stop := dsl.Global[dsl.U32](k, "stop", 1)
	out := dsl.Global[dsl.U32](k, "out", 8)
	sh := dsl.Shared[dsl.U32](k, "sh", 4)
	bar := dsl.NewMBars(k, "bar", 1)
	want := dsl.Scalar[dsl.U32](k, "want", "")
	sleep := func(a *ir.Attr) { a.Imm = 50 }
	k.If(k.Tid().EqC(0), func() { bar.Init(dsl.At(0), k.U32(1)) })
	k.Barrier()
	dsl.WaitUntil(flags, dsl.At(0), dsl.EQ, want, dsl.Acquire(dsl.GPUScope))
	dsl.WaitUntil(flags, dsl.At(1), dsl.NE, want, dsl.Relaxed(dsl.SysScope), sleep)
	dsl.WaitUntil(flags, dsl.At(2), dsl.GE, want, dsl.Volatile())
	dsl.WaitUntil(sh, dsl.At(0), dsl.GE, want, dsl.Acquire(dsl.CTAScope))
	stopped := dsl.WaitUntilOr(flags, dsl.At(3), dsl.GE, want, stop, dsl.At(0), dsl.Acquire(dsl.GPUScope)).Named("stopped")
	k.If(stopped, func() { out.Store(dsl.At(0), k.U32(1)) })
	dsl.WaitUntilOr(flags, dsl.At(4), dsl.NE, want, stop, dsl.At(0), dsl.Relaxed(dsl.GPUScope), sleep)
	k.If(bar.WaitOr(dsl.At(0), want, stop, dsl.At(0)), func() { out.Store(dsl.At(1), k.U32(1)) })
	bar.Wait(dsl.At(0), want.AndC(1))
	tagged := dsl.Global[dsl.B128](k, "tagged", 4)
	load := func(i int) dsl.Val[dsl.B128] { return tagged.Load(dsl.At(i), dsl.Relaxed(dsl.GPUScope)) }
	v := dsl.WaitTag(tagged, dsl.At(0), load(0), want, dsl.Relaxed(dsl.GPUScope))
	out.Store(dsl.At(2), dsl.Split(v)[0])
	notes := dsl.Shared[dsl.U32](k, "notes", k.Warps()*dsl.NoteWords, dsl.Align(16))
	v = dsl.WaitTagOrNote(tagged, dsl.At(1), load(1), want, stop, dsl.At(0),
		dsl.Note{To: notes, Site: 1, Tag: want, Detail: k.U32(2)}, dsl.Acquire(dsl.GPUScope))
	out.Store(dsl.At(3), dsl.Split(v)[1])
}

func collectives(k *dsl.Kernel) {
	out := dsl.Global[dsl.F32](k, "out", 0)
	v := dsl.Cast[dsl.F32](k.Lane())
	w := dsl.Shfl(v, k.Lane().AddC(1)).Add(dsl.ShflXor(v, 3)).Add(dsl.ShflUp(v, 2)).Add(dsl.ShflDown(v, 2))
	out.Store(k.Tid(), dsl.WarpSum(w))
	p := k.Lane().LtC(9)
	k.If(dsl.All(p).Or(dsl.Any(p)), func() { out.Store(dsl.At(0), dsl.Cast[dsl.F32](dsl.Ballot(p))) })
}

func tensor(k *dsl.Kernel) {
	out := dsl.Global[dsl.F32](k, "out", 0)
	a := dsl.Shared[dsl.BF16](k, "a", 256, dsl.Align(16))
	b := dsl.Shared[dsl.BF16](k, "b", 256, dsl.Align(16))
	row := k.Lane().RemC(16).MulC(16).Add(k.Lane().DivC(16).MulC(8)).Named("row")
	fa, fb := dsl.LoadMatrix(a, row, false), dsl.LoadMatrix(b, row, true)
	zero := k.F32(0)
	d := dsl.MMA(fa, [2]dsl.Val[dsl.BF16x2]{fb[0], fb[1]}, [4]dsl.Val[dsl.F32]{zero, zero, zero, zero})
	d = dsl.MMA(fa, [2]dsl.Val[dsl.BF16x2]{fb[2], fb[3]}, d)
	half := func(v dsl.Val[dsl.BF16x2]) dsl.Val[dsl.F16x2] { return dsl.Bits[dsl.F16x2](v) }
	d = dsl.MMA([4]dsl.Val[dsl.F16x2]{half(fa[0]), half(fa[1]), half(fa[2]), half(fa[3])},
		[2]dsl.Val[dsl.F16x2]{half(fb[0]), half(fb[1])}, d)
	out.StoreN(k.Tid().MulC(4), d[:])
}

func tensorBytes(k *dsl.Kernel) {
	out := dsl.Global[dsl.I32](k, "out", 0)
	in := dsl.Global[dsl.U32](k, "in", 0)
	w := in.LoadN(k.Lane().MulC(4), 4)
	word := func(i int) dsl.Val[dsl.I32] { return dsl.Bits[dsl.I32](w[i]) }
	b := [2]dsl.Val[dsl.I32]{word(0), dsl.ReduxAdd(word(1))}
	zero := k.I32(0)
	d := dsl.MMABytes([4]dsl.Val[dsl.U32](w), b, [4]dsl.Val[dsl.I32]{zero, zero, zero, zero})
	d = dsl.MMABytes([4]dsl.Val[dsl.I32]{word(0), word(1), word(2), word(3)}, b, d)
	d[0] = d[0].Add(dsl.Bits[dsl.I32](dsl.ReduxMax(w[2]))).Add(dsl.ReduxMax(word(3)))
	out.StoreN(k.Tid().MulC(4), d[:])
}
