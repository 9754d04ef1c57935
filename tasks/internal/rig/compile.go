package rig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/stretchr/testify/require"
)

// CompilesWhole compiles a kernel of warpgroups, without spills or products that ptxas puts one behind the other.
func CompilesWhole(t *testing.T, kernel *ir.Kernel) nvcc.Function {
	t.Helper()
	c := nvcctest.Need(t)
	tg, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	src, err := emit.Print(kernel, tg, megakernel.EmitOptions())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "prompt.cu")
	require.NoError(t, os.WriteFile(path, src.Text, 0o644))
	report, err := c.Compile(t.Context(), path, path+"bin", nvcc.Options{Arch: tg.Arch,
		Flags: []string{"-Werror", "all-warnings"}})
	require.NoError(t, err)
	require.NotContains(t, report.Text, "(C75", "ptxas serialises products")
	f := report.Functions[0]
	require.Zero(t, f.SpillStores+f.SpillLoads+f.Stack, "%+v", f)
	return f
}
