package kernels

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// toWord is a loaded element as a word.
func toWord[T dsl.Elem](v dsl.Val[T]) dsl.Val[dsl.U32] {
	switch x := any(v).(type) {
	case dsl.Val[dsl.U32]:
		return x
	case dsl.Val[dsl.I32]:
		return dsl.Bits[dsl.U32](x)
	case dsl.Val[dsl.F32]:
		return dsl.Bits[dsl.U32](x)
	case dsl.Val[dsl.BF16x2]:
		return dsl.Bits[dsl.U32](x)
	case dsl.Val[dsl.E4M3x2]:
		return dsl.Cast[dsl.U32](dsl.Bits[dsl.U16](x))
	case dsl.Val[dsl.F16x2]:
		return dsl.Bits[dsl.U32](x)
	case dsl.Val[dsl.BF16]:
		return dsl.Cast[dsl.U32](dsl.Bits[dsl.U16](x))
	case dsl.Val[dsl.F16]:
		return dsl.Cast[dsl.U32](dsl.Bits[dsl.U16](x))
	case dsl.Val[dsl.U16]:
		return dsl.Cast[dsl.U32](x)
	case dsl.Val[dsl.U64]:
		return dsl.Cast[dsl.U32](x).Xor(dsl.Cast[dsl.U32](x.ShrC(32)).MulC(3))
	case dsl.Val[dsl.B128]:
		w := dsl.Split(x)
		return w[0].Xor(w[1].MulC(3)).Xor(w[2].MulC(5)).Xor(w[3].MulC(7))
	}
	panic("BUG: element type without a word")
}

// fold is all elements of a vector as one word.
func fold[T dsl.Elem](vs []dsl.Val[T]) dsl.Val[dsl.U32] {
	sum := toWord(vs[0])
	for n, v := range vs[1:] {
		sum = sum.MulC(2*n + 3).Add(toWord(v))
	}
	return sum
}

// through loads a vector of each width from in, stores it to a scratch place
// of the thread in mid, loads it from there element by element, and gives both
// to out. Every element is 16 bytes of a thread's share at most.
func through[T dsl.Elem](r *rows, name string, in dsl.Buf[dsl.B128], mid dsl.Buf[dsl.B128], index dsl.Val[dsl.U32],
	widths []int, opts ...dsl.MemOpt) {
	src, dst := dsl.View[T](in), dsl.View[T](mid)
	per := int(src.Len() / in.Len()) // elements in 16 bytes
	for _, n := range widths {
		vs := src.LoadN(r.at.MulC(per), n, opts...)
		r.put(ir.OpLd, name, fold(vs))
		to := index.MulC(per)
		dst.StoreN(to, vs, opts...)
		back := make([]dsl.Val[T], n)
		for i := range back {
			back[i] = dst.Load(to.AddC(i), opts...)
		}
		r.put(ir.OpSt, name, fold(back))
	}
}

// area declares 16 bytes of input and 16 of scratch a thread.
func (r *rows) area(name string) (in, mid dsl.Buf[dsl.B128]) {
	in = dsl.View[dsl.B128](r.words(name+"_in", 4))
	mid = dsl.View[dsl.B128](dsl.Global[dsl.U32](r.k, name+"_mid", 4*rowThreads, dsl.Align(16)))
	r.bytes(name+"_mid", make([]byte, 16*rowThreads))
	return in, mid
}

func weakMemory(r *rows) {
	in, mid := r.area("weak")
	sh := dsl.Shared[dsl.B128](r.k, "weak_sh", rowThreads/rowGrid)
	for _, to := range []struct {
		space string
		mid   dsl.Buf[dsl.B128]
		index dsl.Val[dsl.U32]
	}{{"global", mid, r.at}, {"shared", sh, r.k.Tid()}} {
		through[dsl.F32](r, "f32 "+to.space, in, to.mid, to.index, []int{1, 2, 4})
		through[dsl.BF16](r, "bf16 "+to.space, in, to.mid, to.index, []int{1, 2, 4})
		through[dsl.F16](r, "f16 "+to.space, in, to.mid, to.index, []int{2})
		through[dsl.U16](r, "u16 "+to.space, in, to.mid, to.index, []int{4})
		through[dsl.U32](r, "u32 "+to.space, in, to.mid, to.index, []int{1, 4})
		through[dsl.I32](r, "i32 "+to.space, in, to.mid, to.index, []int{2, 4})
		through[dsl.U64](r, "u64 "+to.space, in, to.mid, to.index, []int{1, 2})
		through[dsl.BF16x2](r, "bf16x2 "+to.space, in, to.mid, to.index, []int{1, 4})
		through[dsl.F16x2](r, "f16x2 "+to.space, in, to.mid, to.index, []int{2})
		through[dsl.E4M3x2](r, "e4m3x2 "+to.space, in, to.mid, to.index, []int{1, 4})
		through[dsl.B128](r, "b128 "+to.space, in, to.mid, to.index, []int{1})
	}
	words := dsl.View[dsl.U32](in)
	for _, h := range []ir.Hint{ir.NonCoherent, ir.NoAllocate, ir.EvictFirst, ir.EvictLast} {
		r.put(ir.OpLd, h.String(), fold(words.LoadN(r.at.MulC(4), 4, dsl.CacheHint(h))))
		r.put(ir.OpLd, h.String()+" b128", toWord(in.Load(r.at, dsl.CacheHint(h))))
		if h != ir.NonCoherent {
			through[dsl.U32](r, h.String()+" u32", in, mid, r.at, []int{1, 4}, dsl.CacheHint(h))
		}
	}
}

// asyncCopies copies each thread's unit, which another warp's reads, in two groups.
func asyncCopies(r *rows) {
	in, _ := r.area("copied")
	k := r.k
	n := rowThreads / rowGrid
	to := dsl.Shared[dsl.B128](k, "copied_to", 2*n)
	dsl.CopyAsync(to, k.Tid(), in, r.at)
	k.CopyCommit()
	dsl.CopyAsync(to, k.Tid().AddC(n), in, r.at.XorC(1))
	k.CopyCommit()
	k.CopyWait(1)
	r.put(ir.OpCopyWait, "own unit, one group under way", toWord(to.Load(k.Tid())))
	k.CopyWait(0)
	k.Barrier()
	r.put(ir.OpCopyAsync, "another warp's unit", toWord(to.Load(k.Tid().XorC(33))))
	r.put(ir.OpCopyCommit, "the second group", toWord(to.Load(k.Tid().XorC(34).AddC(n))))
}

func orderedMemory(r *rows) {
	in, mid := r.area("ordered")
	sh := dsl.Shared[dsl.B128](r.k, "ordered_sh", rowThreads/rowGrid)
	for _, s := range []ir.Scope{ir.CTA, ir.GPU, ir.Sys} {
		through[dsl.U32](r, "u32 relaxed "+s.String(), in, mid, r.at, []int{1, 4}, dsl.Relaxed(s))
		through[dsl.B128](r, "b128 relaxed "+s.String(), in, mid, r.at, []int{1}, dsl.Relaxed(s))
		through[dsl.F32](r, "f32 relaxed "+s.String(), in, mid, r.at, []int{2}, dsl.Relaxed(s))
		through[dsl.U64](r, "u64 relaxed "+s.String(), in, mid, r.at, []int{1}, dsl.Relaxed(s))
		words := dsl.View[dsl.U32](mid)
		words.Store(r.at.MulC(4), r.u, dsl.Release(s))
		r.put(ir.OpSt, "u32 release "+s.String(), words.Load(r.at.MulC(4), dsl.Acquire(s)))
		mid.Store(r.at, dsl.Join(r.u, r.v, r.at, r.amount), dsl.Release(s))
		r.put(ir.OpLd, "b128 acquire "+s.String(), toWord(mid.Load(r.at, dsl.Acquire(s))))
	}
	through[dsl.BF16](r, "bf16 volatile", in, mid, r.at, []int{1, 2}, dsl.Volatile())
	through[dsl.U32](r, "u32 volatile", in, mid, r.at, []int{1, 2}, dsl.Volatile())
	own := dsl.View[dsl.U32](sh)
	own.Store(r.k.Tid().MulC(4), r.u, dsl.Relaxed(dsl.CTAScope))
	r.put(ir.OpLd, "u32 shared acquire", own.Load(r.k.Tid().MulC(4), dsl.Acquire(dsl.CTAScope)))
	own.Store(r.k.Tid().MulC(4), r.v, dsl.Volatile())
	r.put(ir.OpLd, "u32 shared volatile", own.Load(r.k.Tid().MulC(4), dsl.Volatile()))
	sh.Store(r.k.Tid(), dsl.Join(r.v, r.u, r.at, r.amount), dsl.Relaxed(dsl.CTAScope))
	r.put(ir.OpSt, "b128 shared relaxed", toWord(sh.Load(r.k.Tid(), dsl.Relaxed(dsl.CTAScope))))
	r.k.Fence(dsl.CTAScope)
	r.k.Fence(dsl.GPUScope)
	r.k.FenceSC(dsl.SysScope)
	r.put(ir.OpFence, "done", r.k.U32(1))
	r.k.LaunchDependents() // of which there are none, as there is nothing to wait for
	r.k.WaitForPrior()
	r.put(ir.OpGridWait, "done", r.k.U32(1))
	r.put(ir.OpGridLaunch, "done", r.k.U32(1))
}

// atomicRows runs the atomics on a thread's own words of b, so that the values
// they return do not depend on the order of threads.
func atomicRows[T dsl.Int](r *rows, name string, b dsl.Buf[T], index dsl.Val[dsl.U32], x, y dsl.Val[T], bits bool,
	opts ...dsl.MemOpt) {
	old := func(op ir.Op, v dsl.Val[T]) { r.put(op, name+", old value", toWord(v)) }
	at := index.MulC(4).Named("own")
	b.Store(at, x)
	old(ir.OpAtomAdd, dsl.AtomicAdd(b, at, y, opts...))
	old(ir.OpAtomMax, dsl.AtomicMax(b, at, x, opts...))
	old(ir.OpAtomMin, dsl.AtomicMin(b, at, y, opts...))
	if bits {
		old(ir.OpAtomOr, dsl.AtomicOr(b, at, x, opts...))
		old(ir.OpAtomExch, dsl.AtomicExch(b, at, y, opts...))
		old(ir.OpAtomCAS, dsl.AtomicCAS(b, at, y, x, opts...))
		old(ir.OpAtomCAS, dsl.AtomicCAS(b, at, y.Add(x).AddC(1), y, opts...))
	}
	dsl.ReduceAdd(b, at, y, opts...)
	r.put(ir.OpRedAdd, name+", value after all", toWord(b.Load(at)))
}

func atomics(r *rows) {
	words, wide := r.zeros("atom_words", 4*rowThreads), r.zeros("atom_wide", 8*rowThreads)
	atomicRows(r, "u32 acq_rel gpu", words, r.at, r.u, r.v, true, dsl.AcqRel(dsl.GPUScope))
	atomicRows(r, "i32 relaxed gpu", dsl.View[dsl.I32](words), r.at, r.i, r.j, false, dsl.Relaxed(dsl.GPUScope))
	atomicRows(r, "u64 release sys", dsl.View[dsl.U64](wide), r.at, r.l, r.m, true, dsl.Release(dsl.SysScope))
	sums := dsl.View[dsl.F32](words)
	sums.Store(r.at.MulC(4), dsl.Cast[dsl.F32](r.i)) // which is never subnormal
	dsl.ReduceAdd(sums, r.at.MulC(4), dsl.Cast[dsl.F32](r.j), dsl.Relaxed(dsl.GPUScope))
	r.putF(ir.OpRedAdd, "f32 relaxed gpu, value after all", sums.Load(r.at.MulC(4)))
	// All threads of the grid on the same words; the sums are read after the grid barrier in waits.
	common := r.zeros("atom_common", 8)
	dsl.ReduceAdd(common, dsl.At(0), r.u, dsl.Relaxed(dsl.GPUScope))
	dsl.AtomicMax(common, dsl.At(1), r.u, dsl.Relaxed(dsl.GPUScope))
	dsl.AtomicOr(common, dsl.At(2), r.at, dsl.Relaxed(dsl.GPUScope))
	dsl.AtomicAdd(common, dsl.At(3), r.v, dsl.Relaxed(dsl.GPUScope), dsl.CacheHint(ir.EvictLast))
	r.common = common
}

func sharedAtomics(r *rows) {
	words := dsl.Shared[dsl.U32](r.k, "atom_sh", rowThreads/rowGrid*4)
	wide := dsl.Shared[dsl.U64](r.k, "atom_wide_sh", rowThreads/rowGrid*4)
	atomicRows(r, "u32 shared acquire", words, r.k.Tid(), r.u, r.v, true, dsl.Acquire(dsl.CTAScope))
	atomicRows(r, "i32 shared acq_rel", dsl.View[dsl.I32](words), r.k.Tid(), r.i, r.j, false, dsl.AcqRel(dsl.CTAScope))
	atomicRows(r, "u64 shared relaxed", wide, r.k.Tid(), r.l, r.m, true, dsl.Relaxed(dsl.CTAScope))
}
