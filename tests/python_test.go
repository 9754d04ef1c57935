package tests

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// pythonWithTorch is a Python that has torch, or skips the test: $MKGEN_PYTHON,
// else python3.
func pythonWithTorch(t *testing.T) string {
	t.Helper()
	python := cmp.Or(os.Getenv("MKGEN_PYTHON"), "python3")
	if out, err := exec.Command(python, "-c", "import torch").CombinedOutput(); err != nil {
		t.Skipf("%s has no torch (set MKGEN_PYTHON to one that has): %.200s", python, out)
	}
	return python
}

// Shapes that exercise the layout: tiny, and one untied with padded rows and
// columns, SMs without tiles and heads of another size.
func pythonCases(t *testing.T) map[string]*megakernel.Kernel {
	t.Helper()
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	odd := tiny
	odd.Name, odd.Hidden, odd.Intermediate, odd.Heads, odd.KVHeads, odd.HeadDim, odd.Vocab = "odd", 104, 296, 3, 1, 48, 333
	odd.TieEmbeddings, odd.Rope.Scaling = false, nil
	kernels := map[string]*megakernel.Kernel{}
	for _, c := range []struct {
		config models.Config
		sms    int
	}{{tiny, 4}, {odd, 25}} {
		mk, err := megakernel.Build(c.config, megakernel.Options{SMs: c.sms})
		require.NoError(t, err)
		kernels[c.config.Name] = mk
	}
	return kernels
}

// What the Python example puts into the buffers is what a session puts there,
// byte for byte, and its params block is the C header's struct.
func TestThePythonExampleFillsBuffersAsASessionDoes(t *testing.T) {
	python := pythonWithTorch(t)
	const seed, pages = 2, 3
	for name, mk := range pythonCases(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files, err := mk.Files("sm_90a")
			require.NoError(t, err)
			var l emit.Layout
			for _, f := range files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o666))
				if f.Name == megakernel.LayoutFile {
					require.NoError(t, json.Unmarshal(f.Data, &l))
				}
			}
			cmd := exec.Command(python, "testdata/python_buffers.py", "../examples/python", "gpu", dir, fmt.Sprint(seed),
				fmt.Sprint(pages))
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			require.NoError(t, err, stderr.String())
			var got struct {
				Buffers map[string]string
				Params  string
			}
			require.NoError(t, json.Unmarshal(out, &got))

			sim, err := runtime.NewSim(mk.IR, 1)
			require.NoError(t, err)
			_, err = runtime.NewSequence(mk, sim, synth.NewWeights(seed, mk.Config), pages, nil, 0)
			require.NoError(t, err)
			for _, f := range l.Params {
				if !f.Pointer {
					continue
				}
				want := make([]byte, max(f.Bytes, f.PageBytes*pages+f.MoreBytes))
				if f.Fill != "" { // of the others the executor gives nothing out
					require.NoError(t, sim.Read(f.Name, 0, want), f.Name)
				}
				sum := sha256.Sum256(want)
				require.Equal(t, hex.EncodeToString(sum[:]), got.Buffers[f.Name], f.Name)
				delete(got.Buffers, f.Name)
			}
			require.Empty(t, got.Buffers)
			require.Equal(t, paramsInC(t, dir, strings.ReplaceAll(mk.Config.Name, "-", "_"), l.Params), got.Params)
		})
	}
}

// paramsInC is the params block, in hexadecimal, as a C program with the
// generated header in dir fills it: pointer i with i << 32, scalar i with i.
func paramsInC(t *testing.T, dir, name string, fields []emit.Field) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc to compile the header with")
	}
	var p strings.Builder
	fmt.Fprintf(&p, "#include \"kernel.h\"\n#include <stdio.h>\n#include <string.h>\nint main(void) {\n  %s_params p;\n  unsigned char b[sizeof p];\n", name)
	p.WriteString("  memset(&p, 0, sizeof p);\n")
	for i, f := range fields {
		value := fmt.Sprint(i + 1)
		if f.Pointer {
			value = fmt.Sprintf("UINT64_C(%d) << 32", i+1)
		}
		fmt.Fprintf(&p, "  p.%s = %s;\n", f.Name, value)
	}
	p.WriteString("  memcpy(b, &p, sizeof p);\n  for (size_t i = 0; i < sizeof b; i++) printf(\"%02x\", b[i]);\n  return 0;\n}\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.c"), []byte(p.String()), 0o666))
	cmd := exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-o", "main", "main.c")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command(filepath.Join(dir, "main")).Output()
	require.NoError(t, err)
	return string(out)
}
