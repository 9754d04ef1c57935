package pipeline_test

import (
	"slices"

	"github.com/mkgen/mkgen/pipeline"
)

// shape is a model's sizes as the planner sees them.
type shape struct {
	name                             string
	layers                           int
	qkv, hidden, attention           int // attention: columns of the output projection
	gateUp, intermediate, vocabulary int
	kvTokenBytes                     int
}

// shapes are the registered models', written out: the planner knows no models.
// tiny's attention width differs from its hidden size on purpose.
func shapes() []shape {
	return []shape{
		{"tiny", 2, 320, 128, 192, 704, 352, 320, 128},
		{"llama3.2-1b", 16, 3072, 2048, 2048, 16384, 8192, 128256, 256},
		{"llama3.2-3b", 28, 5120, 3072, 3072, 16384, 8192, 128256, 512},
		{"llama3-8b", 32, 6144, 4096, 4096, 28672, 14336, 128256, 512},
		{"llama3-70b", 80, 10240, 8192, 8192, 57344, 28672, 128256, 512},
	}
}

// request asks for the shape on an sm_90: the widest input vector in bf16 and a
// scratch region beside the ring.
func (s shape) request(sms int) pipeline.Request {
	return pipeline.Request{
		SMs: sms, Layers: s.layers,
		Layer: []pipeline.Matrix{
			{Name: "qkv", Rows: s.qkv, K: s.hidden},
			{Name: "o", Rows: s.hidden, K: s.attention},
			{Name: "gate_up", Rows: s.gateUp, K: s.hidden},
			{Name: "down", Rows: s.hidden, K: s.intermediate},
		},
		Final:       []pipeline.Matrix{{Name: "lm_head", Rows: s.vocabulary, K: s.hidden}},
		SharedLimit: 232448,
		Fixed: []pipeline.Region{
			{Name: "input", Bytes: 2 * s.intermediate, Align: 128},
			{Name: "scratch", Bytes: 4100, Align: 4},
		},
		KVTokenBytes: s.kvTokenBytes,
	}
}

func shapeNamed(name string) shape {
	all := shapes()
	i := slices.IndexFunc(all, func(s shape) bool { return s.name == name })
	if i < 0 {
		panic("BUG: no shape " + name)
	}
	return all[i]
}
