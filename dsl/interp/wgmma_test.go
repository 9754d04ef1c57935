package interp_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/stretchr/testify/require"
)

// swizzled lays rows of K 16-bit elements out as wgmma's operands: groups of 8 rows, each a run of atoms of 8 rows of
// swizzle bytes, whose 16-byte units change places as PTX's swizzle modes say: address bits 4 to 6 xor bits 7 to 9, the
// last ones of swizzle.
func swizzled(rows [][]uint16, swizzle int) (data []byte, stride int) {
	per := swizzle / 2
	stride = len(rows[0]) / per * 8 * swizzle
	data = make([]byte, len(rows)/8*stride)
	for r, row := range rows {
		for k, x := range row {
			at := r/8*stride + k/per*8*swizzle + r%8*swizzle + k%per*2
			at ^= at >> 7 & (swizzle/16 - 1) << 4
			binary.LittleEndian.PutUint16(data[at:], x)
		}
	}
	return data, stride
}

func randomRows(r *rand.Rand, rows, cols int, f16 bool) ([][]uint16, [][]float64) {
	bits, vals := make([][]uint16, rows), make([][]float64, rows)
	for i := range bits {
		bits[i], vals[i] = make([]uint16, cols), make([]float64, cols)
		for k := range cols {
			x := float32(r.IntN(33)-16) / 8 // exact in both types
			vals[i][k] = float64(x)
			bits[i][k] = uint16(math.Float32bits(x) >> 16)
			if f16 {
				bits[i][k] = halfOf(x)
			}
		}
	}
	return bits, vals
}

// randomBytes are rows of pairs of float8 e4m3, and their values.
func randomBytes(r *rand.Rand, rows, pairs int) ([][]uint16, [][]float64) {
	bits, vals := make([][]uint16, rows), make([][]float64, rows)
	for i := range bits {
		for range pairs {
			lo, hi := byte(r.IntN(9)+0x34)|byte(r.IntN(2)<<7), byte(r.IntN(9)+0x34) // 0.75 to 2
			bits[i] = append(bits[i], uint16(hi)<<8|uint16(lo))
			vals[i] = append(vals[i], e4m3Value(int(lo)), e4m3Value(int(hi)))
		}
	}
	return bits, vals
}

// halfOf is the binary16 of a small multiple of 1/8.
func halfOf(x float32) uint16 {
	b := math.Float32bits(x)
	if x == 0 {
		return 0
	}
	return uint16(b>>16&0x8000 | (b>>23&0xff-112)<<10 | b>>13&0x3ff)
}

type groupCase struct {
	n, k, swizzle     int
	f16, regs, across bool // across: B's columns lie in rows
	set               bool // the first product sets the sums
	e4m3              bool // pairs of what k counts: 2k columns
}

// lead is how many columns lie before B's in a row.
func (c groupCase) lead() int {
	if c.across && 2*c.n < c.swizzle {
		return 8
	}
	return 0
}

// tileB is how B lies, columns or rows of it being stride bytes from group to group, and the word its step begins at.
func (c groupCase) tileB(stride, step int) (dsl.Tile, dsl.Index) {
	if c.across {
		return dsl.Tile{Swizzle: c.swizzle, Stride: stride, Across: 8 * c.swizzle}, dsl.At((2*step*stride + 2*c.lead()) / 4)
	}
	in := 32 * step // of the step's 16 columns: the atom, and 32 bytes a step in it
	return dsl.Tile{Swizzle: c.swizzle, Stride: stride}, dsl.At((in/c.swizzle*8*c.swizzle + in%c.swizzle) / 4)
}

// groupKernel multiplies A (64 rows in memory, or in registers) by B on one warpgroup and stores the sums of column c
// of row r at 64·c + r.
func groupKernel(k *dsl.Kernel, c groupCase, strideA, strideB int) {
	a := dsl.Global[dsl.U32](k, "a", int64(32*c.k))
	words := c.k / 8 * strideB / 4
	if !c.across {
		words = c.n * c.k / 2
	}
	b := dsl.Global[dsl.U32](k, "b", int64(words))
	out := dsl.Global[dsl.F32](k, "out", int64(64*c.n))
	sa := dsl.Shared[dsl.U32](k, "sa", 32*c.k, dsl.Align(1024))
	sb := dsl.Shared[dsl.U32](k, "sb", words, dsl.Align(1024))
	for _, p := range []struct {
		to, from dsl.Buf[dsl.U32]
	}{{sa, a}, {sb, b}} {
		k.ForStep(k.Tid(), k.U32(int(p.to.Len())), 128, func(i dsl.Val[dsl.U32]) { p.to.Store(i, p.from.Load(i)) })
	}
	k.FenceProxyAsyncShared()
	k.Barrier()
	sums := dsl.NewArray(k.F32(1), c.n/2, "sum")
	var fa [][4]*dsl.Var[dsl.BF16x2]
	for step := range c.k / 16 { // a thread's registers of A, from rows that are not swizzled
		var f [4]*dsl.Var[dsl.BF16x2]
		for i := range f {
			row := k.Warp().MulC(16).Add(k.Lane().DivC(4)).AddC(8 * (i & 1))
			at := row.MulC(c.k / 2).Add(k.Lane().RemC(4)).AddC(8*step + 4*(i>>1))
			f[i] = dsl.NewVar(dsl.Bits[dsl.BF16x2](a.Load(at)), "a")
		}
		fa = append(fa, f)
	}
	k.WGMMAFence()
	for step := range c.k / 16 {
		ta, atA := groupCase{swizzle: c.swizzle}.tileB(strideA, step)
		tb, atB := c.tileB(strideB, step)
		var o []dsl.WGMMAOpt
		if c.set && step == 0 {
			o = append(o, dsl.Overwrite)
		}
		switch {
		case c.regs && c.f16:
			h := [4]*dsl.Var[dsl.F16x2]{}
			for i := range h {
				h[i] = dsl.NewVar(dsl.Bits[dsl.F16x2](fa[step][i].Get()), "h")
			}
			k.WGMMAFence()
			dsl.WGMMARegisters(sums, h, sb, atB, tb, o...)
		case c.regs:
			dsl.WGMMARegisters(sums, fa[step], sb, atB, tb, o...)
		case c.e4m3:
			dsl.WGMMA[dsl.E4M3x2](sums, sa, atA, ta, sb, atB, tb)
		case c.f16:
			dsl.WGMMA[dsl.F16x2](sums, sa, atA, ta, sb, atB, tb)
		default:
			dsl.WGMMA[dsl.BF16x2](sums, sa, atA, ta, sb, atB, tb)
		}
	}
	k.WGMMACommit()
	k.WGMMAWait(0)
	for j, s := range sums {
		row := k.Warp().MulC(16).Add(k.Lane().DivC(4)).AddC(8 * (j >> 1 & 1))
		col := k.Lane().RemC(4).MulC(2).AddC(8*(j/4) + j&1)
		out.Store(col.MulC(64).Add(row), s.Get())
	}
}

func TestWGMMAMultipliesSwizzledTiles(t *testing.T) {
	for _, c := range []groupCase{
		{n: 8, k: 32, swizzle: 64}, {n: 24, k: 64, swizzle: 64, f16: true}, {n: 64, k: 64, swizzle: 128},
		{n: 256, k: 64, swizzle: 64},
		{n: 16, k: 64, swizzle: 128, f16: true}, {n: 40, k: 128, swizzle: 128, regs: true},
		{n: 8, k: 32, swizzle: 64, f16: true, regs: true},
		{n: 128, k: 64, swizzle: 128, regs: true, across: true, set: true}, {n: 24, k: 64, swizzle: 64, across: true},
		{n: 48, k: 64, swizzle: 128, regs: true, across: true}, {n: 64, k: 32, swizzle: 64, f16: true, regs: true,
			across: true},
		{n: 24, k: 64, swizzle: 64, e4m3: true}, {n: 256, k: 64, swizzle: 128, e4m3: true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, uint64(c.n)))
			abits, a := randomRows(r, 64, c.k, c.f16)
			bbits, b := randomRows(r, c.n, c.k, c.f16)
			if c.e4m3 {
				abits, a = randomBytes(r, 64, c.k)
				bbits, b = randomBytes(r, c.n, c.k)
			}
			da, strideA := swizzled(abits, c.swizzle)
			columns := bbits
			if c.across {
				columns = make([][]uint16, c.k)
				for i := range columns {
					columns[i] = make([]uint16, (c.lead()+c.n+c.swizzle/2-1)/(c.swizzle/2)*(c.swizzle/2))
					for j := range bbits {
						columns[i][c.lead()+j] = bbits[j][i]
					}
				}
			}
			db, strideB := swizzled(columns, c.swizzle)
			if c.regs {
				for i, row := range abits {
					for k, x := range row {
						binary.LittleEndian.PutUint16(da[2*(i*c.k+k):], x)
					}
				}
			}
			p := build(t, 4, 1, func(k *dsl.Kernel) { groupKernel(k, c, strideA, strideB) })
			m := bufs(p)
			m.Bind("a", da)
			m.Bind("b", db)
			run(t, p, m, 1)
			out := f32s(m.Bytes("out"))
			for i := range a {
				for j := range b {
					want := 1.0 // what is in the sums before
					if c.set {
						want = 0
					}
					for k := range a[i] {
						want += a[i][k] * b[j][k]
					}
					require.Equal(t, float32(want), out[64*j+i], "row %d column %d", i, j) // multiples of 1/64: exact
				}
			}
		})
	}
}

// groupWork is one warpgroup's work with a knob for every mistake.
type groupWork struct {
	noProxyFence, noFence, noCommit, noWait, early, touched, apart, crooked, overwrite bool
	pending                                                                            int
}

func (g groupWork) build(k *dsl.Kernel) {
	out := dsl.Global[dsl.F32](k, "out", 1024)
	tile := dsl.Shared[dsl.U32](k, "tile", 2048, dsl.Align(1024))
	k.ForStep(k.Tid(), k.U32(2048), 128, func(i dsl.Val[dsl.U32]) { tile.Store(i, i) })
	if !g.noProxyFence {
		k.FenceProxyAsyncShared()
	}
	k.Barrier()
	sums := dsl.NewArray(k.F32(0), 4, "sum")
	if !g.noFence {
		k.WGMMAFence()
	}
	if g.touched {
		sums[2].Set(k.F32(3))
	}
	narrow := dsl.Tile{Swizzle: 64, Stride: 512}
	at := k.U32(0)
	if g.apart {
		at = dsl.Select(k.Warp().EqC(2), k.U32(8), k.U32(0))
	}
	if g.crooked {
		at = k.U32(16)
	}
	product := func() { dsl.WGMMA[dsl.BF16x2](sums, tile, at, narrow, tile, dsl.At(0), narrow) }
	product()
	k.WGMMACommit()
	product()
	if !g.noCommit {
		k.WGMMACommit()
	}
	if g.early {
		out.Store(k.Tid(), sums[1].Get())
	}
	if g.overwrite {
		tile.Store(k.Tid(), k.Tid())
	}
	if !g.noWait {
		k.WGMMAWait(g.pending)
	}
	out.Store(k.Tid(), sums[0].Get())
}

func TestFaultsOfWarpgroups(t *testing.T) {
	clean(t, build(t, 4, 1, groupWork{}.build), 7)
	for _, c := range []struct {
		name string
		work groupWork
		kind interp.Kind
		text string
	}{
		{"no proxy fence behind stores", groupWork{noProxyFence: true}, interp.ProxyRace,
			"this wgmma read and an earlier write are ordered, but no fence.proxy.async"},
		{"no fence", groupWork{noFence: true}, interp.AsyncRegister, "the warp's first wgmma, and no wgmma.fence before it"},
		{"sums set behind the fence", groupWork{touched: true}, interp.AsyncRegister,
			"uses %sum2, which the warp has touched since its last wgmma.fence"},
		{"sums read before the wait", groupWork{early: true}, interp.AsyncRegister,
			"get of %sum1, which a wgmma uses that is under way"},
		{"a wait for one group of two", groupWork{pending: 1}, interp.AsyncRegister, "get of %sum0"},
		{"the last products in no group", groupWork{noCommit: true}, interp.AsyncRegister, "get of %sum0"},
		{"no wait", groupWork{noWait: true}, interp.AsyncRegister, "get of %sum0"},
		{"a warp with another operand", groupWork{apart: true}, interp.WarpgroupApart, "different operands"},
		{"an operand that begins in the second row", groupWork{crooked: true}, interp.Misaligned, "begins at byte 64"},
		{"an operand overwritten before the wait", groupWork{overwrite: true}, interp.DataRace,
			"an earlier wgmma read are not ordered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := faultIn(t, build(t, 4, 1, c.work.build), 3)
			require.Equal(t, c.kind, f.Kind, f.Error())
			require.Contains(t, f.Text, c.text)
		})
	}
}

func TestAWarpgroupThatIsNotWhole(t *testing.T) {
	p := build(t, 8, 1, func(k *dsl.Kernel) {
		tile := dsl.Shared[dsl.U32](k, "tile", 1024, dsl.Align(1024))
		k.ForStep(k.Tid(), k.U32(1024), 256, func(i dsl.Val[dsl.U32]) { tile.Store(i, i) })
		k.FenceProxyAsyncShared()
		k.Barrier()
		sums := dsl.NewArray(k.F32(0), 4, "sum")
		k.WGMMAFence()
		k.If(k.Warp().NeC(6), func() {
			dsl.WGMMA[dsl.BF16x2](sums, tile, dsl.At(0), dsl.Tile{Swizzle: 64, Stride: 512}, tile, dsl.At(0),
				dsl.Tile{Swizzle: 64, Stride: 512})
		})
		k.WGMMACommit()
		k.WGMMAWait(0)
	})
	f := faultIn(t, p, 1)
	require.Equal(t, interp.Deadlock, f.Kind)
	require.Contains(t, f.Error(), "waits for the other warps of its warpgroup: they have come to [1 1 0 1] collectives")
}

func TestRegistersMoveBetweenWarpgroups(t *testing.T) {
	share := func(few, many int) *interp.Program {
		return build(t, 12, 1, func(k *dsl.Kernel) {
			k.Roles(
				dsl.Role{Name: "producer", First: 8, End: 12, Body: func() { k.FewerRegisters(few) }},
				dsl.Role{Name: "consumers", First: 0, End: 8, Body: func() { k.MoreRegisters(many) }},
			)
		})
	}
	clean(t, share(56, 224), 7)
	f := faultIn(t, share(56, 232), 1)
	require.Equal(t, interp.Deadlock, f.Kind)
	require.Contains(t, f.Error(), "waits for 232 registers a thread and has 168")
}

// PTX: after a setmaxnreg all warps of the warpgroup synchronise before the next one.
func TestRegistersMoveAgainBehindABarrierOfTheWarpgroup(t *testing.T) {
	again := func(between func(k *dsl.Kernel)) *interp.Program {
		return build(t, 8, 1, func(k *dsl.Kernel) {
			k.Roles(dsl.Role{Name: "all", First: 4, End: 8, Body: func() {
				k.FewerRegisters(64)
				between(k)
				k.MoreRegisters(96)
			}})
		})
	}
	clean(t, again(func(k *dsl.Kernel) { k.NamedBarrier(1, 4) }), 7)
	for _, between := range []func(k *dsl.Kernel){func(*dsl.Kernel) {}, (*dsl.Kernel).SyncWarp} {
		f := faultIn(t, again(between), 1)
		require.Equal(t, interp.WarpgroupApart, f.Kind)
		require.Contains(t, f.Error(), "sets registers again, and nothing says that warp")
		require.Contains(t, f.Error(), "a barrier of the warpgroup is missing")
	}
}

func TestElectChoosesOneLaneOfEachWarp(t *testing.T) {
	p := build(t, 4, 1, func(k *dsl.Kernel) {
		out := dsl.Global[dsl.U32](k, "out", 128)
		k.If(k.Elect(), func() { out.Store(k.Tid(), k.U32(1)) })
	})
	lanes := map[int]bool{}
	for seed := range uint64(8) {
		m := bufs(p)
		run(t, p, m, seed)
		for w := range 4 {
			n := 0
			for l, v := range u32s(m.Bytes("out"))[32*w : 32*w+32] {
				if v == 1 {
					n++
					lanes[l] = true
				}
			}
			require.Equal(t, 1, n)
		}
	}
	require.Greater(t, len(lanes), 2, "which lane it is changes from run to run")
}
