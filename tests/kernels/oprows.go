// Package kernels builds kernels for checks of the whole chain: from the DSL
// over the executor and the emitter to a real GPU.
package kernels

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// The launch of the kernel of all op rows.
const (
	rowGrid    = 2
	rowWarps   = 4
	rowThreads = rowGrid * rowWarps * dsl.WarpSize
)

// Check says how two devices' results of one row must agree.
type Check uint8

// The checks. A word is 32 bits.
const (
	Bits  Check = iota // the same bits
	Float              // the same float; any NaN equals any other
	Zero               // as Float, and zeros of either sign are equal
	Near               // as Float, or within Abs + Rel·|want|
)

// Span is what one row of the kernel writes: Words words of "out" from First,
// thread by thread.
type Span struct {
	Op           ir.Op
	Name         string // what of the op
	First, Words int
	Check        Check
	Abs, Rel     float64 // of Near; from PTX's figures for the approximate functions, doubled
}

// Input is the content of a buffer before the launch.
type Input struct {
	Name string
	Data []byte
}

// OpRows is one kernel that runs every row of the op table on fixed inputs,
// and the map of what it writes. Run it with Inputs and Params on any device;
// "out" is then the same everywhere as far as Spans ask for.
type OpRows struct {
	IR     *ir.Kernel
	Spans  []Span
	Inputs []Input           // every buffer of the kernel, "out" and counters as zeros
	Params map[string]uint64 // bits of the scalars
	Words  int               // length of "out"
}

// NewOpRows builds the kernel: 2 CTAs of 4 warps.
func NewOpRows() (*OpRows, error) {
	k := dsl.New("op_rows", dsl.Options{
		Warps: rowWarps, Grid: rowGrid, SharedLimit: 48 << 10,
		Doc: []string{"Every row of the op table on fixed inputs; results go to out, thread by thread."},
	})
	r := newRows(k)
	for _, part := range []struct {
		name string
		fill func(*rows)
	}{
		{"integers", integers}, {"wide integers", wideIntegers}, {"floats", floats}, {"comparisons", comparisons},
		{"conversions", conversions}, {"registers and variables", registersAndVars}, {"weak memory", weakMemory},
		{"ordered memory", orderedMemory}, {"atomics", atomics}, {"shared atomics", sharedAtomics}, {"bulk copy", bulkCopy},
		{"asynchronous copies", asyncCopies},
		{"named barriers", namedBarriers}, {"waits", waits}, {"warp", warpOps}, {"tensor core", tensorCore},
		{"tensor core, bytes", tensorBytes},
		{"clusters", clusterOps}, {"tensor maps", tensorMaps}, {"warpgroups", warpgroups},
	} {
		k.Region(part.name, func() { part.fill(r) })
	}
	r.finish()
	out, err := k.Finish()
	if err != nil {
		return nil, fmt.Errorf("kernel of all op rows: %w", err)
	}
	return &OpRows{IR: out, Spans: r.spans, Inputs: r.inputs(), Params: r.params, Words: r.next}, nil
}

// rows is the kernel under construction.
type rows struct {
	k      *dsl.Kernel
	out    dsl.Buf[dsl.U32]
	at     dsl.Val[dsl.U32] // this thread's index in the grid
	spans  []Span
	next   int // words of out given away
	data   []Input
	params map[string]uint64

	u, v   dsl.Val[dsl.U32] // this thread's words, edge cases first
	i, j   dsl.Val[dsl.I32]
	l, m   dsl.Val[dsl.U64]
	f, g   dsl.Val[dsl.F32] // with infinities, NaN, zeros and subnormals
	h      dsl.Val[dsl.F32] // moderate numbers
	amount dsl.Val[dsl.U32] // 0 to 79

	common dsl.Buf[dsl.U32] // words that all threads add to
	bar    dsl.MBars        // mbarriers that have completed two phases
}

func newRows(k *dsl.Kernel) *rows {
	r := &rows{k: k, params: map[string]uint64{}}
	r.out = dsl.Global[dsl.U32](k, "out", 0, dsl.Doc("a word per thread and result"))
	r.at = k.CTA().MulC(rowThreads / rowGrid).Add(k.Tid()).Named("at")
	words := r.words("words", 6)
	r.u, r.v = words.Load(r.at).Named("u"), words.Load(r.at.AddC(rowThreads)).Named("v")
	r.i = dsl.Bits[dsl.I32](r.v).Named("i")
	r.j = dsl.Bits[dsl.I32](words.Load(r.at.AddC(2 * rowThreads)).Or(k.U32(1))).Named("j")
	half := func(n int) dsl.Val[dsl.U64] { return dsl.Cast[dsl.U64](words.Load(r.at.AddC(n * rowThreads))) }
	r.l = half(0).ShlC(32).Or(half(3)).Named("l")
	r.m = half(4).ShlC(31).Or(half(5)).Or(k.U64(1)).Named("m")
	r.amount = r.at.Rem(k.U32(80)).Named("amount")
	r.f, r.g = r.floats("f_in", edgeFloats(0)).Named("f"), r.floats("g_in", edgeFloats(7)).Named("g")
	r.h = r.floats("h_in", plainFloats()).Named("h")
	return r
}

// put stores one word per thread as a row's result.
func (r *rows) put(op ir.Op, name string, v dsl.Val[dsl.U32]) *Span {
	r.spans = append(r.spans, Span{Op: op, Name: name, First: r.next, Words: rowThreads})
	r.out.Store(r.at.AddC(r.next), v)
	r.next += rowThreads
	return &r.spans[len(r.spans)-1]
}

func (r *rows) putI(op ir.Op, name string, v dsl.Val[dsl.I32]) { r.put(op, name, dsl.Bits[dsl.U32](v)) }

func (r *rows) putL(op ir.Op, name string, v dsl.Val[dsl.U64]) {
	r.put(op, name+", low half", dsl.Cast[dsl.U32](v))
	r.put(op, name+", high half", dsl.Cast[dsl.U32](v.ShrC(32)))
}

func (r *rows) putP(op ir.Op, name string, p dsl.Pred) {
	r.put(op, name, dsl.Select(p, r.k.U32(1), r.k.U32(0)))
}

func (r *rows) putF(op ir.Op, name string, v dsl.Val[dsl.F32]) *Span {
	s := r.put(op, name, dsl.Bits[dsl.U32](v))
	s.Check = Float
	return s
}

// near is putF for an approximate function.
func (r *rows) near(op ir.Op, name string, v dsl.Val[dsl.F32], abs, rel float64) {
	s := r.putF(op, name, v)
	s.Check, s.Abs, s.Rel = Near, abs, rel
}

// finish fixes the length of out, which is known only now.
func (r *rows) finish() {
	r.data = append(r.data, Input{"out", make([]byte, 4*r.next)})
}
