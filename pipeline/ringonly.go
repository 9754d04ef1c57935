package pipeline

// RingOnly plans a ring without weights, for kernels that stream something else:
// stages stages of stageBytes bytes (a multiple of 128, at least 512) and at most
// inFlight copies outstanding, within limit bytes of shared memory. 0 stages or
// copies leave the choice to New, whose refusals are RingOnly's.
func RingOnly(stageBytes, stages, inFlight, limit int) (*Plan, error) {
	p, err := New(Request{SMs: 1, Layers: 1, Layer: []Matrix{{Name: "none", Rows: TileRows, K: GroupK}},
		StageBytes: stageBytes, Stages: stages, InFlight: inFlight, Throttles: []Throttle{}, SharedLimit: limit})
	if err != nil {
		return nil, err
	}
	return &Plan{StageBytes: p.StageBytes, Stages: p.Stages, InFlight: p.InFlight,
		Shared: p.Shared, SharedBytes: p.SharedBytes, SharedLimit: p.SharedLimit}, nil
}
