package attention_test

import (
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// What a soft cap is near 0 lies within 2⁻¹¹ of a weight of what it is everywhere, for caps up to 50, as far as it is
// near and of both signs; and scores near 0 stay what they are within 2⁻¹³.
func TestSoftCapNearZero(t *testing.T) {
	for _, limit := range []float64{1, 30, 50} {
		v := attention.SoftCap(limit)
		require.Len(t, v.Near, 2)
		for n, near := range v.Near {
			var scores []float32
			for i := -512; i <= 512; i++ {
				scores = append(scores, float32(near.To*float64(i)/512))
			}
			scores = append(scores, 1e-6, -1e-6, 0x1p-60)
			for len(scores)%dsl.WarpSize != 0 {
				scores = append(scores, 0)
			}
			k := dsl.New("rig", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 1024})
			r := &rig.Rig{T: t, K: k, Data: map[string][]byte{}, Params: map[string]uint64{},
				Env: grid.NewEnv(k, 1, 1, dsl.Shared[dsl.F32](k, "scratch", 1))}
			in := rig.In[dsl.F32](r, "in", rig.F32Bytes(scores), len(scores))
			to, all := rig.Out[dsl.F32](r, "near", len(scores)), rig.Out[dsl.F32](r, "all", len(scores))
			q := &attention.Query{Env: r.Env}
			k.ForStep(k.Lane(), k.U32(len(scores)), dsl.WarpSize, func(i dsl.Val[dsl.U32]) {
				x := in.Load(i)
				to.Store(i, near.Logit(k, x))
				all.Store(i, v.Logits(q, nil, x))
			}, dsl.Unroll(1))
			out := r.Run()
			gotNear, gotAll := rig.F32s(out["near"]), rig.F32s(out["all"])
			for i, x := range scores {
				want := v.Means.Logits(attention.Place{}, attention.Place{}, float64(x)*math.Ln2) * math.Log2E
				require.InDelta(t, want, gotNear[i], 0x1p-11*math.Log2E, "cap %v: polynomial %d of %v", limit, n, x)
				require.InDelta(t, want, gotNear[i], 0x1p-13*math.Abs(float64(x))+0x1p-80, "cap %v: polynomial %d of %v", limit, n,
					x)
				require.InDelta(t, want, gotAll[i], 1e-6*limit, "cap %v: of %v", limit, x)
				require.LessOrEqual(t, math.Abs(gotAll[i]), v.Bound*(1+1e-6))
			}
		}
	}
}
