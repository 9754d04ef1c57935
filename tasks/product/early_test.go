package product_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// What is fetched for a thread's rows before the product is theirs behind it, on SMs without
// tiles, with rows that pad the last tile, and also where threads finish several pairs, so
// that it comes late.
func TestEarlyOperandsAreThoseOfTheRows(t *testing.T) {
	for _, c := range []struct {
		gemvCase
		early bool
	}{
		{gemvCase{rows: 8, k: 32, sms: 1, consumers: 2}, true},
		{gemvCase{rows: 8, k: 64, sms: 3, consumers: 2}, true},
		{gemvCase{rows: 52, k: 64, sms: 3, consumers: 2}, true},
		{gemvCase{rows: 128, k: 32, sms: 1, consumers: 2}, true},
		{gemvCase{rows: 376, k: 32, sms: 3, consumers: 8}, true},
		{gemvCase{rows: 136, k: 32, sms: 1, consumers: 2}, false}, // 17 tiles
		{gemvCase{rows: 64, k: 32, sms: 1, consumers: 1}, true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			rng := rig.Rand(uint64(c.rows))
			w, x, old := rig.Normals(rng, c.rows*c.k, 1), rig.Normals(rng, c.k, 1), rig.Floats(rng, c.rows, 1)
			r := rig.New(t, rig.Setup{SMs: c.sms, Consumers: c.consumers,
				Matrices: []pipeline.Matrix{{Name: "w", Rows: c.rows, K: c.k}}})
			packed := make([]byte, r.Plan.PackedBytes)
			require.NoError(t, r.Plan.Pack(packed, 0, 0, pipeline.Permuted(w, c.k, nil)))
			weights, xIn := rig.In[dsl.B128](r, "w", packed, len(packed)/16), rig.In[dsl.BF16](r, "x", rig.BF16Bytes(x), len(x))
			acc := rig.InOut[dsl.F32](r, "acc", rig.F32Bytes(old), len(old))
			g := &product.GEMV{Name: "w", M: &r.Plan.Layer[0],
				X:    dsl.Shared[dsl.BF16](r.K, "input", r.Plan.Layer[0].KPadded, dsl.Align(16)),
				Part: product.Partials{Buf: dsl.Shared[dsl.F32](r.K, "partials", product.PartialsLen(c.consumers), dsl.Align(16))}}
			r.Body(func(cons *pipeline.Consumer) {
				early := product.Early{Pairs: 2}
				early.Start(r.Env)
				fetched, late := early.Of(r.Env, g, 4), 0
				require.Equal(t, c.early, fetched != nil)
				vector := fetched.Vector(func() product.Vector { late++; return product.FromBuf(acc) })
				require.Equal(t, c.early, late == 0)
				fetched.Fetch(r.Env, r.Share(0), func(row dsl.Val[dsl.U32]) []dsl.Val[dsl.F32] { return acc.LoadN(row, 4) })
				plain := product.PlainInput{N: c.k, X: xIn, Dst: g.X}
				plain.Emit(r.Env)
				g.Consume(r.Env, cons, r.Ring, r.Share(0), product.AddResidual(acc, vector))
			}, func(p *pipeline.Producer) { g.Produce(r.Env, p, r.Share(0), weights, r.From(0)) })
			got := rig.F32s(r.Run()["acc"])
			want, tolerance := reference.MatVec(w, rig.Wide(x)), rig.GemvTolerance(w, rig.Wide(x))
			for i := range want {
				want[i] += float64(old[i])
				tolerance[i] += 1e-6
			}
			rig.Near(t, want, got, tolerance, "%s", c.gemvCase)
		})
	}
}
