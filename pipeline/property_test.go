package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// TestEveryModelAtEverySMCount: chunks partition the packed buffer, shares are
// contiguous and complete, the shared-memory map holds, and the ring of the most and
// the least loaded SM drains every stage before it is filled again.
func TestEveryModelAtEverySMCount(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for sms := 1; sms <= 132; sms++ {
				if !deep.On() && sms%26 != 2 {
					continue
				}
				r := s.request(sms)
				r.BatchTiles = []int{0, 14, 28}[sms%3]
				p, err := pipeline.New(r)
				require.NoError(t, err, "%d SMs", sms)
				require.NoError(t, checkPlan(r, p), "%d SMs", sms)
				for i, sm := range extremes(p) {
					m := &ringModel{plan: p, sizes: copies(p, sm, i), rng: uint64(sms)*31 + 7}
					require.NoError(t, m.run(), "SM %d of %d", sm, sms)
				}
			}
		})
	}
}

// TestRingSettings: any depth and any number of copies in flight, small stages, batches of tiles.
func TestRingSettings(t *testing.T) {
	t.Parallel()
	for _, sms := range []int{1, 3, 4, 7, 40, 132} {
		for _, stageBytes := range []int{2048, 2176, 4096, 16384} {
			for _, ring := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {3, 2}, {5, 5}, {8, 3}, {11, 11}} {
				for batch := range 3 {
					r := shapeNamed("tiny").request(sms)
					r.StageBytes, r.Stages, r.InFlight = stageBytes, ring[0], ring[1]
					r.BatchTiles = (sms + batch) % 4
					name := fmt.Sprintf("%d SMs, stages of %d B, %v, batches of %d", sms, stageBytes, ring, r.BatchTiles)
					p, err := pipeline.New(r)
					require.NoError(t, err, name)
					require.NoError(t, checkPlan(r, p), name)
					for sm := range sms {
						m := &ringModel{plan: p, sizes: copies(p, sm, sm%3), rng: uint64(sm)*77 + uint64(stageBytes)}
						require.NoError(t, m.run(), "%s, SM %d", name, sm)
					}
				}
			}
		}
	}
}

func TestRingModelReportsBrokenProtocols(t *testing.T) {
	r := shapeNamed("tiny").request(4)
	r.Stages, r.InFlight = 4, 2
	p, err := pipeline.New(r)
	require.NoError(t, err)
	for mutant, want := range map[string]string{
		"":           "",
		noEmptyWait:  "before it was drained",
		noFlightWait: "in flight, at most 2",
		noFullWait:   "consumer ",
		wrongParity:  "before it has landed",
		noArrive:     "nobody can go on",
	} {
		m := &ringModel{plan: p, sizes: copies(p, 0, 0), rng: 99, mutant: mutant}
		if err := m.run(); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want, mutant)
		}
	}
}

// TestCheckPlanReportsBrokenPlans shows that the property checker can fail.
func TestCheckPlanReportsBrokenPlans(t *testing.T) {
	for name, spoil := range map[string]func(*pipeline.Plan){
		"a tile owned twice":       func(p *pipeline.Plan) { p.Layer[2].Count[1]++ },
		"a tile not owned":         func(p *pipeline.Plan) { p.Layer[2].Count[3]-- },
		"a matrix elsewhere":       func(p *pipeline.Plan) { p.Layer[3].Start += 512 },
		"a matrix over another":    func(p *pipeline.Plan) { p.Layer[1].Start = 0 },
		"a tail too short":         func(p *pipeline.Plan) { p.Layer[3].TailK -= 32 },
		"final over layers":        func(p *pipeline.Plan) { p.Final[0].Start -= p.LayerBytes },
		"region over the barriers": func(p *pipeline.Plan) { p.Shared[3].Offset -= 128 },
		"stage too small":          func(p *pipeline.Plan) { p.StageBytes /= 2 },
		"too many in flight":       func(p *pipeline.Plan) { p.InFlight = p.Stages + 1 },
		"padding not accounted":    func(p *pipeline.Plan) { p.PackedBytes += 512 },
		"batches not asked for":    func(p *pipeline.Plan) { p.Layer[3].Batch = 2 },
	} {
		r := shapeNamed("tiny").request(4)
		p, err := pipeline.New(r)
		require.NoError(t, err)
		require.NoError(t, checkPlan(r, p))
		spoil(p)
		require.Error(t, checkPlan(r, p), name)
	}
}

func TestBatchesAreEven(t *testing.T) {
	for _, c := range [][3]int{{28, 14, 14}, {29, 14, 10}, {28, 28, 28}, {27, 28, 27}, {122, 14, 14}, {122, 28, 25},
		{4, 14, 4}, {1, 1, 1}, {5, 1, 1}, {5, 4, 3}} {
		p, err := pipeline.New(pipeline.Request{SMs: 3, Layers: 1, SharedLimit: 65536, BatchTiles: c[1],
			Layer: []pipeline.Matrix{{Name: "w", Rows: 8 * (3*c[0] - 2), K: 64}}})
		require.NoError(t, err)
		m := &p.Layer[0]
		require.Equal(t, c[0], m.MaxCount())
		require.Equal(t, c[2], m.Batch, "%v", c)
		require.Equal(t, (c[0]+c[2]-1)/c[2], m.Batches())
	}
}

func TestChunksRunThroughAllLayersThenFinal(t *testing.T) {
	p, err := pipeline.New(shapeNamed("tiny").request(3))
	require.NoError(t, err)
	for sm := range p.SMs {
		var all, byLayer []pipeline.Chunk
		for c := range p.Chunks(sm) {
			all = append(all, c)
		}
		for _, layer := range []int{0, 1, pipeline.FinalLayer} {
			for c := range p.LayerChunks(sm, layer) {
				byLayer = append(byLayer, c)
			}
		}
		require.Equal(t, byLayer, all)
	}
	for c := range p.Chunks(0) { // breaking off early must not go on
		require.Zero(t, c.Offset)
		break
	}
}

// extremes are the SMs with the largest and the smallest load of a layer, the first
// and the last.
func extremes(p *pipeline.Plan) []int {
	most, least := 0, 0
	for s := range p.SMs {
		if p.SMBytes(s, 0) > p.SMBytes(most, 0) {
			most = s
		}
		if p.SMBytes(s, 0) < p.SMBytes(least, 0) {
			least = s
		}
	}
	return []int{most, least, 0, p.SMs - 1}
}
