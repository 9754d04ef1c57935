package kernels

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/emit"
	"github.com/stretchr/testify/require"
)

// operator is a named function of two integers of one type.
type operator[T dsl.Int] struct {
	name string
	of   func(a, b dsl.Val[T]) dsl.Val[T]
}

// operators are those whose text may bind more or less tightly than its operands'. The last two divide.
func operators[T dsl.Int]() []operator[T] {
	type v = dsl.Val[T]
	return []operator[T]{
		{"add", v.Add}, {"sub", v.Sub}, {"mul", v.Mul}, {"and", v.And}, {"or", v.Or}, {"xor", v.Xor}, {"min", v.Min},
		{"max", v.Max},
		{"shl", func(a, b v) v { return a.ShlC(3).Add(b) }},
		{"shr", func(a, b v) v { return b.Sub(a.ShrC(2)) }},
		{"not", func(a, b v) v { return a.Xor(b.Not()) }},
		{"constants", func(a, b v) v { return a.AddC(-8).Mul(b.SubC(10)) }},
		{"less", func(a, b v) v { return dsl.Select(a.Lt(b).Xor(a.Eq(b)).Or(b.Ne(a).And(a.Gt(b).Not())), a, b) }},
		{"at most", func(a, b v) v { return dsl.Select(a.Le(b).And(a.Ge(b).Or(a.Ne(b))), b, a) }},
		{"word", func(a, b v) v { return throughWords(a, b) }},
		{"div", v.Div}, {"rem", v.Rem},
	}
}

// throughWords multiplies quotients and remainders in the other types: u32 in i32, what is wider in u32.
func throughWords[T dsl.Int](a, b dsl.Val[T]) dsl.Val[T] {
	switch a := any(a).(type) {
	case dsl.Val[dsl.U32]:
		x, y := dsl.Bits[dsl.I32](a), dsl.Bits[dsl.I32](any(b).(dsl.Val[dsl.U32]).Div(a))
		return any(dsl.Bits[dsl.U32](x.Mul(y).Sub(x))).(dsl.Val[T])
	case dsl.Val[dsl.I32]:
		x, y := dsl.Bits[dsl.U32](a), dsl.Bits[dsl.U32](any(b).(dsl.Val[dsl.I32]).Rem(a))
		return any(dsl.Bits[dsl.I32](x.Mul(y).Sub(x))).(dsl.Val[T])
	}
	x, y := dsl.Cast[dsl.U32](a), dsl.Cast[dsl.U32](b).RemC(1000)
	return dsl.Cast[T](y.Mul(x).Sub(x))
}

// The leaves of an expression, of each lane: all odd, and of sizes apart, so that hardly anything of two that is
// divided by is 0.
const leaves = 3

func leavesOf(rng *rand.Rand) [leaves]uint32 {
	for {
		l := [leaves]uint32{rng.Uint32N(1<<31-1<<20) + 1<<20 | 1, (rng.Uint32N(4000) + 1000) | 1, (rng.Uint32N(80) + 13) | 1}
		if l[0]%l[1] != 0 && l[1]%l[2] != 0 && l[0]%l[2] != 0 {
			return l
		}
	}
}

// pairs stores every two operators' expressions of leaves, each operator on either side of the other, and returns what
// each 32 elements of out are.
func pairs[T dsl.Int](k *dsl.Kernel, out dsl.Buf[T], leaf func(i int) dsl.Val[T]) (names []string) {
	a, b, c := leaf(0).Named("a"), leaf(1).Named("b"), leaf(2).Named("c")
	store := func(name string, x dsl.Val[T]) {
		out.Store(k.Lane().AddC(dsl.WarpSize*len(names)), x)
		names = append(names, name)
	}
	for _, x := range operators[T]() {
		for _, y := range operators[T]() {
			store(fmt.Sprintf("%s(%s(a, b), c)", x.name, y.name), x.of(y.of(a, b), c))
			if strings.Contains("div rem", x.name) && strings.Contains("word constants shr", y.name) {
				continue // by what may be 0
			}
			store(fmt.Sprintf("%s(c, %s(a, b))", x.name, y.name), x.of(c, y.of(a, b)))
		}
	}
	rng, all := rand.New(rand.NewPCG(3, 4)), operators[T]()
	var tree func(depth int) dsl.Val[T]
	tree = func(depth int) dsl.Val[T] {
		op := all[rng.IntN(len(all))]
		switch {
		case depth == 0:
			return []dsl.Val[T]{a, b, c}[rng.IntN(leaves)]
		case op.name == "div" || op.name == "rem":
			return op.of(tree(depth-1), tree(0))
		case op.name == "word": // divides by its first operand
			return op.of(tree(0), tree(depth-1))
		}
		return op.of(tree(depth-1), tree(rng.IntN(depth)))
	}
	for i := range 200 {
		store(fmt.Sprintf("random %d", i), tree(2+i%3))
	}
	return names
}

var elementBytes = map[string]int{"u32": 4, "i32": 4, "u64": 8}

// room is the elements of a buffer of results.
const room = 1 << 15

func TestTheTextOfAnExpressionSaysWhatItsProgramComputes(t *testing.T) {
	k := dsl.New("expressions", dsl.Options{Warps: 1, Grid: 1})
	in := dsl.Global[dsl.U32](k, "in", dsl.WarpSize*leaves, dsl.ReadOnly())
	leaf := func(i int) dsl.Val[dsl.U32] { return in.Load(k.Lane().AddC(dsl.WarpSize * i)) }
	names := map[string][]string{
		"u32": pairs(k, dsl.Global[dsl.U32](k, "u32s", room), leaf),
		"i32": pairs(k, dsl.Global[dsl.I32](k, "i32s", room),
			func(i int) dsl.Val[dsl.I32] { return dsl.Bits[dsl.I32](leaf(i)) }),
		"u64": pairs(k, dsl.Global[dsl.U64](k, "u64s", room),
			func(i int) dsl.Val[dsl.U64] { x := dsl.Cast[dsl.U64](leaf(i)); return x.ShlC(31).Add(x) }),
	}
	p, err := k.Finish()
	require.NoError(t, err)

	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 4*dsl.WarpSize*leaves)
	for lane := range dsl.WarpSize {
		for i, x := range leavesOf(rng) {
			binary.LittleEndian.PutUint32(data[4*(dsl.WarpSize*i+lane):], x)
		}
	}
	program, err := interp.Load(p)
	require.NoError(t, err)
	mem := interp.NewMemory()
	mem.Bind("in", data)
	for _, b := range p.Globals() {
		if b.Name != "in" {
			mem.Bind(b.Name, make([]byte, b.Bytes()))
		}
	}
	_, err = program.Run(mem, interp.Options{})
	require.NoError(t, err)

	tg, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	src, err := emit.Print(p, tg, emit.Options{})
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(src.Text), `extern "C"`)
	_, text, _ = strings.Cut(text, "const u32 a = ")
	text = "const u32 a = " + text
	stores := 0
	const apart = 8
	for lane := 0; lane < dsl.WarpSize; lane += apart {
		c := &cText{names: map[string]cNumber{"lane": cOf(uint64(lane), "u32"), "true": cOf(1, "bool"),
			"false": cOf(0, "bool")}}
		c.load = func(_ string, i uint64) cNumber { return cOf(uint64(binary.LittleEndian.Uint32(data[4*i:])), "u32") }
		c.store = func(buffer string, i uint64, v cNumber) {
			ctype := strings.TrimSuffix(buffer, "s")
			at := mem.Bytes(buffer)[int(i)*elementBytes[ctype]:]
			want := uint64(binary.LittleEndian.Uint32(at))
			if ctype == "u64" {
				want = binary.LittleEndian.Uint64(at)
			}
			require.Equal(t, want, cOf(uint64(v.i()), ctype).bits, "%s of %s, lane %d: %s", names[ctype][i/dsl.WarpSize],
				ctype, lane, c.now)
			stores++
		}
		c.run(text)
	}
	require.Equal(t, dsl.WarpSize/apart*(len(names["u32"])+len(names["i32"])+len(names["u64"])), stores)
}
