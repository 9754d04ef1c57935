package tests

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

var updateStats = flag.Bool("update-stats", false, "rewrite testdata/stats.txt")

// TestKernelStatistics freezes what every registered model's kernel is made of.
// A change shows in review as a change of these figures.
func TestKernelStatistics(t *testing.T) {
	var b strings.Builder
	for _, c := range models.All() {
		mk, err := megakernel.Build(c, megakernel.Options{})
		require.NoError(t, err)
		target, err := emit.TargetFor("sm_90a")
		require.NoError(t, err)
		src, err := emit.Print(mk.IR, target, megakernel.EmitOptions())
		require.NoError(t, err)
		fmt.Fprintf(&b, "# %s on %d SMs\n", c.Name, mk.Options.SMs)
		fmt.Fprintf(&b, "lines %d\n", strings.Count(string(src.Text), "\n"))
		fmt.Fprintf(&b, "barriers a step %d\n", mk.Barriers())
		least, most := chunks(mk)
		fmt.Fprintf(&b, "chunks an SM and layer %d to %d\n%s\n", least, most, ir.Stats(mk.IR))
	}
	const file = "testdata/stats.txt"
	if *updateStats {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String(), "run: go test ./tests -run KernelStatistics -update-stats")
}

func chunks(mk *megakernel.Kernel) (least, most int64) {
	least = 1 << 62
	for sm := range mk.Plan.SMs {
		n := mk.Plan.ChunkCount(sm, 0)
		least, most = min(least, n), max(most, n)
	}
	return least, most
}
