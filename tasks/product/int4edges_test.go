package product_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// plainInt4 are kernels of all kinds of codes and scale groups.
func plainInt4() []int4Case {
	return []int4Case{
		{shape: i4.Shape{Group: 128, Run: 2}, runs: 2, warps: 2, n: 2},
		{shape: i4.Shape{Group: 128, Run: 2, Zeros: true}, runs: 2, warps: 1, n: 1},
		{shape: i4.Shape{Group: 32, Run: 2}, runs: 1, warps: 1, n: 2},
		{shape: i4.Shape{Group: 128, Run: 2, Zeros: true, Wide: true}, runs: 1, warps: 1, n: 2},
		{shape: i4.Shape{Group: 64, Run: 2, Wide: true}, runs: 1, warps: 2, n: 1},
		{shape: i4.Shape{Group: 16, Run: 2, E2M1: true}, runs: 2, warps: 2, n: 2},
		{shape: i4.Shape{Group: 32, Run: 2, E2M1: true}, bf16: true, runs: 2, warps: 2, n: 2},
		{shape: i4.Shape{Group: 32, Run: 2, E2M1: true}, bf16: true, runs: 1, warps: 1, n: 1},
	}
}

// oddity makes a case's random data odd.
type oddity func(d *int4Data, rng *rand.Rand)

// alike makes all codes and all zero points one, and, unless x is 0, all elements of the input.
func alike(code, zero int8, x float32) oddity {
	return func(d *int4Data, _ *rand.Rand) {
		for _, run := range d.runs {
			for row := range i4.Rows {
				run.Codes[row] = slices.Repeat([]int8{code}, len(run.Codes[row]))
				run.Zeros[row] = slices.Repeat([]int8{zero}, len(run.Zeros[row]))
			}
		}
		for i := range d.x {
			if x != 0 {
				d.x[i] = x
			}
		}
	}
}

// oneOf draws the elements of all groups, or of every second one, from a list.
func oneOf(every int, list ...float32) oddity {
	return func(d *int4Data, rng *rand.Rand) {
		for i := range d.x {
			if i/128%every == 0 {
				d.x[i] = list[rng.IntN(len(list))]
			}
		}
	}
}

var oddities = []oddity{
	alike(-8, 0, 0), alike(7, 0, 0), alike(0, 8, 0), alike(7, 7, 0),
	// The largest sums there can be, of both signs: every q is ±MaxFixed, and lo 127 or −127.
	alike(-8, 8, i4.MaxFixed), alike(-8, 8, -i4.MaxFixed),
	alike(7, -8, i4.MaxFixed*0x1p-40), alike(-8, 0, -i4.MaxFixed*0x1p40),
	// lo is −128: q is 128 more, or less, than 256 times something.
	alike(-8, 0, 16512), alike(7, 0, -32640), alike(-8, 0, -128),
	oneOf(2, 0, float32(math.Copysign(0, -1))),
	// About where a larger unit begins, and halves between two steps.
	oneOf(1, i4.MaxFixed, i4.MaxFixed+0.5, i4.MaxFixed+1, 32767.5, -32768, 0.5, 1.5, -2.5, 16384.5),
	// The least floats beside others, and floats near the largest.
	oneOf(2, math.SmallestNonzeroFloat32, -0x1p-126, 0x1p-108, 0), oneOf(2, 0x1.8p100, -0x1p101, 0x1p80),
	func(d *int4Data, rng *rand.Rand) { // one huge and many tiny values
		for i := range d.x {
			d.x[i] = float32(rng.NormFloat64() * 1e-3)
			if i%128 == i/128%128 {
				d.x[i] *= 1e7
			}
		}
	},
}

// wideOddities are those of 8 bits: the largest sums, which have room in 32 bits with zero points, too.
var wideOddities = []oddity{
	alike(-128, 127, i4.MaxFixed), alike(127, -128, i4.MaxFixed), alike(-128, 127, -i4.MaxFixed), alike(-128, 0, 16512),
	alike(127, 127, -32640),
}

func TestInt4OfOddValues(t *testing.T) {
	for _, c := range plainInt4() {
		changes := oddities
		if c.shape.Wide {
			changes = append(wideOddities, oddities...)
		}
		for _, change := range changes {
			rng := rand.New(rand.NewPCG(uint64(c.warps), 9))
			d := c.random(rng)
			change(d, rng)
			c.check(t, d)
		}
	}
}

// What is no number anywhere in the input makes all sums none.
func TestInt4OfNoNumbers(t *testing.T) {
	for _, c := range plainInt4() {
		for _, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			d := c.random(rand.New(rand.NewPCG(7, 7)))
			d.x[77] = float32(odd)
			for row, v := range rig.F32s(int4Rig(t, c, d).Run()["y"]) {
				require.True(t, math.IsNaN(v), "%s: %v, row %d", c, odd, row)
			}
		}
	}
}

// TestInt4SeesMutatedWeights breaks what the kernel gets.
func TestInt4SeesMutatedWeights(t *testing.T) {
	for name, change := range map[string]func(c int4Case, packed []byte){
		"the nibbles of a byte":         func(_ int4Case, p []byte) { p[70] = p[70]<<4 | p[70]>>4 },
		"a neighbouring row's scale":    scaleFrom(3, 0),
		"a neighbouring group's scale":  scaleFrom(2, 1),
		"a zero point off by one":       func(c int4Case, p []byte) { p[c.shape.Entry(5, 1)+2] += byte(c.shape.Times()) },
		"two words of a unit":           func(_ int4Case, p []byte) { swap(p[32:36], p[36:40]) },
		"two units of a row":            func(_ int4Case, p []byte) { swap(p[64:80], p[80:96]) },
		"two blocks' codes":             func(_ int4Case, p []byte) { swap(p[:512], p[512:1024]) },
		"a code without its sign taken": func(_ int4Case, p []byte) { p[11] ^= 8 },
	} {
		for _, c := range plainInt4() {
			if name == "a zero point off by one" && !c.shape.Zeros {
				continue
			}
			d := c.random(rand.New(rand.NewPCG(1, 8)))
			if scales := &d.runs[0].Scales; c.shape.Exponents() { // of so few that neighbours may be alike
				scales[2][0], scales[2][1], scales[3][0] = 120, 121, 122
			}
			d.mutated = func(packed []byte) { change(c, packed) }
			require.False(t, c.agrees(t, d, int4Rig(t, c, d).Load()), "%s, %s: nobody sees it", c, name)
		}
	}
}

// scaleFrom gives row 2 and group 0 another's scale.
func scaleFrom(row, group int) func(c int4Case, packed []byte) {
	return func(c int4Case, p []byte) {
		copy(p[c.shape.Entry(2, 0):][:min(c.shape.EntryBytes(), 2)], p[c.shape.Entry(row, group):])
	}
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

// agrees runs a program of the case once: whether all sums are exact's.
func (c int4Case) agrees(t *testing.T, d *int4Data, p *interp.Program) bool {
	t.Helper()
	got, err := int4Rig(t, c, d).Once(p, 1)
	if err != nil {
		return false // a fault is seen as well
	}
	for i, v := range c.exact(d) {
		if rig.F32s(got["y"])[i] != float64(v) {
			return false
		}
	}
	return true
}

// int4Mutants change one instruction each, and say whether they apply.
var int4Mutants = []struct {
	name  string
	apply func(in *ir.Instr) bool
}{
	{"rows of A changed places", func(in *ir.Instr) bool { return in.Op == ir.OpIMMA && exchange(in, 0, 1) }},
	{"columns of A changed places", func(in *ir.Instr) bool { return in.Op == ir.OpIMMA && exchange(in, 0, 2) }},
	{"rows of B changed places", func(in *ir.Instr) bool { return in.Op == ir.OpIMMA && exchange(in, 4, 5) }},
	{"the other of two chosen", func(in *ir.Instr) bool { return in.Op == ir.OpSelect && exchange(in, 1, 2) }},
	{"high bytes worth half", constant(ir.OpShl, 8, 7)},
	{"low nibbles not shifted", constant(ir.OpShl, 4, 0)},
	{"high and low bytes exchanged", selector(0x7632, 0x5410)},
	{"low bytes for high ones", selector(0x5410, 0x7632)},
	{"elements out of order", selector(0x5140, 0x4051)},
	{"low bytes without their sign", constant(ir.OpXor, 0x80808080, 0)},
	{"the other nibbles", constant(ir.OpAnd, 0xf0f0f0f0, 0x0f0f0f0f)},
	{"units too fine", constant(ir.OpAdd, i4.OverFixed, 0)},
}

func exchange(in *ir.Instr, i, j int) bool {
	changed := in.Args[i] != in.Args[j]
	in.Args[i], in.Args[j] = in.Args[j], in.Args[i]
	return changed
}

// constant puts one constant operand in the place of another.
func constant(op ir.Op, from, to uint64) func(in *ir.Instr) bool {
	return func(in *ir.Instr) bool {
		for i, a := range in.Args {
			if in.Op == op && a.Const && a.Bits == from {
				in.Args[i] = ir.ConstInt(a.Type, int64(to))
				return true
			}
		}
		return false
	}
}

func selector(from, to int64) func(in *ir.Instr) bool {
	return func(in *ir.Instr) bool {
		if in.Op != ir.OpPrmt || in.Attr.Imm != from {
			return false
		}
		in.Attr.Imm = to
		return true
	}
}

// TestInt4SeesMutatedInstructions breaks each instruction of the kernel that a mutant applies to.
func TestInt4SeesMutatedInstructions(t *testing.T) {
	seen := map[string]int{}
	for _, c := range plainInt4() {
		rng := rand.New(rand.NewPCG(2, 8))
		d := c.random(rng)
		for i := range d.x { // groups alike in size, and near the top of a unit, where it shows that a unit is too fine
			if d.x[i] = float32(rng.NormFloat64() * 512); i%128 == 5 {
				d.x[i] = 32700 * 0x1p-3
			}
		}
		for _, m := range int4Mutants {
			for site := 0; ; site++ {
				p, found := mutated(t, int4Rig(t, c, d), m.apply, site)
				if !found {
					break
				}
				seen[m.name]++
				require.False(t, c.agrees(t, d, p), "%s: nobody sees %s, place %d", c, m.name, site)
			}
		}
	}
	require.Len(t, seen, len(int4Mutants), "what applies: %v", seen)
}

// mutated is a kernel with the site-th instruction changed that a mutant applies to.
func mutated(t *testing.T, r *rig.Rig, apply func(in *ir.Instr) bool, site int) (p *interp.Program, found bool) {
	kernel, err := r.K.Finish()
	require.NoError(t, err)
	kernel.Instrs(func(in *ir.Instr) {
		if found {
			return
		}
		old, imm := slices.Clone(in.Args), in.Attr.Imm
		if !apply(in) {
			in.Args, in.Attr.Imm = old, imm
			return
		}
		if found = site == 0; !found {
			in.Args, in.Attr.Imm = old, imm
		}
		site--
	})
	if !found {
		return nil, false
	}
	p, err = interp.Load(kernel)
	require.NoError(t, err)
	return p, true
}
