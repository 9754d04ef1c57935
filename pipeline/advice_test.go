package pipeline_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// What a refusal of a ring proposes is accepted: once it proposed stages too
// small for 16 tokens of KV.
func TestARingThatARefusalProposesIsAccepted(t *testing.T) {
	proposal := regexp.MustCompile(`(?:, or |fits, )(\d+)(?: stages?)? of (\d+) B`)
	fewer := regexp.MustCompile(`at most (\d+) would fit`)
	proposals := 0
	for _, token := range []int{0, 64, 96, 512, 1024, 4096} {
		for _, stageBytes := range []int{16384, 65536, 231936} {
			for stages := 1; stages <= pipeline.MaxStages; stages++ {
				r := pipeline.Request{SMs: 2, Layers: 1, Layer: []pipeline.Matrix{{Name: "a", Rows: 64, K: 256}},
					StageBytes: stageBytes, Stages: stages, InFlight: 1, KVTokenBytes: token, SharedLimit: 232448,
					Fixed: []pipeline.Region{{Name: "x", Bytes: 30000}}}
				if 16*token > stageBytes {
					continue
				}
				_, err := pipeline.New(r)
				if err == nil {
					continue
				}
				name := fmt.Sprintf("KV tokens of %d B: %v", token, err)
				if m := proposal.FindStringSubmatch(err.Error()); m != nil {
					p := r
					p.Stages, _ = strconv.Atoi(m[1])
					p.StageBytes, _ = strconv.Atoi(m[2])
					_, err := pipeline.New(p)
					require.NoError(t, err, name)
					proposals++
				}
				if m := fewer.FindStringSubmatch(err.Error()); m != nil {
					p := r
					p.Stages, _ = strconv.Atoi(m[1])
					_, err := pipeline.New(p)
					require.NoError(t, err, name)
					proposals++
				}
			}
		}
	}
	require.Greater(t, proposals, 100)
}
