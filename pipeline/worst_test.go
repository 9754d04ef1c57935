package pipeline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mkgen/mkgen/pipeline"
)

// TestHostileRequestsAreAnsweredQuickly: the largest counts New accepts.
func TestHostileRequestsAreAnsweredQuickly(t *testing.T) {
	if testing.Short() {
		t.Skip("values that one goroutine makes, with -short")
	}
	r := pipeline.Request{SMs: 1024, Layers: 4096, SharedLimit: 1 << 20, StageBytes: 512}
	for i := range 64 {
		r.Layer = append(r.Layer, pipeline.Matrix{Name: fmt.Sprint("m", i), Rows: 8 * (1023 - i*16), K: 32 << (i % 8)})
		r.Final = append(r.Final, pipeline.Matrix{Name: fmt.Sprint("f", i), Rows: 8 * (40 + i), K: 32 << (i % 8)})
	}
	for i := range 256 {
		r.Fixed = append(r.Fixed, pipeline.Region{Name: fmt.Sprint("r", i), Bytes: 100, Align: 1 << (i % 11)})
	}
	start := time.Now()
	p, err := pipeline.New(r)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if err := checkPlan(r, p); err != nil {
		t.Fatal(err)
	}
	if took > 10*time.Second {
		t.Fatalf("New took %v", took)
	}
	t.Logf("New took %v", took)
}
