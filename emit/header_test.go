package emit_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/stretchr/testify/require"
)

// dialects are the C and C++ that a header is for, with a compiler each.
var dialects = []struct{ compiler, standard, source string }{{"gcc", "c11", "main.c"}, {"g++", "c++17", "main.cc"}}

// headed is a layout with its header.
type headed struct {
	name   string
	layout *emit.Layout
	text   []byte
}

// headers are those of a kernel with awkward names, and of examples/tiny as
// committed.
func headers(t *testing.T) []headed {
	t.Helper()
	l, err := emit.NewLayout(hosted(t), target(t), extras())
	require.NoError(t, err)
	text, err := emit.Header(l, "step")
	require.NoError(t, err)
	tiny, err := os.ReadFile("../examples/tiny/kernel.h")
	require.NoError(t, err)
	data, err := os.ReadFile("../examples/tiny/layout.json")
	require.NoError(t, err)
	var example emit.Layout
	require.NoError(t, json.Unmarshal(data, &example))
	require.Equal(t, emit.HeaderFile, example.Header)
	return []headed{{name: "step", layout: l, text: text}, {name: "tiny", layout: &example, text: tiny}}
}

// printer is a C program that prints what a header says, and what it must print
// if the header says what the layout does.
func (h headed) printer() (program, want string) {
	var p, w strings.Builder
	show := func(expression string, value any) {
		fmt.Fprintf(&p, "  printf(\"%%llu\\n\", (unsigned long long)(%s));\n", expression)
		fmt.Fprintf(&w, "%v\n", value)
	}
	prefix, l := strings.ToUpper(h.name), h.layout
	p.WriteString("#include \"kernel.h\"\n#include \"kernel.h\"\n#include <stdio.h>\nint main(void) {\n")
	fmt.Fprintf(&p, "  puts(%s_KERNEL);\n", prefix)
	fmt.Fprintln(&w, l.Kernel)
	for _, m := range []struct {
		macro string
		value int
	}{{"GRID", l.Grid}, {"THREADS", l.Threads}, {"SHARED_BYTES", l.SharedBytes}, {"PARAMS_BYTES", l.ParamsBytes},
		{"CLUSTER_SIZE", l.ClusterSize}} {
		show(prefix+"_"+m.macro, m.value)
	}
	show("sizeof("+h.name+"_params)", l.ParamsBytes)
	fmt.Fprintf(&p, "  struct { char one; %s_params p; } aligned;\n", h.name)
	show("(char *)&aligned.p - (char *)&aligned", 8)
	for _, f := range l.Params {
		show(fmt.Sprintf("offsetof(%s_params, %s)", h.name, f.Name), f.Offset)
		size := 8
		if !f.Pointer && f.Type != "u64" {
			size = 4
		}
		show(fmt.Sprintf("sizeof(((%s_params *)0)->%s)", h.name, f.Name), size)
	}
	p.WriteString("  return 0;\n}\n")
	return p.String(), w.String()
}

func TestHeaderSaysWhatTheLayoutDoes(t *testing.T) {
	for _, h := range headers(t) {
		for _, d := range dialects {
			t.Run(h.name+" "+d.standard, func(t *testing.T) {
				if _, err := exec.LookPath(d.compiler); err != nil {
					t.Skipf("no %s to compile the header with", d.compiler)
				}
				dir := t.TempDir()
				program, want := h.printer()
				require.NoError(t, os.WriteFile(filepath.Join(dir, "kernel.h"), h.text, 0o644))
				require.NoError(t, os.WriteFile(filepath.Join(dir, d.source), []byte(program), 0o644))
				cmd := exec.Command(d.compiler, "-std="+d.standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-o", "main",
					d.source)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, string(out))
				got, err := exec.Command(filepath.Join(dir, "main")).CombinedOutput()
				require.NoError(t, err)
				require.Equal(t, want, string(got))
			})
		}
	}
}

// A header that lies about an offset does not compile.
func TestHeaderOfAnotherLayoutIsRefused(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc to compile the header with")
	}
	text := string(headers(t)[1].text)
	wrong := strings.Replace(text, "  uint32_t steps;", "  uint64_t steps;", 1)
	require.NotEqual(t, text, wrong)
	path := filepath.Join(t.TempDir(), "kernel.h")
	require.NoError(t, os.WriteFile(path, []byte(wrong), 0o644))
	out, err := exec.Command("gcc", "-std=c11", "-fsyntax-only", path).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), `layout of tiny_params`)
}

func TestHeaderMacrosOfSizesAreExact(t *testing.T) {
	text := string(headers(t)[0].text)
	for _, want := range []string{
		"#define STEP_GRID 2  // CTAs\n", "#define STEP_GRID2 3  // clashes with the launch's\n",
		"#define STEP_KV_HEADS 8  // of the model\n",
		"#define STEP_WEIGHTS_BYTES 8192\n", "#define STEP_WEIGHTS_ALIGN 16\n",
		"#define STEP_BYTES_BYTES(pages) (UINT64_C(4096) * (pages) + 8)\n",
		"#define STEP_BYTES_BYTES2 32\n", // of Bytes
	} {
		require.Contains(t, text, want)
	}
}

func TestHeaderRefusesNamesThatAreNoPackage(t *testing.T) {
	_, err := emit.Header(headers(t)[0].layout, "a-b")
	require.EqualError(t, err, `header prefix "a-b" is not an importable Go package name`)
}

func TestHeaderOfAKernelWithoutParameters(t *testing.T) {
	l, err := emit.NewLayout(kernel(t, "nothing", func(k *dsl.Kernel) { k.Barrier() }), target(t), emit.Extras{})
	require.NoError(t, err)
	text, err := emit.Header(l, "nothing")
	require.NoError(t, err)
	require.NotContains(t, string(text), "struct")
	require.Contains(t, string(text), "#define NOTHING_PARAMS_BYTES 0")
}

// The kernel's own Params and the header's struct in one translation unit: the
// same members at the same offsets, and the entry under its plain name.
func TestNvccTakesHeaderAndKernelTogether(t *testing.T) {
	c := nvcctest.Need(t)
	for _, o := range []emit.Options{{}, {ParamsByValue: true}} {
		files, _, err := emit.Package(hosted(t), target(t), o, "step", extras())
		require.NoError(t, err)
		dir := t.TempDir()
		for _, f := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644))
		}
		both := "#include \"kernel.h\"\n#include \"kernel.cu\"\nstatic_assert(sizeof(Params) == sizeof(step_params), \"size\");\n"
		for _, f := range headers(t)[0].layout.Params {
			both += fmt.Sprintf("static_assert(PARAM_OFFSET(%s) == offsetof(step_params, %s), \"%s\");\n", f.Name, f.Name,
				f.Name)
		}
		src := filepath.Join(dir, "both.cu")
		require.NoError(t, os.WriteFile(src, []byte(both), 0o644))
		report, err := c.Compile(t.Context(), src, src+"bin",
			nvcc.Options{Arch: target(t).Arch, Flags: []string{"-Werror", "all-warnings"}})
		require.NoError(t, err)
		require.Equal(t, "hosted", report.Functions[0].Name)
	}
}
