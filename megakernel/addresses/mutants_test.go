package addresses_test

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/bounds"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/addresses"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mutant puts something else for the results of the operations of some lines.
type mutant struct {
	name  string
	lines []string // "file.go:line" of the operations, with the text of the callers where several have the line
	op    ir.Op    // of the operations; 0: any that makes an integer
	edit  func(e *editor, v *ir.Value) *ir.Value
	index func(e *editor, v *ir.Value) *ir.Value // for edit: of what the accesses of the lines are indexed with
	want  bounds.Kind
	at    string // where the finding is
}

// editor adds instructions behind one.
type editor struct {
	k   *ir.Kernel
	pos ir.Pos
	out []ir.Stmt
}

func (e *editor) op(op ir.Op, t ir.Type, args ...*ir.Value) *ir.Value {
	in := &ir.Instr{Pos: e.pos, Op: op, T: t, Args: args}
	v := &ir.Value{ID: e.k.NumValues, Type: t, Def: in}
	e.k.NumValues++
	in.Res = []*ir.Value{v}
	e.out = append(e.out, in)
	return v
}

// plus adds n.
func plus(n int64) func(e *editor, v *ir.Value) *ir.Value {
	return func(e *editor, v *ir.Value) *ir.Value { return e.op(ir.OpAdd, v.Type, v, ir.ConstInt(v.Type, n)) }
}

// short keeps the low 32 bits of times as much, and divides by that again.
func short(times int64) func(e *editor, v *ir.Value) *ir.Value {
	return func(e *editor, v *ir.Value) *ir.Value {
		x := v
		if times > 1 {
			x = e.op(ir.OpMul, v.Type, x, ir.ConstInt(v.Type, times))
		}
		if v.Type == ir.U64 {
			x = e.op(ir.OpCvt, ir.U64, e.op(ir.OpCvt, ir.U32, x))
		}
		if times > 1 {
			x = e.op(ir.OpDiv, v.Type, x, ir.ConstInt(v.Type, times))
		}
		return x
	}
}

// plant is a kernel with the mutant, and in how many places it is.
func (m *mutant) plant(k *ir.Kernel) (*ir.Kernel, int) {
	k = mutate.Clone(k)
	planted := map[*ir.Value]*ir.Value{}
	m.block(k, k.Body, planted)
	ir.Walk(k.Body, func(s ir.Stmt) bool {
		replaceIn(s, planted)
		return true
	})
	return k, len(planted)
}

func (m *mutant) block(k *ir.Kernel, b *ir.Block, planted map[*ir.Value]*ir.Value) {
	var stmts []ir.Stmt
	for _, s := range b.Stmts {
		for _, inner := range ir.Blocks(s) {
			m.block(k, inner, planted)
		}
		in, ok := s.(*ir.Instr)
		if ok && m.index != nil && len(in.Mem) > 0 && m.names(in) {
			e := &editor{k: k, pos: in.Pos}
			in.Mem[0].Index = m.index(e, in.Mem[0].Index)
			stmts = append(stmts, e.out...)
			planted[in.Mem[0].Index] = in.Mem[0].Index
		}
		stmts = append(stmts, s)
		if !ok || m.edit == nil || len(in.Res) != 1 || !in.Res[0].Type.IsInt() || !m.names(in) {
			continue
		}
		e := &editor{k: k, pos: in.Pos}
		planted[in.Res[0]] = m.edit(e, in.Res[0])
		stmts = append(stmts, e.out...)
	}
	b.Stmts = stmts
}

func (m *mutant) names(in *ir.Instr) bool {
	for _, l := range m.lines {
		if strings.HasPrefix(in.Pos.String(), l) && (m.op == 0 || m.op == in.Op) {
			return true
		}
	}
	return false
}

// replaceIn puts what was planted for what it was made of, but in what it is made of.
func replaceIn(s ir.Stmt, planted map[*ir.Value]*ir.Value) {
	swap := func(v **ir.Value) {
		if to, ok := planted[*v]; ok {
			*v = to
		}
	}
	switch s := s.(type) {
	case *ir.If:
		swap(&s.Cond)
	case *ir.For:
		swap(&s.Lo)
		swap(&s.Hi)
	case *ir.Instr:
		for from, to := range planted {
			for in := to.Def; in != nil; in = first(in) {
				if in == s {
					return
				}
				if len(in.Args) > 0 && in.Args[0] == from {
					break
				}
			}
		}
		for i := range s.Args {
			swap(&s.Args[i])
		}
		for i := range s.Mem {
			if s.Mem[i].Index != nil {
				swap(&s.Mem[i].Index)
			}
		}
	}
}

func first(in *ir.Instr) *ir.Instr {
	if len(in.Args) == 0 {
		return nil
	}
	return in.Args[0].Def
}

func kernel(t testing.TB, model string, o megakernel.Options) *megakernel.Kernel {
	c, err := models.Lookup(model)
	require.NoError(t, err)
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	return mk
}

// line is where a file has a text, which must be once.
func line(t testing.TB, file, text string) string {
	src, err := os.ReadFile("../../" + file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(src), text), "%s: %s", file, text)
	before, _, _ := strings.Cut(string(src), text)
	return fmt.Sprintf("%s:%d ", path.Join(path.Base(path.Dir(file)), path.Base(file)), 1+strings.Count(before, "\n"))
}

// Three of a review's mutants survived every other check together.
func TestWideArithmeticDoneInThirtyTwoBits(t *testing.T) {
	mk := kernel(t, "llama3-8b", megakernel.Options{})
	for _, m := range []mutant{
		{name: "KV index in 32 bits", at: line(t, "tasks/attention/qkv.go", "p.kv.Store(base.Add(p.element(0, i, 8)), "),
			edit: short(1)},
		{name: "KV row in 32-bit bytes", at: line(t, "tasks/attention/kv.go", "return row.MulC(l.TokenUnits())"), edit: short(16)},
		{name: "weight offset in 32-bit bytes",
			at: line(t, "megakernel/assemble.go", "dsl.Cast[dsl.U64](s.Layer).MulC(int(p.LayerBytes / 16))"), edit: short(16)},
	} {
		m.want = bounds.Overflow
		t.Run(m.name, func(t *testing.T) { m.reported(t, mk) })
	}
}

// What is one too many, or one too far, is reported at the access where it tells.
func TestIndicesOneTooFar(t *testing.T) {
	deep.Only(t)
	mk := kernel(t, "tiny", megakernel.Options{})
	for _, m := range []mutant{
		{name: "a logit behind the vocabulary", at: line(t, "tasks/product/lmhead.go", "t.Logits.StoreN(row"), index: plus(2)},
		{name: "a slot behind the page",
			lines: []string{line(t, "tasks/attention/qkv.go", `slot: s.Pos.RemC(t.KV.Page).Named("slot")`)}, op: ir.OpRem, edit: plus(1),
			at: line(t, "tasks/attention/qkv.go", "p.kv.Store(base.Add(p.element(0, i, 8)), ")},
		{name: "the page behind the last position's",
			at: line(t, "tasks/attention/qkv.go", "page := s.Table.Load(s.Pos.DivC(t.KV.Page))"), op: ir.OpDiv, edit: plus(1)},
		{name: "states behind the last split's",
			lines: []string{line(t, "tasks/attention/attentionmerge.go",
				"at: func(state, word u32) u32 { return state.MulC(t.Heads * d / 2).Add(word) }}")}, op: ir.OpMul, edit: plus(2048),
			at: line(t, "tasks/grid/ll.go", "first := b.Load(i, dsl.Relaxed(dsl.GPUScope))")},
	} {
		m.want = bounds.Outside
		t.Run(m.name, func(t *testing.T) { m.reported(t, mk) })
	}
	m := mutant{at: line(t, "tasks/attention/unsplit.go", "first, end = it.split.Mul(chunks).DivC(splits)"), op: ir.OpMul,
		edit: short(1 << 14), want: bounds.Overflow}
	t.Run("a product before its quotient",
		func(t *testing.T) { m.reported(t, kernel(t, "llama3-8b", megakernel.Options{})) })
}

// An access is held against its own region of shared memory, not against all of it: of each buffer that a kernel fills
// to its end, a missing end is missed.
func TestASharedBufferThatLacksItsEndIsReported(t *testing.T) {
	mk := kernel(t, "tiny", megakernel.Options{Tokens: 16, Weights: pipeline.FormatI4G64})
	for _, name := range []string{"scratch_or_partials", "first_rows", "items"} {
		k, short := mutate.Clone(mk.IR), ""
		for _, b := range k.Shareds() {
			if b.Name == name {
				b.Len -= max(1, b.Len/4)
				short = fmt.Sprintf("of @%s: index", name)
			}
		}
		require.NotEmpty(t, short, "no shared buffer %s", name)
		found := addresses.Check(mk, k, addresses.Positions).Findings
		assert.True(t, slices.ContainsFunc(found, func(f bounds.Finding) bool {
			return f.Kind == bounds.Outside && strings.Contains(f.Text, short)
		}), "%s: %v", name, found)
	}
}

func (m *mutant) reported(t *testing.T, mk *megakernel.Kernel) {
	if m.lines == nil {
		m.lines = []string{m.at}
	}
	k, n := m.plant(mk.IR)
	require.Positive(t, n)
	require.Empty(t, ir.Errors(ir.Verify(k)))
	var found []string
	for _, f := range addresses.Check(mk, k, 1<<20).Findings {
		if f.Kind == m.want && strings.HasPrefix(f.Pos.String(), m.at) {
			return
		}
		found = append(found, f.String())
	}
	require.Fail(t, "not reported", "%d places; %s", n, strings.Join(found, "\n"))
}
