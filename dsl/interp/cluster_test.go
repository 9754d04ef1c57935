package interp_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/stretchr/testify/require"
)

// The pair: a cluster of two CTAs multiplies 64 rows of X each by 16 rows of W, of which each fetches 8 for both. The
// rows of X that one takes the other has written.
const (
	pairK      = 128 // columns
	pairSteps  = pairK / 32
	pairStages = 2
	pairBytes  = (64 + 16) * 64 // of a stage: 64 rows of X, 16 of W
)

type pair struct {
	k           *dsl.Kernel
	x, w        dsl.TensorMap
	out         dsl.Buf[dsl.F32]
	ring        dsl.Buf[dsl.U32]
	full, empty dsl.MBars
	rank        dsl.Val[dsl.U32]
}

func pairKernel(k *dsl.Kernel) {
	x := dsl.Global[dsl.BF16](k, "x", 2*64*pairK)
	w := dsl.Global[dsl.BF16](k, "w", 16*pairK, dsl.ReadOnly())
	p := &pair{k: k, rank: k.ClusterRank().Named("rank"), out: dsl.Global[dsl.F32](k, "out", 2*64*16)}
	dims, strides := [3]int64{256, pairK / 32, 16}, [2]int64{512, pairK * 16}
	p.x = dsl.NewTensorMap(k, "map_x", x, 0, dims, strides, [3]int{256, 1, 8})
	dims[2] = 2
	p.w = dsl.NewTensorMap(k, "map_w", w, 0, dims, strides, [3]int{256, 1, 1})
	p.ring = dsl.Shared[dsl.U32](k, "ring", pairStages*pairBytes/4, dsl.Align(1024))
	p.full, p.empty = dsl.NewMBars(k, "full", pairStages), dsl.NewMBars(k, "empty", pairStages)
	k.Region("start", func() {
		k.If(k.Tid().EqC(0), func() {
			for s := range pairStages {
				p.full.Init(dsl.At(s), k.U32(1))
				p.empty.Init(dsl.At(s), k.U32(2*4))
			}
			k.FenceMBarInit()
		})
	})
	// X is made here, so that the copies read what this kernel wrote.
	k.ForStep(k.Tid(), k.U32(64*pairK), 32*k.Warps(), func(i dsl.Val[dsl.U32]) {
		x.Store(k.CTA().MulC(64*pairK).Add(i), dsl.Cast[dsl.BF16](dsl.Cast[dsl.F32](i.RemC(7))))
	})
	k.FenceProxyAsyncGlobal()
	k.ClusterBarrier()
	k.Roles(dsl.Role{Name: "consumers", First: 0, End: 4, Body: p.consume},
		dsl.Role{Name: "producer", First: 4, End: 5, Body: p.produce})
	k.ClusterBarrier()
}

func (p *pair) produce() {
	k := p.k
	k.If(k.Elect(), func() {
		k.FenceProxyAsyncGlobal()
		k.Region("stages", func() { p.copies() })
	})
}

func (p *pair) copies() {
	k := p.k
	k.For(k.U32(0), k.U32(pairSteps), func(i dsl.Val[dsl.U32]) {
		s := i.RemC(pairStages).Named("stage")
		base := s.MulC(pairBytes / 4)
		p.empty.Wait(s, i.DivC(pairStages).AndC(1).XorC(1))
		p.full.ArriveExpect(s, k.U32(pairBytes))
		at := func(row dsl.Val[dsl.U32]) [3]dsl.Val[dsl.I32] {
			return [3]dsl.Val[dsl.I32]{k.I32(0), dsl.Bits[dsl.I32](i), dsl.Bits[dsl.I32](row)}
		}
		dsl.TensorCopy(p.ring, base, p.x, at(k.CTA().XorC(1).MulC(8)), p.full, s, 0)
		dsl.TensorCopy(p.ring, p.rank.MulC(128).Add(base).AddC(8*128), p.w, at(p.rank), p.full, s, 3)
	})
}

func (p *pair) consume() {
	k := p.k
	sums := dsl.NewArray(k.F32(0), 8, "sum")
	tile := dsl.Tile{Swizzle: 64, Stride: 512}
	release := func(i dsl.Val[dsl.U32]) {
		k.If(k.Lane().LtC(2), func() { p.empty.ArriveAt(i.RemC(pairStages), k.Lane()) })
	}
	k.Region("stages", func() {
		k.For(k.U32(0), k.U32(pairSteps), func(i dsl.Val[dsl.U32]) {
			s := i.RemC(pairStages).Named("stage")
			base := s.MulC(pairBytes / 4)
			p.full.Wait(s, i.DivC(pairStages).AndC(1))
			k.WGMMAFence()
			for half := range 2 {
				dsl.WGMMA[dsl.BF16x2](sums, p.ring, base.AddC(8*half), tile, p.ring, base.AddC(8*128+8*half), tile)
			}
			k.WGMMACommit()
			k.WGMMAWait(1)
			k.If(i.NeC(0), func() { release(i.AddC(-1)) })
		})
	})
	k.Region("end", func() {
		k.WGMMAWait(0)
		release(k.U32(pairSteps - 1))
	})
	for j, s := range sums {
		row := k.CTA().XorC(1).MulC(64).Add(k.Warp().MulC(16)).Add(k.Lane().DivC(4)).AddC(8 * (j >> 1 & 1))
		p.out.Store(row.MulC(16).Add(k.Lane().RemC(4).MulC(2)).AddC(8*(j/4)+j&1), s.Get())
	}
}

func buildPair(t testing.TB) *ir.Kernel {
	t.Helper()
	k := dsl.New("pair", dsl.Options{Warps: 5, Grid: 2, Cluster: 2, SharedLimit: 227 << 10})
	pairKernel(k)
	out, err := k.Finish()
	require.NoError(t, err)
	return out
}

func TestAClusterSharesWeightsThroughTensorMaps(t *testing.T) {
	p := load(t, buildPair(t))
	bits, w := randomRows(rand.New(rand.NewPCG(3, 3)), 16, pairK, false)
	data, _ := swizzled(bits, 64)
	for seed := range uint64(12) {
		m := bufs(p)
		m.Bind("w", data)
		run(t, p, m, seed)
		out := f32s(m.Bytes("out"))
		x := m.Bytes("x")
		for row := range 128 {
			for col := range 16 {
				var want float64
				for k := range pairK {
					at := row/8*pairK*16 + k/32*512 + row%8*64 + k%32*2
					at ^= at >> 7 & 3 << 4
					v := binary.LittleEndian.Uint16(x[at:])
					want += w[col][k] * float64(f32s([]byte{0, 0, byte(v), byte(v >> 8)})[0])
				}
				require.Equal(t, float32(want), out[16*row+col], "row %d column %d", row, col)
			}
		}
	}
}

// pairExcuses are of the pair of CTAs.
var pairExcuses = mutate.Excuses{
	{Op: "fence.mbarrier_init", Classes: []mutate.Class{mutate.Earlier}, Front: "mbar.init @empty",
		Why: "only an mbarrier that no copy completes on is initialised behind it", Rule: mutate.Causality},
	{Op: "wait.mbar @full", Classes: []mutate.Class{mutate.Later}, Behind: "wgmma.fence",
		Why: "it goes behind wgmma.fence, which orders registers only", Rule: mutate.WGMMAFence},
	{Op: "wgmma.fence", Classes: []mutate.Class{mutate.Earlier}, Front: "wait.mbar @full",
		Why: "it goes in front of a wait for memory", Rule: mutate.WGMMAFence},
	{Op: "mbar.arrive.at @empty", Classes: []mutate.Class{mutate.Count}, Front: "wgmma.wait",
		Why: "each of two lanes arrives at the other's CTA instead of its own", Rule: mutate.Phases},
	{Op: "mbar.expect @full", Classes: []mutate.Class{mutate.Later}, Behind: "tensor.g2s *",
		Why: "a copy may complete before its bytes are expected while the phase lacks its arrival", Rule: mutate.Phases},
	{Op: "wgmma.wait", Classes: []mutate.Class{mutate.Later}, Regions: []string{"end"}, Behind: "mbar.arrive.at @empty",
		Why: "it goes behind the last release, for which nobody waits", Rule: mutate.Conflict},
	{Op: "mbar.arrive.at @empty", Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Regions: []string{"end"},
		Front: "wgmma.wait", Behind: "st @out", Why: "nobody waits for the last release", Rule: mutate.Conflict},
}

func TestMutantsOfAClusterAreReported(t *testing.T) {
	left := unreported(t, buildPair(t))
	require.NoError(t, pairExcuses.Check(left, pairExcuses))
}
