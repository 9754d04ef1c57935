package dsl

import "github.com/mkgen/mkgen/dsl/ir"

// Barrier makes all threads of the CTA wait for each other.
func (k *Kernel) Barrier() { k.emit(&ir.Instr{Op: ir.OpBarCTA}) }

// NamedBarrier makes warps·32 threads wait for each other; id is 1 to 15.
func (k *Kernel) NamedBarrier(id, warps int) {
	k.emit(&ir.Instr{Op: ir.OpBarSync, Attr: ir.Attr{Imm: int64(id), N: warps * WarpSize}})
}

// NamedArrive counts the calling warp in at a named barrier without waiting.
func (k *Kernel) NamedArrive(id, warps int) {
	k.emit(&ir.Instr{Op: ir.OpBarArrive, Attr: ir.Attr{Imm: int64(id), N: warps * WarpSize}})
}

// SyncWarp makes the 32 lanes wait for each other and orders their accesses.
func (k *Kernel) SyncWarp() { k.emit(&ir.Instr{Op: ir.OpSyncWarp}) }

// Fence orders this thread's accesses before it against those after it, as
// seen by strong operations at the scope (PTX fence.acq_rel).
func (k *Kernel) Fence(s ir.Scope) {
	k.emit(&ir.Instr{Op: ir.OpFence, Attr: ir.Attr{Order: ir.AcqRel, Scope: s}})
}

// FenceSC is a sequentially consistent fence at the scope (PTX fence.sc).
func (k *Kernel) FenceSC(s ir.Scope) {
	k.emit(&ir.Instr{Op: ir.OpFence, Attr: ir.Attr{Order: ir.SeqCst, Scope: s}})
}

// FenceProxyAsync orders accesses of the generic proxy against those of the
// async proxy (bulk copies), in every state space.
func (k *Kernel) FenceProxyAsync() { k.emit(&ir.Instr{Op: ir.OpFenceProxy}) }

// FenceProxyAsyncShared is FenceProxyAsync for shared memory only.
func (k *Kernel) FenceProxyAsyncShared() {
	k.emit(&ir.Instr{Op: ir.OpFenceProxy, Attr: ir.Attr{Imm: ir.FenceShared}})
}

// FenceProxyAsyncGlobal is FenceProxyAsync for global memory only.
func (k *Kernel) FenceProxyAsyncGlobal() {
	k.emit(&ir.Instr{Op: ir.OpFenceProxy, Attr: ir.Attr{Imm: ir.FenceGlobal}})
}

// FenceMBarInit makes mbarrier initialisations visible to the async proxy.
func (k *Kernel) FenceMBarInit() { k.emit(&ir.Instr{Op: ir.OpFenceMBar}) }

// Nanosleep suspends the thread for at most about ns nanoseconds.
func (k *Kernel) Nanosleep(ns Val[U32]) {
	k.emit(&ir.Instr{Op: ir.OpNanosleep, Args: []*ir.Value{ns.v}})
}

// WaitForPrior waits until the grids launched before this one have ended, and makes
// visible to this thread what they did (PTX griddepcontrol.wait). It has a meaning in a
// grid of a programmatic dependent launch, which may start before they have; in others
// it does nothing. In what the launch before may still be at work on, nothing may be
// read or written before it, and some thread must come to it: a grid that has ended
// stands for all before it.
func (k *Kernel) WaitForPrior() { k.emit(&ir.Instr{Op: ir.OpGridWait}) }

// LaunchDependents lets the grid launched behind this one start once every CTA has come
// here, by one of its threads, or has ended (PTX griddepcontrol.launch_dependents). It
// orders nothing, and may come to nothing: that grid waits by WaitForPrior for what this one does.
func (k *Kernel) LaunchDependents() { k.emit(&ir.Instr{Op: ir.OpGridLaunch}) }

// MBars is an array of mbarriers in shared memory. A phase of one completes
// when its count of arrivals and its expected bytes have come; phases
// alternate between parity 0 (the first) and 1.
type MBars struct {
	k *Kernel
	b *ir.Buf
}

// NewMBars declares n mbarriers; they must be initialised on the device.
func NewMBars(k *Kernel, name string, n int, opts ...BufOpt) MBars {
	b := newBuf[U64](k, &ir.Buf{Name: name, Space: ir.Shared, Elem: ir.MBar, Len: int64(n), Offset: -1}, opts)
	return MBars{k: k, b: b.b}
}

func (m MBars) op(op ir.Op, i Index, args ...*ir.Value) {
	kern(m.k).emit(&ir.Instr{Op: op, Args: args, Mem: Buf[U64]{k: m.k, b: m.b}.addr(i)})
}

// Init sets the arrivals a phase of mbarrier i takes. One thread does it once;
// other threads need a barrier after it, bulk copies FenceMBarInit.
func (m MBars) Init(i Index, count Val[U32]) { m.op(ir.OpMBarInit, i, count.v) }

// Arrive counts one arrival, releasing the thread's past at CTA scope.
func (m MBars) Arrive(i Index) { m.op(ir.OpMBarArrive, i) }

// ArriveN counts n arrivals at once, 1 to what the phase still takes.
func (m MBars) ArriveN(i Index, n Val[U32]) { m.op(ir.OpMBarArriveN, i, n.v) }

// ArriveExpect adds bytes to what the phase waits for, then arrives.
func (m MBars) ArriveExpect(i Index, bytes Val[U32]) { m.op(ir.OpMBarExpect, i, bytes.v) }

// Test is whether the phase of the given parity (0 or 1) has completed. It orders
// nothing: what follows may depend on it in time alone.
func (m MBars) Test(i Index, parity Val[U32]) Pred {
	mem := Buf[U64]{k: m.k, b: m.b}.addr(i)
	return opPred(kern(m.k), &ir.Instr{Op: ir.OpMBarTest, Args: []*ir.Value{parity.v}, Mem: mem})
}

// Wait waits until the phase of the given parity (0 or 1) has completed,
// acquiring at CTA scope what its arrivals and copies released.
func (m MBars) Wait(i Index, parity Val[U32]) { m.op(ir.OpWaitMBar, i, parity.v) }

// WaitOr is Wait that also ends when word j of flag is not 0; it returns
// whether it did.
func (m MBars) WaitOr(i Index, parity Val[U32], flag Buf[U32], j Index) Pred {
	mem := append(Buf[U64]{k: m.k, b: m.b}.addr(i), flag.addr(j)...)
	return opPred(kern(m.k), &ir.Instr{Op: ir.OpWaitMBar, Args: []*ir.Value{parity.v}, Mem: mem})
}

// Note is where a wait that was given up says so: the warp's lane 0 writes the
// site's number and two values into the warp's ir.NoteWords words of a buffer in
// shared memory, and the time, unless something is noted there already.
type Note struct {
	To          Buf[U32] // NoteWords words a warp, aligned to 16 bytes
	Site        int      // at least 1
	Tag, Detail Val[U32]
}

// NoteWords is the length of a warp's note: site, tag, detail, globaltimer's low word.
const NoteWords = ir.NoteWords

// WaitOrNote is Wait that also ends when word j of flag is not 0, with a note.
func (m MBars) WaitOrNote(i Index, parity Val[U32], flag Buf[U32], j Index, n Note) {
	mem := append(Buf[U64]{k: m.k, b: m.b}.addr(i), flag.addr(j)...)
	kern(m.k).noted(&ir.Instr{Op: ir.OpWaitMBar, Args: []*ir.Value{parity.v}, Mem: mem}, n)
}

// noted emits a wait with a note.
func (k *Kernel) noted(in *ir.Instr, n Note) { k.emit(k.note(in, n)) }

// note adds a note to a wait.
func (k *Kernel) note(in *ir.Instr, n Note) *ir.Instr {
	in.Mem = append(in.Mem, n.To.addr(nil)...)
	in.Args = append(in.Args, n.Tag.v, n.Detail.v)
	in.Attr.N = n.Site
	k.Require(n.To.Len() >= int64(NoteWords*k.Warps()), "notes have %d words, want %d a warp of %d", n.To.Len(), NoteWords,
		k.Warps())
	return in
}

// BulkCopy starts an asynchronous copy of bytes (a multiple of 16, under 2²⁰)
// from global element si of src to shared element di of dst, both 16-byte
// aligned. It completes on mbarrier mi of m, which must expect the bytes.
func BulkCopy[D, S Elem](dst Buf[D], di Index, src Buf[S], si Index, bytes Val[U32], m MBars, mi Index,
	opts ...MemOpt) {
	k := kern(dst.k, src.k)
	dst.aligned(16)
	src.aligned(16)
	mem := append(dst.addr(di), src.addr(si)...)
	mem = append(mem, Buf[U64]{k: k, b: m.b}.addr(mi)...)
	k.emit(&ir.Instr{Op: ir.OpBulkG2S, Args: []*ir.Value{bytes.v}, Mem: mem, Attr: attr(0, opts)})
}

// CopyAsync starts an asynchronous copy of 16 bytes of each lane from global element si of src to shared element di of
// dst, both 16-byte aligned. The lane's CopyCommit and CopyWait tell when it has ended: until then nobody may touch
// the place, nor write what is copied. It writes in the generic proxy, as a store does.
func CopyAsync[D, S Elem](dst Buf[D], di Index, src Buf[S], si Index) {
	dst.aligned(16)
	src.aligned(16)
	kern(dst.k, src.k).emit(&ir.Instr{Op: ir.OpCopyAsync, Mem: append(dst.addr(di), src.addr(si)...)})
}

// CopyCommit makes a group of each lane's CopyAsyncs since the last one.
func (k *Kernel) CopyCommit() { k.emit(&ir.Instr{Op: ir.OpCopyCommit}) }

// CopyWait waits until at most pending (0 to 7) of each lane's own groups are under way.
func (k *Kernel) CopyWait(pending int) {
	k.emit(&ir.Instr{Op: ir.OpCopyWait, Attr: ir.Attr{N: pending}})
}

// Cond is a condition of WaitUntil.
type Cond = ir.Cond

// The conditions of WaitUntil. GE compares by wrap-safe difference: it holds
// when int32(word − want) ≥ 0.
const (
	EQ = ir.CondEQ
	NE = ir.CondNE
	GE = ir.CondGE
)

// WaitUntil polls word i of b until it meets the condition with want. Give
// Acquire or Relaxed and a scope.
func WaitUntil(b Buf[U32], i Index, c ir.Cond, want Val[U32], opts ...MemOpt) {
	in := &ir.Instr{Op: ir.OpWaitMem, T: ir.U32, Args: []*ir.Value{want.v}, Mem: b.addr(i), Attr: attr(0, opts)}
	in.Attr.Cond = c
	kern(b.k).emit(in)
}

// WaitUntilOr is WaitUntil that also ends when word j of flag is not 0; it
// returns whether it did.
func WaitUntilOr(b Buf[U32], i Index, c ir.Cond, want Val[U32], flag Buf[U32], j Index, opts ...MemOpt) Pred {
	in := &ir.Instr{Op: ir.OpWaitMem, T: ir.U32, Args: []*ir.Value{want.v}, Attr: attr(0, opts)}
	in.Mem = append(b.addr(i), flag.addr(j)...)
	in.Attr.Cond = c
	return opPred(kern(b.k), in)
}

// WaitUntilOrNote is WaitUntil that also ends when word j of flag is not 0, with a note.
func WaitUntilOrNote(b Buf[U32], i Index, c ir.Cond, want Val[U32], flag Buf[U32], j Index, n Note, opts ...MemOpt) {
	in := &ir.Instr{Op: ir.OpWaitMem, T: ir.U32, Args: []*ir.Value{want.v}, Attr: attr(0, opts)}
	in.Mem = append(b.addr(i), flag.addr(j)...)
	in.Attr.Cond = c
	kern(b.k).noted(in, n)
}

// WaitTag is first, or, if the last of its four words is not tag, element i of b once that
// is so there: data and the word that says that they have come are one access, so that
// nothing has to be released or acquired. Load all elements that are needed first, to
// have the loads in flight together. Give Acquire or Relaxed and a scope; the element is
// to be written by Join with the tag last, as strongly.
func WaitTag(b Buf[B128], i Index, first Val[B128], tag Val[U32], opts ...MemOpt) Val[B128] {
	return op1[B128](kern(b.k, first.k, tag.k), waitTag(b, i, first, tag, opts))
}

// WaitTagOrNote is WaitTag that also ends when word j of flag is not 0, with a note; the
// result is of no use then.
func WaitTagOrNote(b Buf[B128], i Index, first Val[B128], tag Val[U32], flag Buf[U32], j Index, n Note,
	opts ...MemOpt) Val[B128] {
	in := waitTag(b, i, first, tag, opts)
	in.Mem = append(in.Mem, flag.addr(j)...)
	return op1[B128](kern(b.k, first.k, tag.k), kern(b.k).note(in, n))
}

func waitTag[B Elem](b Buf[B], i Index, first Val[B128], tag Val[U32], opts []MemOpt) *ir.Instr {
	return &ir.Instr{Op: ir.OpWaitTag, T: ir.B128, Args: []*ir.Value{tag.v, first.v}, Mem: b.addr(i), Attr: attr(0, opts)}
}
