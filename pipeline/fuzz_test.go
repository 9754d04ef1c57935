package pipeline_test

import (
	"testing"

	"github.com/mkgen/mkgen/pipeline"
)

// FuzzNew: whatever is asked, New gives an error or a plan that is right.
func FuzzNew(f *testing.F) {
	f.Add(4, 2, 320, 128, 704, 352, 0, 0, 0, 232448, 704, 128, 128, 0)
	f.Add(132, 32, 6144, 4096, 4096, 14336, 16384, 12, 3, 232448, 28672, 128, 512, 14)
	f.Add(132, 32, 6144, 4095, 4096, 14336, 16256, 12, 3, 232448, 28672, 128, 512, 14) // 31 groups fit, 24 are taken
	f.Add(7, 3, 33, 65, 17, 1000, 1024, 5, 5, 20000, 3, 1, 32, 3)
	f.Add(1, 1, 1, 1, 1, 1, 512, 1, 1, 1100, 1, 0, 0, 1)
	f.Add(1024, 4096, 1<<24, 1<<24, -1, 1<<62, 1<<20, 32, 33, 1<<20, 0, 3, 100, 65)
	f.Fuzz(func(t *testing.T, sms, layers, rows, k, rows2, k2, stageBytes, stages, inFlight, limit, fixed, align, kv,
		batch int) {
		r := pipeline.Request{
			SMs: sms, Layers: layers,
			Layer: []pipeline.Matrix{{Name: "a", Rows: rows, K: k}, {Name: "b", Rows: rows2, K: k2},
				{Name: "c", Rows: rows2, K: k}},
			Final:      []pipeline.Matrix{{Name: "d", Rows: rows, K: k2}},
			StageBytes: stageBytes, Stages: stages, InFlight: inFlight, SharedLimit: limit,
			Fixed:        []pipeline.Region{{Name: "x", Bytes: fixed, Align: align}, {Name: "y", Bytes: 12, Align: 4}},
			KVTokenBytes: kv, BatchTiles: batch,
		}
		p, err := pipeline.New(r)
		if err != nil {
			return
		}
		if p.String() != p.String() {
			t.Fatal("the description changes")
		}
		checks := []func(pipeline.Request, *pipeline.Plan) error{checkRing, checkShared, checkCuts, checkShares, checkBatches}
		if p.PackedBytes < 1<<26 {
			checks = append(checks, checkChunks)
		}
		for _, check := range checks {
			if err := check(r, p); err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
		}
		if p.PackedBytes > 1<<22 {
			return
		}
		for _, sm := range extremes(p) {
			kvCopies := 0
			if kv > 0 {
				kvCopies = 1
			}
			m := &ringModel{plan: p, sizes: copies(p, sm, kvCopies), rng: 12345}
			if err := m.run(); err != nil {
				t.Fatalf("%+v: SM %d: %v", r, sm, err)
			}
		}
	})
}
