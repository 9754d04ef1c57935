package emit_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/stretchr/testify/require"
)

func TestNvccTakesEveryGroupWithoutSpillsOrWarnings(t *testing.T) {
	c := nvcctest.Need(t)
	for _, g := range deep.Most(groups(), 2) {
		t.Run(g.name, func(t *testing.T) {
			src := filepath.Join(t.TempDir(), "kernel.cu")
			require.NoError(t, os.WriteFile(src, []byte(print(t, kernel(t, g.name, g.build))), 0o644))
			report, err := c.Compile(t.Context(), src, src+"bin",
				nvcc.Options{Arch: target(t).Arch, Flags: []string{"-Werror", "all-warnings"}})
			require.NoError(t, err)
			require.Len(t, report.Functions, 1, "everything is inlined into the kernel")
			f := report.Functions[0]
			require.Equal(t, g.name, f.Name)
			require.Zero(t, f.SpillStores+f.SpillLoads+f.Stack, "%+v", f)
		})
	}
}

func TestNvrtcTakesEveryGroup(t *testing.T) {
	lib := filepath.Join(filepath.Dir(nvcctest.Need(t).Path), "..", "lib", "libnvrtc.so.13")
	python, err := exec.LookPath("python3")
	if _, missing := os.Stat(lib); err != nil || missing != nil {
		t.Skip("no python3, or no libnvrtc beside nvcc")
	}
	for _, g := range deep.Most(groups(), 1) {
		src := filepath.Join(t.TempDir(), g.name+".cu")
		require.NoError(t, os.WriteFile(src, []byte(print(t, kernel(t, g.name, g.build))), 0o644))
		out, err := exec.Command(python, "../tests/gpu/nvrtc_compile.py", lib, src).CombinedOutput()
		require.NoError(t, err, "%s: %s", g.name, out)
	}
}

// The accesses that C++ spells keep their width in machine code.
func TestVectorAccessesStaySixteenBytesWide(t *testing.T) {
	c := nvcctest.Need(t)
	for _, o := range []emit.Options{{}, {ParamsByValue: true}} {
		text, err := emit.Print(kernel(t, "memory_weak", memoryWeak), target(t), o)
		require.NoError(t, err)
		sassHas(t, machineCode(t, c, text.Text))
	}
}

// machineCode compiles a kernel without a warning and returns what cuobjdump, which comes with
// nvcc's wheels, says of it.
func machineCode(t *testing.T, c *nvcc.Compiler, text []byte) []byte {
	t.Helper()
	dump := filepath.Join(filepath.Dir(c.Path), "cuobjdump")
	if _, err := os.Stat(dump); err != nil && os.Getenv("MKGEN_NEED_NVCC") == "" {
		t.Skip("no cuobjdump beside nvcc")
	}
	src := filepath.Join(t.TempDir(), "kernel.cu")
	require.NoError(t, os.WriteFile(src, text, 0o644))
	_, err := c.Compile(t.Context(), src, src+"bin",
		nvcc.Options{Arch: target(t).Arch, Flags: []string{"-Werror", "all-warnings"}})
	require.NoError(t, err)
	sass, err := exec.Command(dump, "-sass", src+"bin").Output()
	require.NoError(t, err)
	return sass
}

func sassHas(t *testing.T, sass []byte) {
	t.Helper()
	for _, want := range []string{"LDG.E.128 ", "LDG.E.128.CONSTANT", "STG.E.128", "STS.128", "LDS.128", "LDG.E.64 ",
		"LDG.E.NA.64", "LDG.E.U16"} {
		require.True(t, bytes.Contains(sass, []byte(want)), "no %s in the machine code", want)
	}
	for _, bad := range []string{"LDL", "STL", " LD.E", " ST.E"} {
		require.False(t, bytes.Contains(sass, []byte(bad)),
			"%s in the machine code: local memory or an unknown address space", bad)
	}
}

func TestNvccFlagsNameTheTarget(t *testing.T) {
	require.Equal(t, []string{"-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a"}, target(t).NvccFlags())
	_, err := emit.TargetFor("sm_42")
	require.EqualError(t, err, `architecture "sm_42" is unknown, want one of: sm_90a`)
}
