package skeleton

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// editor changes instructions of a kernel, each by some before and behind it.
type editor struct {
	k      *ir.Kernel
	region string // the innermost around the instruction at hand
	role   string
	before []ir.Stmt
	behind []ir.Stmt
}

// edited is a copy of k whose every instruction change has seen, and how many it changed.
func edited(k *ir.Kernel, change func(e *editor, in *ir.Instr) bool) (*ir.Kernel, error) {
	e := &editor{k: mutate.Clone(k)}
	if n := e.block(e.k.Body, change); n == 0 {
		return nil, fmt.Errorf("kernel %s has nothing to change", k.Name)
	}
	return e.k, nil
}

func (e *editor) block(b *ir.Block, change func(e *editor, in *ir.Instr) bool) (n int) {
	var out []ir.Stmt
	for _, s := range b.Stmts {
		e.before, e.behind = nil, nil
		switch s := s.(type) {
		case *ir.Instr:
			if change(e, s) {
				n++
			}
			out = append(append(append(out, e.before...), s), e.behind...)
			continue
		case *ir.Region:
			outer := e.region
			e.region = s.Name
			n += e.block(s.Body, change)
			e.region = outer
		case *ir.Roles:
			for _, r := range s.Roles {
				e.role = r.Name
				n += e.block(r.Body, change)
			}
			e.role = ""
		default:
			for _, inner := range ir.Blocks(s) {
				n += e.block(inner, change)
			}
		}
		out = append(out, s)
	}
	b.Stmts = out
	return n
}

// value is a new value of type t.
func (e *editor) value(t ir.Type, def *ir.Instr) *ir.Value {
	v := &ir.Value{ID: e.k.NumValues, Type: t, Def: def}
	e.k.NumValues++
	return v
}

// op is an instruction of the type of its first argument, and its result.
func (e *editor) op(like *ir.Instr, op ir.Op, t ir.Type, args ...*ir.Value) (*ir.Instr, *ir.Value) {
	in := &ir.Instr{Pos: like.Pos, Op: op, T: t, Args: args}
	in.Res = []*ir.Value{e.value(t, in)}
	if op == ir.OpEq || op == ir.OpGe {
		in.T, in.Res[0].Type = args[0].Type, ir.Pred
	}
	return in, in.Res[0]
}

// ahead puts op in front of like and is its result.
func (e *editor) ahead(like *ir.Instr, op ir.Op, args ...*ir.Value) *ir.Value {
	in, v := e.op(like, op, ir.U32, args...)
	e.before = append(e.before, in)
	return v
}

// result makes in's result what a chain of operations behind it makes of it.
func (e *editor) result(in *ir.Instr,
	chain func(old *ir.Value, put func(op ir.Op, args ...*ir.Value) *ir.Value) (ir.Op, []*ir.Value)) {
	v := in.Res[0]
	old := e.value(v.Type, in)
	in.Res[0] = old
	op, args := chain(old, func(op ir.Op, args ...*ir.Value) *ir.Value {
		i, r := e.op(in, op, ir.U32, args...)
		e.behind = append(e.behind, i)
		return r
	})
	last := &ir.Instr{Pos: in.Pos, Op: op, T: v.Type, Args: args, Res: []*ir.Value{v}}
	v.Def = last
	e.behind = append(e.behind, last)
}

func u32(x uint32) *ir.Value { return ir.ConstInt(ir.U32, int64(x)) }

// reads reports whether in is a load of a buffer.
func reads(in *ir.Instr, buffer string) bool {
	return in.Op == ir.OpLd && in.Mem[0].Buf.Name == buffer
}

// pageAnd255 looks tokens from 4096 on (of pages of 16) up in the table's first 256 entries.
func pageAnd255(_ *megakernel.Kernel, e *editor, in *ir.Instr) bool {
	if !reads(in, "page_table") || e.role != "producer" {
		return false
	}
	in.Mem[0].Index = e.ahead(in, ir.OpAnd, in.Mem[0].Index, u32(255))
	return true
}

// nextPage copies the page behind the right one from token 4096 on.
func nextPage(_ *megakernel.Kernel, e *editor, in *ir.Instr) bool {
	if !reads(in, "page_table") || e.role != "producer" {
		return false
	}
	index := in.Mem[0].Index
	e.result(in, func(old *ir.Value, put func(ir.Op, ...*ir.Value) *ir.Value) (ir.Op, []*ir.Value) {
		return ir.OpAdd, []*ir.Value{old, put(ir.OpSelect, put(ir.OpGe, index, u32(256)), u32(1), u32(0))}
	})
	return true
}

// flagOf5Bits keeps five bits of the flags of all packets, in writers and readers.
func flagOf5Bits(_ *megakernel.Kernel, e *editor, in *ir.Instr) bool {
	i := 0
	switch {
	case in.Op == ir.OpJoin && !in.Args[3].Const:
		i = 3
	case in.Op != ir.OpWaitTag:
		return false
	}
	in.Args[i] = e.ahead(in, ir.OpAnd, in.Args[i], u32(31))
	return true
}

// lastShareShort gives the last SM a tile of o less than the plan does.
func lastShareShort(mk *megakernel.Kernel, e *editor, in *ir.Instr) bool {
	if !reads(in, "plan") {
		return false
	}
	at := u32(uint32((mk.Options.SMs-1)*planRow(mk) + 2*megakernel.MatrixO + 1))
	index := in.Mem[0].Index
	e.result(in, func(old *ir.Value, put func(ir.Op, ...*ir.Value) *ir.Value) (ir.Op, []*ir.Value) {
		return ir.OpSub, []*ir.Value{old, put(ir.OpSelect, put(ir.OpEq, index, at), u32(1), u32(0))}
	})
	return true
}

// planRow is the number of words of an SM in the plan table.
func planRow(mk *megakernel.Kernel) int { return len(mk.PlanTable()) / mk.Options.SMs }

// swappedOffsets makes the first two SMs with equal shares of a layer read each other's.
func swappedOffsets(mk *megakernel.Kernel, e *editor, in *ir.Instr) bool {
	a, b, ok := equalShares(mk)
	if !reads(in, "plan") || !ok {
		return false
	}
	row, word := planRow(mk), 2*megakernel.MatrixQKV
	index := in.Mem[0].Index
	moved := index
	for _, m := range [][2]int{{a, b}, {b, a}} {
		here := e.ahead(in, ir.OpEq, index, u32(uint32(m[0]*row+word)))
		moved = e.ahead(in, ir.OpSelect, here, u32(uint32(m[1]*row+word)), moved)
	}
	in.Mem[0].Index = moved
	return true
}

// equalShares are two SMs with as many tiles of every matrix.
func equalShares(mk *megakernel.Kernel) (a, b int, ok bool) {
	same := func(m pipeline.MatrixPlan) bool { return m.Count[a] == m.Count[b] }
	for b = 1; b < mk.Options.SMs; b++ {
		for a = range b {
			if !slices.ContainsFunc(mk.Plan.Layer, func(m pipeline.MatrixPlan) bool { return !same(m) }) {
				return a, b, true
			}
		}
	}
	return 0, 0, false
}

// sameLap has attention wait for the parity of the ring's first lap in an item, in all laps.
func sameLap(mk *megakernel.Kernel, e *editor, in *ir.Instr) bool {
	if in.Op != ir.OpWaitMBar || in.Mem[0].Buf.Name != pipeline.RegionFull || in.Args[0].Def == nil ||
		in.Args[0].Def.Op != ir.OpXor || e.role != "consumers" {
		return false
	}
	in.Args[0] = in.Args[0].Def.Args[0]
	return true
}

// chunksIn8Bits counts the chunks of a sequence in 8 bits, in producer and consumers.
func chunksIn8Bits(mk *megakernel.Kernel, e *editor, in *ir.Instr) bool {
	n := uint64(mk.ChunkTokens())
	if in.Op != ir.OpDiv || !in.Args[1].Const || in.Args[1].Bits != n || in.Args[0].Def == nil {
		return false
	}
	if sum := in.Args[0].Def; sum.Op != ir.OpAdd || !sum.Args[1].Const || sum.Args[1].Bits != n-1 {
		return false
	}
	e.result(in, func(old *ir.Value, _ func(ir.Op, ...*ir.Value) *ir.Value) (ir.Op, []*ir.Value) {
		return ir.OpAnd, []*ir.Value{old, u32(255)}
	})
	return true
}

// keyToNextSlot stores new keys and values of the last KV head a slot behind their own.
func keyToNextSlot(_ *megakernel.Kernel, e *editor, in *ir.Instr) bool {
	if in.Op != ir.OpRem || e.role != "consumers" || in.Res[0].Hint != "slot" {
		return false
	}
	e.result(in, func(old *ir.Value, put func(ir.Op, ...*ir.Value) *ir.Value) (ir.Op, []*ir.Value) {
		return ir.OpXor, []*ir.Value{old, put(ir.OpSelect, put(ir.OpGe, in.Args[0], u32(4096)), u32(1), u32(0))}
	})
	return true
}

// mutant is a kernel's mistake and what must be said of it.
type mutant struct {
	name    string
	context int // at which it shows
	change  func(mk *megakernel.Kernel, e *editor, in *ir.Instr) bool
	text    string // a regular expression for the finding
	line    string // a Go line of its sides
	long    bool   // takes more than a second
}

func (m *mutant) edit(mk *megakernel.Kernel) func(*ir.Kernel) (*ir.Kernel, error) {
	return func(k *ir.Kernel) (*ir.Kernel, error) {
		return edited(k, func(e *editor, in *ir.Instr) bool { return m.change(mk, e, in) })
	}
}

var mutants = []mutant{
	{"page index in 8 bits", 5000, pageAnd255, `copies token \d+ of layer 0.* comes for the 2nd time, want 1`,
		"attention/attention.go", false},
	{"next page from token 4096 on", 5000, nextPage,
		`copies from page \d+ of layer 0, which the page table of this sequence does not name`, "attention/attention.go", false},
	{"flag of 5 bits", 100, flagOf5Bits, `readers cannot tell old packets from new ones`, "attention/qkvpackets.go", true},
	{"last SM's share of o one tile short", 100, lastShareShort, `deadlock|SM 131 copies`, "product/gemv.go", false},
	{"first tiles of two equal SMs exchanged", 100, swappedOffsets,
		`SM \d+ copies bytes \d+ to \d+ of the weights, which are SM \d+'s of layer 0, qkv`, "product/gemv.go", false},
	{"parity of the first lap", 5000, sameLap, `deadlock|phase`, "grid/", true},
	{"chunks of the cache in 8 bits", 33000, chunksIn8Bits, `was copied 0 times in step 0 at position 33000, want 1`,
		"attention/attention.go", true},
	{"new token's slot from 4096 on", 5000, keyToNextSlot,
		`(stores to token 500\d of layer 0, KV head \d: the launch's new tokens are 5000 to 500|uninitialised read: reads element \d+ of @ring)`, "attention/qkv.go", false},
}

func TestMutants(t *testing.T) {
	for _, m := range mutants {
		if m.long && !deep.On() {
			continue
		}
		t.Run(m.name, func(t *testing.T) { m.mustBeFound(t, quick(t), 1) })
	}
}

func TestMutantsOfTheRealKernel(t *testing.T) {
	deep.Only(t)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) { m.mustBeFound(t, lookup(t, "llama3-8b"), 3) })
	}
}

// mustBeFound runs a mutant of c's kernel for n steps at the context that shows it.
func (m *mutant) mustBeFound(t *testing.T, c models.Config, steps int) {
	mk, err := megakernel.Build(twoLayers(c), megakernel.Options{})
	require.NoError(t, err)
	r, err := check(t.Context(), Request{Config: c, Seed: 1, Steps: steps, Contexts: []int{m.context}}, m.edit(mk))
	require.NoError(t, err)
	require.Len(t, r.Findings, 1)
	f := r.Findings[0]
	require.Regexp(t, m.text, f.Kind+": "+f.Text)
	require.Contains(t, fmt.Sprint(f.Sides), m.line)
}
