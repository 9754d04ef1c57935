package interp

import "github.com/mkgen/mkgen/dsl/ir"

// A stepFn executes one instruction for all active lanes of w. The program
// counter already points behind it.
type stepFn func(m *machine, w *warp, in *inst)

// operand names a register row (≥ 0) or, as ^i, row i of the constants.
type operand = int32

// row is one value of all 32 lanes. Integers and floats of up to 32 bits are
// held zero-extended; b128 takes two rows, low half first.
type row [32]uint64

// fullMask has every lane of a warp.
const fullMask = ^uint32(0)

// inst is one flattened instruction or control transfer.
type inst struct {
	fn        stepFn
	op        ir.Op // OpInvalid for control
	t         ir.Type
	a         []operand // arguments
	r         []operand // results
	mem       []memRef
	attr      *ir.Attr
	pos       ir.Pos
	pc        int32
	target    int32  // control: where to go
	step      int64  // forNext: the increment
	slot      int32  // var, get, set: the Var's row
	imm       uint64 // constants of the op: a parameter's bits come from the run
	vec       int    // ld, st: elements
	strong    bool   // a strong memory operation
	unread    bool   // nobody uses the results
	exits     bool   // the end
	scope     ir.Scope
	size      int // bytes of one scalar access
	text      string
	region    string    // the innermost region around it
	vars      []operand // wgmma: the rows of its Vars
	groupVars []int32   // their numbers; of var, get and set of such a variable: that one
	flag      *inst     // waits: the load of the abort flag
}

// memRef is a memory operand.
type memRef struct {
	buf    *ir.Buf
	root   int32 // index of the root buffer
	shared bool
	base   int64 // bytes from the root's start
	elem   int64 // bytes of an element
	length int64 // elements; 0: as bound
	index  operand
	signed bool // the index is i32
	none   bool // no index: element 0
}

// rootInfo is what Load knows about a root buffer.
type rootInfo struct {
	buf     *ir.Buf
	size    int64 // bytes; 0: as bound
	gran    uint  // log2 of the shadow granule in bytes
	strong  bool  // some access is strong
	written bool  // some instruction writes it
	mbar0   int32 // mbarrier buffers: number of its first mbarrier in the CTA
}

// Program is a kernel ready to run. It is immutable, so several goroutines may
// Run it at once, each with its own Memory.
type Program struct {
	kernel    *ir.Kernel
	code      []inst
	consts    []row
	rows      int // register rows a warp needs
	roots     []rootInfo
	rootOf    map[*ir.Buf]int32
	mbars     int               // mbarriers a CTA
	groupVars map[*ir.Var]int32 // numbers of the Vars that wgmmas name

	copies   bool // it has a cp.async
	overlaps bool // its launches may overlap with others: it has a griddep op
}

// Kernel is the kernel the program was loaded from.
func (p *Program) Kernel() *ir.Kernel { return p.kernel }

// Len is the number of flattened instructions, control transfers included.
func (p *Program) Len() int { return len(p.code) }

// Registers is the number of 64-bit register rows each warp needs.
func (p *Program) Registers() int { return p.rows }
