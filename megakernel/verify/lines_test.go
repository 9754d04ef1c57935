package verify

import (
	"bytes"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// Of tiny there is no Go line from which no instruction runs.
func TestEveryLineOfTinyRuns(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	r, err := Check(t.Context(), Request{Config: c, Seeds: 4, Steps: 2, Wide: true})
	require.NoError(t, err)
	require.NoError(t, r.Err())
	require.Len(t, r.Coverage.Roles, 3, "all warps, consumers, producer")
	for _, role := range r.Coverage.Roles {
		require.Equal(t, role.Lines, role.Hit, role.Role)
		require.GreaterOrEqual(t, 1000*role.Ran, 990*role.All, role.Role)
	}
	for _, m := range r.Coverage.Missing {
		require.False(t, m.Whole, "%v", m)
	}
}

// An instruction that has not run is said with its role and its line.
func TestAnInstructionThatDoesNotRunIsNamed(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 3})
	require.NoError(t, err)
	keys := keysOf(mk.IR)
	counts := make([]int64, len(keys))
	for i := range counts {
		counts[i] = 1
	}
	lost := -1
	for i, key := range keys { // the producer's copy of weights
		if key.role == "producer" && key.op == ir.OpBulkG2S && key.region == "down" {
			lost, counts[i] = i, 0
			break
		}
	}
	require.GreaterOrEqual(t, lost, 0)
	ran := executed{}
	ran.add(mk.IR, counts)
	x := ran.of(mk.IR)
	require.Len(t, x.Missing, 1)
	require.Equal(t, MissingLine{"producer", "down", keys[lost].pos, 1, 2, false}, x.Missing[0],
		"the line has copied other matrices' weights")
	for _, role := range x.Roles {
		require.Equal(t, role.All-role.Ran, map[bool]int{true: 1}[role.Role == "producer"], role.Role)
	}
	var text bytes.Buffer
	x.write(&text, false)
	require.NotContains(t, text.String(), "not executed")
	x.write(&text, true)
	require.Contains(t, text.String(), keys[lost].pos.Line)
}
