package tests

import (
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// splitExcuses are, beside prefillExcuses, of a step all of whose keys and values are split.
var splitExcuses = mutate.Excuses{
	{Op: "fence.proxy.async.global", Classes: []mutate.Class{mutate.Remove, mutate.Later}, Role: "consumers",
		Regions: []string{"sync after attention"}, Front: "st @part_sums", Rule: mutate.Causality,
		Why: "no row has one part: what a tensor map reads is written behind it, and other steps report it"},
}

// Each synchronisation around the states of parts of keys and values, in a step that splits them, is reported when it
// is left out, weakened, miscounted or moved.
func TestMutantsOfMergedPartsAreReported(t *testing.T) {
	deep.Only(t)
	excuses := slices.Concat(splitExcuses, prefillExcuses)
	reported, left := promptSubject{sms: 4, room: 64, cached: 300, split: true}.try(t, pipeline.FormatBF16, nil,
		func(mu mutate.Mutation) bool {
			beside := mu.Key.Front + " " + mu.Key.Behind
			return slices.Contains([]string{"sync after attention", "merge", "sync after merge"}, mu.Region) ||
				strings.Contains(beside, "@part_")
		})
	require.GreaterOrEqual(t, len(reported), 30)
	require.NoError(t, excuses.Check(left, splitExcuses))
}
