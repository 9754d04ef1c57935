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

// TestKernelStatistics freezes what every registered model's kernel is made of, and
// some with several query rows a step. A change shows in review as a change of these
// figures.
func TestKernelStatistics(t *testing.T) {
	type kernel struct {
		model string
		rows  int
	}
	var all []kernel
	for _, c := range models.Checked() {
		all = append(all, kernel{c.Name, 1})
	}
	var b strings.Builder
	for _, k := range append(all, kernel{"llama3-8b", 8}, kernel{"llama3-8b", 16}, kernel{"llama3.2-1b", 8}) {
		c, err := models.Lookup(k.model)
		require.NoError(t, err)
		mk, err := megakernel.Build(c, megakernel.Options{Tokens: k.rows})
		require.NoError(t, err)
		target, err := emit.TargetFor("sm_90a")
		require.NoError(t, err)
		src, err := emit.Print(mk.IR, target, megakernel.EmitOptions())
		require.NoError(t, err)
		fmt.Fprintf(&b, "# %s on %d SMs", c.Name, mk.Options.SMs)
		if k.rows > 1 {
			fmt.Fprintf(&b, ", %d rows", k.rows)
		}
		b.WriteByte('\n')
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
