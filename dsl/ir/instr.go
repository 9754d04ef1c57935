package ir

import "fmt"

// Stmt is a node of a block: *Instr, *For, *If, *Roles, *Region or *Note.
type Stmt interface {
	Position() Pos
	stmt()
}

// Block is a sequence of statements; values defined in it are visible to its
// end and in the blocks nested there.
type Block struct {
	Stmts []Stmt
}

// Addr names one place in memory: an element of a buffer. Index is i32, u32 or
// u64, in elements of Buf.Elem; nil means 0.
type Addr struct {
	Buf   *Buf
	Index *Value
}

// Instr is one operation. Which fields count is the op's row (see Ops).
//
// Example printed form: v7:u32, v8:u32 = ld.u32 @x:u32[v3] lanes=2
type Instr struct {
	Pos  Pos
	Op   Op
	T    Type     // the type computed, accessed or converted to
	Args []*Value // value operands in the op's order
	Mem  []Addr   // memory operands in the op's order
	Res  []*Value // results in the op's order
	Attr Attr
}

// Attr holds the operands fixed at generation time. Zero values are defaults.
type Attr struct {
	Lanes int   // ld, st: elements moved, 1, 2 or 4 (0 means 1)
	Order Order // memory order
	Scope Scope // scope of the order; for uniform: the scope asserted
	Hint  Hint  // cache hint
	Cond  Cond  // wait.mem
	// bar: id; prmt: selector; lop3: table; ldmatrix: 1 for .trans; tensor.g2s: mask of CTAs; setmaxreg: 1 for more,
	// 0 for fewer;
	// waits: nanoseconds slept between polls; fence.proxy: FenceSpace; wgmma: 1 to set the sums, not add to them
	Imm   int64
	N     int    // bar: number of threads; wgmma.wait: groups that may be under way; setmaxreg: registers
	Text  string // assert: the message
	Var   *Var   // var, get, set
	Vars  []*Var // wgmma: the sums; behind the four registers of A where A is not in memory
	Tiles []Tile // wgmma: how the operand at each memory address lies
	Param *Param // param
}

// Tile says how an operand of wgmma lies in shared memory: groups of 8 rows, of which each has Swizzle bytes a row,
// row behind row, and begins Stride bytes behind the group before. 16-byte unit u of a row r of a group lies at
// u xor r/2%4 of its row where Swizzle is 64, and at u xor r where it is 128.
//
// A row is one of A, or a column of B, and holds it along K. With Across a row is one of B's 16 along K and holds the N
// columns: Swizzle/2 of them, the next ones as many groups of rows that begin Across bytes on. N columns that take less
// than a row may begin behind its first byte, others may not.
type Tile struct {
	Swizzle int // 64 or 128
	Stride  int // bytes, a multiple of 16
	Across  int // 0, or bytes, a multiple of 16
}

// String prints what is there: "{128 1024}", "{128 1024 across 16384}".
func (t Tile) String() string {
	if t.Across == 0 {
		return fmt.Sprintf("{%d %d}", t.Swizzle, t.Stride)
	}
	return fmt.Sprintf("{%d %d across %d}", t.Swizzle, t.Stride, t.Across)
}

// Reach is how many bytes an operand of n rows, or columns of B, takes up from its first one on.
func (t Tile) Reach(n int) int64 {
	if t.Across == 0 {
		return int64((n/8-1)*t.Stride + 7*t.Swizzle + 32)
	}
	return int64(t.Stride + 7*t.Swizzle + (2*n-1)/t.Swizzle*t.Across + min(2*n, t.Swizzle))
}

// The state spaces a proxy fence covers (Attr.Imm of FenceProxyAsync).
const (
	FenceAll    = 0
	FenceGlobal = 1
	FenceShared = 2
)

// For is a counted loop, for I = Lo; I < Hi; I += Step. Lo, Hi and Step have
// I's type (i32 or u32); Step is a positive constant. Hi ≤ Lo runs nothing.
//
// Example printed form: for v2:u32 in 0..v1 step 1 { … }
type For struct {
	Pos          Pos
	I            *Value
	Lo, Hi, Step *Value
	Body         *Block
	Unroll       int // 0: the compiler decides; 1: keep rolled; n: unroll n times
}

// If runs Then in the threads where Cond holds and Else (may be nil) in the others.
//
// Example printed form: if v3 { … } else { … }
type If struct {
	Pos        Pos
	Cond       *Value
	Then, Else *Block
}

// Roles gives disjoint ranges of a CTA's warps their own bodies; a warp in no
// range runs none. Roles do not nest inside divergent control.
//
// Example printed form: roles { producer warps 8..9 { … } }
type Roles struct {
	Pos   Pos
	Roles []*Role
}

// Role is one warp range of a Roles node: warps First ≤ w < End.
type Role struct {
	Pos        Pos
	Name       string
	First, End int
	Body       *Block
}

// Region names a part of the program for readers, traces and reports; it has
// no effect on what is computed. Values defined inside stay visible after it.
//
// Example printed form: region "qkv" { … }
type Region struct {
	Pos  Pos
	Name string
	Body *Block
}

// Note says in words what follows, for who reads the program; it does nothing.
//
// Example printed form: note "the norm's scale: one over the root of the mean square"
type Note struct {
	Pos  Pos
	Text string
	From string // the template: "product/held.go, GEMV.Hold"
}

func (*Instr) stmt()  {}
func (*For) stmt()    {}
func (*If) stmt()     {}
func (*Roles) stmt()  {}
func (*Region) stmt() {}
func (*Note) stmt()   {}

// Position is where the node was made.
func (s *Instr) Position() Pos { return s.Pos }

// Position is where the node was made.
func (s *For) Position() Pos { return s.Pos }

// Position is where the node was made.
func (s *If) Position() Pos { return s.Pos }

// Position is where the node was made.
func (s *Roles) Position() Pos { return s.Pos }

// Position is where the node was made.
func (s *Region) Position() Pos { return s.Pos }

// Position is where the node was made.
func (s *Note) Position() Pos { return s.Pos }

// Kernel is one __global__ function: its parameters, its memory, its body.
type Kernel struct {
	Name        string
	Doc         []string // lines for the head of the emitted file
	Warps       int      // warps a CTA; threads = 32 × Warps
	Grid        int      // CTAs it is made for; 0: any number
	ClusterSize int      // CTAs a cluster; 0 or 1: none
	PerSM       int      // CTAs that registers are left for on an SM, of this kernel or of others; 0: 1
	SharedLimit int      // bytes of shared memory a CTA may use
	SharedBytes int      // bytes it uses (set by LayoutShared)
	Params      []*Param
	Bufs        []*Buf // roots and views, in order of declaration
	Vars        []*Var
	Body        *Block
	NumValues   int // IDs run from 0 to NumValues−1
}

// Globals lists the root buffers in global memory in order of declaration,
// which is their order in the params block, before the scalars.
func (k *Kernel) Globals() []*Buf { return k.roots(Global) }

// Shareds lists the root buffers in shared memory in order of declaration.
func (k *Kernel) Shareds() []*Buf { return k.roots(Shared) }

func (k *Kernel) roots(s Space) []*Buf {
	var bs []*Buf
	for _, b := range k.Bufs {
		if b.Root == nil && b.Space == s {
			bs = append(bs, b)
		}
	}
	return bs
}
