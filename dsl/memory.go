package dsl

import "github.com/mkgen/mkgen/dsl/ir"

// Buf is an array of T in global or shared memory. Indices are in elements.
type Buf[T Elem] struct {
	_ noCompare
	k *Kernel
	b *ir.Buf
}

// BufOpt describes a buffer.
type BufOpt func(*ir.Buf)

// ReadOnly promises that no thread writes the buffer during a launch.
func ReadOnly() BufOpt { return func(b *ir.Buf) { b.ReadOnly = true } }

// HostReads is for a buffer whose words the host reads while the kernel runs;
// the kernel writes them one by one with strong stores of system scope.
func HostReads() BufOpt { return func(b *ir.Buf) { b.Host = ir.HostReads } }

// HostWrites is for a buffer whose words the host writes while the kernel runs;
// the kernel reads them one by one with strong loads of system scope.
func HostWrites() BufOpt { return func(b *ir.Buf) { b.Host = ir.HostWrites } }

// HostKeeps is for a buffer that the kernel fills and the host reads when the launch has
// ended: it is in mapped host memory, so that stores take none of the device memory's
// bandwidth. Loads of it take a microsecond and more.
func HostKeeps() BufOpt { return func(b *ir.Buf) { b.Host = ir.HostKeeps } }

// Align asks for an alignment in bytes, a power of two.
func Align(bytes int) BufOpt { return func(b *ir.Buf) { b.Align = bytes } }

// PlaceAt fixes a shared buffer's byte offset (a planner decided it).
func PlaceAt(offset int) BufOpt { return func(b *ir.Buf) { b.Offset = offset } }

// Doc says what the buffer holds, for the emitted code and the host package.
func Doc(text string) BufOpt { return func(b *ir.Buf) { b.Doc = text } }

func newBuf[T Elem](k *Kernel, b *ir.Buf, opts []BufOpt) Buf[T] {
	b.ID, b.Pos = len(k.ir.Bufs), k.here()
	for _, o := range opts {
		o(b)
	}
	k.checkName(b.Name)
	if b.Len < 0 || b.Len > ir.MaxLen {
		k.errorf("buffer %s has %d elements, want 0 to 2^40", b.Name, b.Len)
		b.Len = 1
	}
	if b.Space == ir.Global && b.Offset != 0 || b.Offset < -1 {
		k.errorf("buffer %s is placed at byte %d; only a shared buffer has a place, from 0 on", b.Name, b.Offset)
		b.Offset = 0
	}
	if b.Align != 0 && !powerOfTwo(b.Align) {
		k.errorf("buffer %s is aligned to %d bytes, want a power of two", b.Name, b.Align)
		b.Align = 0
	}
	b.Align = max(b.Align, b.Elem.Size())
	k.ir.Bufs = append(k.ir.Bufs, b)
	return Buf[T]{k: k, b: b}
}

// Global declares a buffer of n elements that the host binds; n = 0 leaves the
// length to the host. Its pointer is a member of the params block.
func Global[T Elem](k *Kernel, name string, n int64, opts ...BufOpt) Buf[T] {
	return newBuf[T](k, &ir.Buf{Name: name, Space: ir.Global, Elem: typeOf[T](), Len: n}, opts)
}

// Shared declares n elements of shared memory, placed in order of declaration.
func Shared[T Elem](k *Kernel, name string, n int, opts ...BufOpt) Buf[T] {
	return newBuf[T](k, &ir.Buf{Name: name, Space: ir.Shared, Elem: typeOf[T](), Len: int64(n), Offset: -1}, opts)
}

// aligned raises the buffer's alignment to what one access of it needs, so
// that layouts and hosts place it accordingly.
func (b Buf[T]) aligned(bytes int) {
	if b.b != nil && powerOfTwo(bytes) && bytes <= 16 {
		r := b.b.Base()
		r.Align = max(r.Align, bytes)
	}
}

// View sees a buffer's storage as elements of another type. The whole buffer
// must be a multiple of the new element size, to which its alignment is raised.
func View[To, From Elem](b Buf[From]) Buf[To] {
	k := kern(b.k)
	n := typeOf[To]().Size()
	if b.b.Root != nil && b.b.Root.Elem == typeOf[To]() {
		return Buf[To]{k: k, b: b.b.Root}
	}
	k.Require(b.b.Bytes()%int64(n) == 0, "view of %s as %s: %d bytes are no multiple of %d", b.b, typeOf[To](),
		b.b.Bytes(), n)
	b.aligned(n)
	for _, v := range k.ir.Bufs {
		if v.Root == b.b.Base() && v.Elem == typeOf[To]() {
			return Buf[To]{k: k, b: v} // every view covers its whole root
		}
	}
	v := &ir.Buf{ID: len(k.ir.Bufs), Name: b.b.Name, Space: b.b.Space, Elem: typeOf[To](), Len: b.b.Bytes() / int64(n),
		Align: max(n, b.b.Align), Root: b.b.Base(), ReadOnly: b.b.Base().ReadOnly, Host: b.b.Base().Host, Pos: k.here()}
	k.ir.Bufs = append(k.ir.Bufs, v)
	return Buf[To]{k: k, b: v}
}

// Len is the number of elements; 0 where the host decides, and of no buffer.
func (b Buf[T]) Len() int64 {
	if b.b == nil {
		return 0
	}
	return b.b.Len
}

// MemOpt sets the memory order, the scope or a cache hint of an access.
type MemOpt func(*ir.Attr)

func order(o ir.Order, s ir.Scope) MemOpt { return func(a *ir.Attr) { a.Order, a.Scope = o, s } }

// Relaxed is a strong access at a scope that orders nothing else.
func Relaxed(s ir.Scope) MemOpt { return order(ir.Relaxed, s) }

// Acquire makes what happened before the release that is read visible after.
func Acquire(s ir.Scope) MemOpt { return order(ir.Acquire, s) }

// Release publishes everything that happened before.
func Release(s ir.Scope) MemOpt { return order(ir.Release, s) }

// AcqRel is Acquire and Release; atomics only.
func AcqRel(s ir.Scope) MemOpt { return order(ir.AcqRel, s) }

// Volatile is a relaxed access at system scope that is never merged or elided.
func Volatile() MemOpt { return order(ir.Volatile, ir.Sys) }

// CacheHint sets a cache hint; it changes speed only.
func CacheHint(h ir.Hint) MemOpt { return func(a *ir.Attr) { a.Hint = h } }

func attr(n int, opts []MemOpt) ir.Attr {
	a := ir.Attr{Lanes: n}
	for _, o := range opts {
		o(&a)
	}
	return a
}

func (b Buf[T]) addr(i Index) []ir.Addr {
	a := ir.Addr{Buf: b.b}
	if i != nil {
		a.Index = i.index()
		if a.Index == nil {
			kern(b.k).errorf("index into %s is a zero Val", b.b)
			a.Index = ir.ConstInt(ir.U32, 0)
		}
	}
	return []ir.Addr{a}
}

// Load reads element i.
func (b Buf[T]) Load(i Index, opts ...MemOpt) Val[T] { return b.LoadN(i, 1, opts...)[0] }

// LoadN reads n = 1, 2 or 4 elements from i in one access of at most 16 bytes;
// i must be a multiple of n.
func (b Buf[T]) LoadN(i Index, n int, opts ...MemOpt) []Val[T] {
	b.aligned(n * typeOf[T]().Size())
	return vals[T](kern(b.k), &ir.Instr{Op: ir.OpLd, T: typeOf[T](), Mem: b.addr(i), Attr: attr(n, opts)}, n)
}

// Store writes element i.
func (b Buf[T]) Store(i Index, v Val[T], opts ...MemOpt) { b.StoreN(i, []Val[T]{v}, opts...) }

// StoreN writes 1, 2 or 4 elements from i in one access of at most 16 bytes;
// i must be a multiple of their number.
func (b Buf[T]) StoreN(i Index, vs []Val[T], opts ...MemOpt) {
	b.aligned(len(vs) * typeOf[T]().Size())
	args := make([]*ir.Value, len(vs))
	for j, v := range vs {
		args[j] = v.v
	}
	kern(b.k).emit(&ir.Instr{Op: ir.OpSt, T: typeOf[T](), Mem: b.addr(i), Args: args, Attr: attr(len(vs), opts)})
}

func rmw[T Elem](op ir.Op, b Buf[T], i Index, opts []MemOpt, args ...Val[T]) Val[T] {
	in := &ir.Instr{Op: op, T: typeOf[T](), Mem: b.addr(i), Attr: attr(1, opts)}
	for _, v := range args {
		in.Args = append(in.Args, v.v)
	}
	return op1[T](kern(b.k), in)
}

// AtomicAdd adds v and returns the old value; integers wrap.
func AtomicAdd[T Int](b Buf[T], i Index, v Val[T], opts ...MemOpt) Val[T] {
	return rmw(ir.OpAtomAdd, b, i, opts, v)
}

// AtomicMax stores the larger and returns the old value.
func AtomicMax[T Int](b Buf[T], i Index, v Val[T], opts ...MemOpt) Val[T] {
	return rmw(ir.OpAtomMax, b, i, opts, v)
}

// AtomicMin stores the smaller and returns the old value.
func AtomicMin[T Int](b Buf[T], i Index, v Val[T], opts ...MemOpt) Val[T] {
	return rmw(ir.OpAtomMin, b, i, opts, v)
}

// AtomicOr stores the bitwise or and returns the old value.
func AtomicOr[T Int](b Buf[T], i Index, v Val[T], opts ...MemOpt) Val[T] {
	return rmw(ir.OpAtomOr, b, i, opts, v)
}

// AtomicExch stores v and returns the old value.
func AtomicExch[T Int](b Buf[T], i Index, v Val[T], opts ...MemOpt) Val[T] {
	return rmw(ir.OpAtomExch, b, i, opts, v)
}

// AtomicCAS stores v if the old value is want, and returns the old value.
func AtomicCAS[T Int](b Buf[T], i Index, want, v Val[T], opts ...MemOpt) Val[T] {
	return rmw(ir.OpAtomCAS, b, i, opts, want, v)
}

// ReduceAdd adds v without returning anything; integers wrap. Of floats each sum is
// rounded to nearest, so that what comes out depends on the order in which threads come;
// in global memory the hardware takes what is subnormal for 0.
func ReduceAdd[T Num](b Buf[T], i Index, v Val[T], opts ...MemOpt) {
	kern(b.k).emit(&ir.Instr{Op: ir.OpRedAdd, T: typeOf[T](), Mem: b.addr(i), Args: []*ir.Value{v.v}, Attr: attr(1, opts)})
}

// LoadMatrix reads four 8×8 matrices of 16-bit elements from shared memory,
// PTX ldmatrix.x4: lane l names row l%8 of matrix l/8 by i (in elements of the
// buffer, 16-byte aligned). trans distributes the matrices transposed.
func LoadMatrix[T Elem](b Buf[T], i Index, trans bool) [4]Val[BF16x2] {
	b.aligned(16)
	in := &ir.Instr{Op: ir.OpLdMatrix, T: ir.BF16x2, Mem: b.addr(i)}
	if trans {
		in.Attr.Imm = 1
	}
	return [4]Val[BF16x2](vals[BF16x2](kern(b.k), in, 4))
}

// The cache hints, for CacheHint.
const (
	EvictFirst  = ir.EvictFirst  // streamed once
	EvictLast   = ir.EvictLast   // wanted again soon
	NoAllocate  = ir.NoAllocate  // keep it out of L1
	NonCoherent = ir.NonCoherent // the launch never writes this memory
)
