package tasks_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// What is fetched for a thread's rows before the product is theirs behind it, on SMs without
// tiles, with rows that pad the last tile, and also where threads finish several pairs, so
// that it comes late.
func TestEarlyOperandsAreThoseOfTheRows(t *testing.T) {
	for _, c := range []struct {
		product
		early bool
	}{
		{product{rows: 8, k: 32, sms: 1, consumers: 2}, true},
		{product{rows: 8, k: 64, sms: 3, consumers: 2}, true},
		{product{rows: 50, k: 64, sms: 3, consumers: 2}, true},
		{product{rows: 128, k: 32, sms: 1, consumers: 2}, true},
		{product{rows: 376, k: 32, sms: 3, consumers: 8}, true},
		{product{rows: 136, k: 32, sms: 1, consumers: 2}, false}, // 17 tiles
		{product{rows: 64, k: 32, sms: 1, consumers: 1}, false},  // 32 threads
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			rng := newRand(uint64(c.rows))
			w, x, old := normals(rng, c.rows*c.k, 1), normals(rng, c.k, 1), floats(rng, c.rows, 1)
			r := newRig(t, setup{sms: c.sms, consumers: c.consumers,
				matrices: []pipeline.Matrix{{Name: "w", Rows: c.rows, K: c.k}}})
			packed := make([]byte, r.plan.PackedBytes)
			require.NoError(t, r.plan.Pack(packed, 0, 0, pipeline.Permuted(w, c.k, nil)))
			weights, xIn := in[dsl.B128](r, "w", packed, len(packed)/16), in[dsl.BF16](r, "x", bf16Bytes(x), len(x))
			acc := inOut[dsl.F32](r, "acc", f32Bytes(old), len(old))
			g := &tasks.GEMV{Name: "w", M: &r.plan.Layer[0],
				X:    dsl.Shared[dsl.BF16](r.k, "input", r.plan.Layer[0].KPadded, dsl.Align(16)),
				Part: tasks.Partials{Buf: dsl.Shared[dsl.F32](r.k, "partials", tasks.PartialsLen(c.consumers), dsl.Align(16))}}
			r.body(func(cons *pipeline.Consumer) {
				var early tasks.Early
				early.Start(r.e)
				fetched, late := early.Of(r.e, g), 0
				require.Equal(t, c.early, fetched != nil)
				vector := fetched.Vector(func() tasks.Vector { late++; return tasks.FromBuf(acc) })
				require.Equal(t, c.early, late == 0)
				fetched.Fetch(r.e, r.share(0), func(row dsl.Val[dsl.U32]) []dsl.Val[dsl.F32] { return acc.LoadN(row, 2) })
				plain := tasks.PlainInput{N: c.k, X: xIn, Dst: g.X}
				plain.Emit(r.e)
				g.Consume(r.e, cons, r.ring, r.share(0), tasks.AddResidual(acc, vector))
			}, func(p *pipeline.Producer) { g.Produce(r.e, p, r.share(0), weights, r.from(0)) })
			got := f32s(r.run()["acc"])
			want, tolerance := reference.MatVec(w, wide(x)), gemvTolerance(w, wide(x))
			for i := range want {
				want[i] += float64(old[i])
				tolerance[i] += 1e-6
			}
			near(t, want, got, tolerance, "%s", c.product)
		})
	}
}
