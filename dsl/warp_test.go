package dsl_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/dsl"
)

func TestShufflesAndVotes(t *testing.T) {
	require.Equal(t, text("v0:u32 = lane", "v1:u32 = shfl.idx v0, 3", "v2:u32 = shfl.xor v1, 16", "v3:u32 = shfl.up v2, 1",
		"v4:u32 = shfl.down v3, 2", "v5:pred = lt v4, 9", "v6:pred = vote.all v5", "v7:pred = vote.any v6",
		"v8:u32 = ballot v7", "st.u32 @out[0], v8"), body(t, func(k *dsl.Kernel) {
		v := dsl.ShflDown(dsl.ShflUp(dsl.ShflXor(dsl.Shfl(k.Lane(), k.U32(3)), 16), 1), 2)
		out(k, dsl.Ballot(dsl.Any(dsl.All(v.LtC(9)))))
	}))
}

// masks are the xor masks of the shuffles a build emits.
func masks(t *testing.T, build func(k *dsl.Kernel) u32) string {
	t.Helper()
	var ms []string
	for _, l := range strings.Split(body(t, func(k *dsl.Kernel) { out(k, build(k)) }), "\n") {
		if strings.Contains(l, "shfl.xor") {
			_, m, _ := strings.Cut(l, ", ")
			ms = append(ms, m)
		}
	}
	return strings.Join(ms, " ")
}

func TestReductionsCoverTheirLanes(t *testing.T) {
	require.Equal(t, "16 8 4 2 1", masks(t, func(k *dsl.Kernel) u32 { return dsl.WarpSum(k.Lane()) }))
	require.Equal(t, "16 8 4 2 1", masks(t, func(k *dsl.Kernel) u32 { return dsl.WarpMax(k.Lane()) }))
	require.Equal(t, "2 1", masks(t, func(k *dsl.Kernel) u32 { return dsl.Butterfly(k.Lane(), 4, u32.Add) }))
	require.Equal(t, "", masks(t, func(k *dsl.Kernel) u32 { return dsl.Butterfly(k.Lane(), 1, u32.Add) }))
}

func TestReductionsRefuseOddSizes(t *testing.T) {
	require.Equal(t, text("butterfly over 12 lanes, want a power of two up to 32",
		"butterfly over 64 lanes, want a power of two up to 32", "shfl.xor: moves by -1 lanes, want 0 to 31"),
		mistakes(t, func(k *dsl.Kernel) {
			dsl.Butterfly(k.Lane(), 12, u32.Add)
			dsl.Butterfly(k.Lane(), 64, u32.Add)
			dsl.ShflXor(k.Lane(), -1)
		}))
}

func TestCTASumAddsTheWarpsInOrder(t *testing.T) {
	got := body(t, func(k *dsl.Kernel) {
		scratch := dsl.Shared[dsl.F32](k, "scratch", 3)
		x := dsl.Global[dsl.F32](k, "x", 96).Load(k.Tid())
		k.Roles(dsl.Role{Name: "consumer", First: 1, End: 4, Body: func() {
			out(k, dsl.CTASum(x, scratch, 1, 3, func() { k.NamedBarrier(1, 3) }))
		}})
	})
	_, tail, found := strings.Cut(got, "v12:u32 = lane\n")
	require.True(t, found, got)
	require.Equal(t, text("v13:pred = eq v12, 0", "if v13 {", "v14:u32 = warp", "v15:u32 = sub v14, 1",
		"st.f32 @scratch[v15], v11", "}", "bar.sync id=1 n=96", "v16:f32 = ld.f32 @scratch[0]",
		"v17:f32 = ld.f32 @scratch[1]", "v18:f32 = add v16, v17", "v19:f32 = ld.f32 @scratch[2]", "v20:f32 = add v18, v19",
		"st.f32 @out[0], v20", "}", "}"), tail)
}

func TestMMATakesItsFragmentsInOrder(t *testing.T) {
	got := body(t, func(k *dsl.Kernel) {
		a := dsl.LoadMatrix(dsl.Shared[dsl.BF16](k, "a", 256), k.Lane().MulC(8), false)
		b := dsl.LoadMatrix(dsl.Shared[dsl.BF16](k, "b", 256), k.Lane().MulC(8), true)
		d := dsl.MMA(a, [2]dsl.Val[dsl.BF16x2]{b[2], b[3]}, [4]f32{k.F32(0), k.F32(1), k.F32(2), k.F32(3)})
		out(k, d[0], d[1], d[2], d[3])
	})
	require.Contains(t, got, "v12:f32, v13:f32, v14:f32, v15:f32 = mma v2, v3, v4, v5, v10, v11, 0.0, 1.0, 2.0, 3.0")
	require.Contains(t, got, "= ldmatrix @b[v7] trans")
}
