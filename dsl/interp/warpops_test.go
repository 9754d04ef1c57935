package interp_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

// perLane runs one warp whose lane l starts with 100·l + 7.
func perLane(t *testing.T, f func(k *dsl.Kernel, v dsl.Val[dsl.U32]) dsl.Val[dsl.U32]) []uint32 {
	t.Helper()
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		dsl.Global[dsl.U32](k, "y", 32).Store(k.Lane(), f(k, k.Lane().MulC(100).AddC(7)))
	})
	m := bufs(p)
	run(t, p, m, 0)
	return u32s(m.Bytes("y"))
}

func TestShuffles(t *testing.T) {
	at := func(l int) uint32 { return uint32(100*l + 7) }
	tests := []struct {
		name string
		dev  func(k *dsl.Kernel, v dsl.Val[dsl.U32]) dsl.Val[dsl.U32]
		from func(l int) int
	}{
		{"idx", func(k *dsl.Kernel, v dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
			return dsl.Shfl(v, k.Lane().MulC(3).AddC(35))
		}, func(l int) int { return (3*l + 35) % 32 }},
		{"xor", func(k *dsl.Kernel, v dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return dsl.ShflXor(v, 5) },
			func(l int) int { return l ^ 5 }},
		{"up", func(k *dsl.Kernel, v dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return dsl.ShflUp(v, 3) }, func(l int) int {
			if l < 3 {
				return l
			}
			return l - 3
		}},
		{"down", func(k *dsl.Kernel, v dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return dsl.ShflDown(v, 30) }, func(l int) int {
			if l > 1 {
				return l
			}
			return l + 30
		}},
	}
	for _, tt := range tests {
		got := perLane(t, tt.dev)
		for l, g := range got {
			require.Equal(t, at(tt.from(l)), g, "%s lane %d", tt.name, l)
		}
	}
}

func TestVotes(t *testing.T) {
	pred := func(n int, f func(k *dsl.Kernel, p dsl.Pred) dsl.Val[dsl.U32]) uint32 {
		return perLane(t, func(k *dsl.Kernel, v dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return f(k, v.LtC(100*n)) })[11]
	}
	ballot := func(k *dsl.Kernel, p dsl.Pred) dsl.Val[dsl.U32] { return dsl.Ballot(p) }
	all := func(k *dsl.Kernel, p dsl.Pred) dsl.Val[dsl.U32] { return dsl.Select(dsl.All(p), k.U32(1), k.U32(0)) }
	some := func(k *dsl.Kernel, p dsl.Pred) dsl.Val[dsl.U32] { return dsl.Select(dsl.Any(p), k.U32(1), k.U32(0)) }
	require.Equal(t, uint32(0x1f), pred(5, ballot))
	require.Equal(t, []uint32{0, 1, 0, 1}, []uint32{pred(31, all), pred(32, all), pred(0, some), pred(1, some)})
}

func TestMMAIsAMatrixProduct(t *testing.T) {
	matrixProduct[dsl.BF16x2](t, func(x float32) uint32 { return math.Float32bits(x) >> 16 })
	matrixProduct[dsl.F16x2](t, func(x float32) uint32 { // x is a number of few bits, far from the format's limits
		if x == 0 {
			return 0
		}
		u := math.Float32bits(x)
		return u>>16&0x8000 | (u>>23&0xff-127+15)<<10 | u>>13&0x3ff
	})
}

// matrixProduct multiplies in one of the two formats; half is the bits of x in it.
func matrixProduct[P dsl.Pair](t *testing.T, half func(x float32) uint32) {
	r := rand.New(rand.NewPCG(1, 1))
	var a [16][16]float32
	var b [16][8]float32
	var c [16][8]float32
	small := func() float32 { return float32(r.IntN(65)-32) / 8 } // exact in both, sums exact in f32
	for i := range a {
		for j := range a[i] {
			a[i][j] = small()
		}
	}
	for i := range b {
		for j := range b[i] {
			b[i][j] = small()
			c[i][j] = small()
		}
	}
	// A lane's fragments are laid out here from PTX's figures for m16n8k16.
	words := make([]uint32, 0, 32*12)
	for l := range 32 {
		g, q := l/4, l%4
		pair := func(lo, hi float32) uint32 { return half(lo) | half(hi)<<16 }
		words = append(words,
			pair(a[g][2*q], a[g][2*q+1]), pair(a[g+8][2*q], a[g+8][2*q+1]),
			pair(a[g][2*q+8], a[g][2*q+9]), pair(a[g+8][2*q+8], a[g+8][2*q+9]),
			pair(b[2*q][g], b[2*q+1][g]), pair(b[2*q+8][g], b[2*q+9][g]),
			math.Float32bits(c[g][2*q]), math.Float32bits(c[g][2*q+1]), math.Float32bits(c[g+8][2*q]),
			math.Float32bits(c[g+8][2*q+1]), 0, 0)
	}
	p := build(t, 1, 1, func(k *dsl.Kernel) {
		x, y := dsl.Global[dsl.U32](k, "x", 32*12, dsl.ReadOnly()), dsl.Global[dsl.F32](k, "y", 128)
		v := make([]dsl.Val[dsl.U32], 10)
		for i := range v {
			v[i] = x.Load(k.Lane().MulC(12).AddC(i))
		}
		bf := func(i int) dsl.Val[P] { return dsl.Bits[P](v[i]) }
		f := func(i int) dsl.Val[dsl.F32] { return dsl.Bits[dsl.F32](v[i]) }
		d := dsl.MMA([4]dsl.Val[P]{bf(0), bf(1), bf(2), bf(3)}, [2]dsl.Val[P]{bf(4), bf(5)},
			[4]dsl.Val[dsl.F32]{f(6), f(7), f(8), f(9)})
		y.StoreN(k.Lane().MulC(4), d[:])
	})
	m := bufs(p)
	m.Bind("x", putU32s(words...))
	run(t, p, m, 0)
	y := f32s(m.Bytes("y"))
	for i := range 16 {
		for j := range 8 {
			want := float64(c[i][j])
			for k := range 16 {
				want += float64(a[i][k]) * float64(b[k][j])
			}
			lane, reg := i%8*4+j/2, j%2+2*(i/8)
			require.Equal(t, want, float64(y[4*lane+reg]), "D[%d][%d]", i, j)
		}
	}
}

func TestLdMatrixLayout(t *testing.T) {
	for _, trans := range []bool{false, true} {
		p := build(t, 1, 1, func(k *dsl.Kernel) {
			y := dsl.Global[dsl.U32](k, "y", 128)
			s := dsl.Shared[dsl.BF16](k, "s", 32*8, dsl.Align(16))
			for i := range 8 { // element e holds the number e
				e := k.Lane().MulC(8).AddC(i)
				s.Store(e, dsl.Bits[dsl.BF16](dsl.Cast[dsl.U16](e)))
			}
			k.SyncWarp()
			for i, v := range dsl.LoadMatrix(s, k.Lane().MulC(8), trans) {
				y.Store(k.Lane().MulC(4).AddC(i), dsl.Bits[dsl.U32](v))
			}
		})
		m := bufs(p)
		run(t, p, m, 0)
		y := u32s(m.Bytes("y"))
		for l := range 32 {
			for i := range 4 {
				at := func(row, col int) uint32 { return uint32(64*i + 8*row + col) }
				want := at(l/4, l%4*2) | at(l/4, l%4*2+1)<<16
				if trans {
					want = at(l%4*2, l/4) | at(l%4*2+1, l/4)<<16
				}
				require.Equal(t, want, y[4*l+i], "trans %v lane %d matrix %d", trans, l, i)
			}
		}
	}
}

func TestCollectivesWantAllLanes(t *testing.T) {
	ops := map[ir.Op]func(k *ir.Kernel, in *ir.Instr){
		ir.OpShflXor: nil, ir.OpReduxMax: nil, ir.OpReduxAdd: nil, ir.OpIMMA: nil, ir.OpBallot: nil, ir.OpVoteAll: nil,
		ir.OpVoteAny: nil, ir.OpSyncWarp: nil, ir.OpBarCTA: nil, ir.OpBarSync: nil,
	}
	for op := range ops {
		in := &ir.Instr{Op: op, Pos: ir.Pos{Line: "here.go:1"}}
		switch op {
		case ir.OpShflXor:
			in.T, in.Args = ir.U32, []*ir.Value{ir.ConstInt(ir.U32, 1), ir.ConstInt(ir.U32, 1)}
		case ir.OpReduxMax, ir.OpReduxAdd:
			in.T, in.Args = ir.U32, []*ir.Value{ir.ConstInt(ir.U32, 1)}
		case ir.OpIMMA:
			in.T, in.Args = ir.I32, slices.Repeat([]*ir.Value{ir.ConstInt(ir.I32, 1)}, 10)
		case ir.OpBallot, ir.OpVoteAll, ir.OpVoteAny:
			in.Args = []*ir.Value{ir.ConstInt(ir.Pred, 1)}
		case ir.OpBarSync:
			in.Attr = ir.Attr{Imm: 1, N: 32}
		}
		types, err := op.Info().Sig(in)
		require.NoError(t, err)
		for i, ty := range types {
			in.Res = append(in.Res, &ir.Value{ID: 2 + i, Type: ty, Def: in})
		}
		lane := &ir.Instr{Op: ir.OpLane, T: ir.U32, Res: []*ir.Value{{ID: 0, Type: ir.U32}}}
		cond := &ir.Instr{Op: ir.OpLt, T: ir.Pred, Args: []*ir.Value{lane.Res[0], ir.ConstInt(ir.U32, 9)},
			Res: []*ir.Value{{ID: 1, Type: ir.Pred}}}
		k := &ir.Kernel{Name: "k", Warps: 1, NumValues: 6, Body: &ir.Block{Stmts: []ir.Stmt{lane, cond,
			&ir.If{Cond: cond.Res[0], Then: &ir.Block{Stmts: []ir.Stmt{in}}}}}}
		f := faultIn(t, load(t, k), 1)
		want := interp.InactiveLanes
		if op == ir.OpBarCTA || op == ir.OpBarSync {
			want = interp.DivergentBarrier
		}
		require.Equal(t, want, f.Kind, op.String())
		require.Contains(t, f.Text, "needs all 32 lanes of the warp, active are 0-8")
	}
}
