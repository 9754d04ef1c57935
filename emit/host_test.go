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
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
	"github.com/stretchr/testify/require"
)

// hosted is a kernel with every kind of parameter, some with awkward names.
func hosted(t *testing.T) *ir.Kernel {
	k := kernel(t, "hosted", func(k *dsl.Kernel) {
		w := dsl.Global[dsl.BF16](k, "weights", 4096, dsl.ReadOnly(), dsl.Align(16),
			dsl.Doc("packed */ \"weights\"\nsecond line"))
		out := dsl.Global[dsl.F32](k, "bytes", 0) // clashes with a method
		out2 := dsl.Global[dsl.F32](k, "Bytes", 8)
		n := dsl.Scalar[dsl.U32](k, "type", "a Go word")
		c := dsl.Scalar[dsl.U64](k, "count_of_steps", "64 bits")
		s := dsl.Scalar[dsl.F32](k, "scale", "")
		i := dsl.Scalar[dsl.I32](k, "shift", "may be negative")
		sh := dsl.Shared[dsl.F32](k, "sh", 128, dsl.Doc("scratch"))
		sh.Store(k.Tid(), dsl.Cast[dsl.F32](w.Load(k.Tid())).Mul(s))
		k.Barrier()
		out.Store(dsl.Cast[dsl.U32](c).Add(n), sh.Load(dsl.At(0)))
		out2.Store(dsl.At(0), dsl.Cast[dsl.F32](i))
	})
	k.Doc = []string{"A kernel for tests."}
	return k
}

func extras() emit.Extras {
	runs := emit.RowRuns(8, func(r int) (string, int) {
		return fmt.Sprintf("layers.%%d.%s",
			[...]string{"gate", "up"}[r%2]), r / 2
	})
	return emit.Extras{
		Constants: []emit.Constant{{Name: "kv heads", Value: 8, Doc: "of the model"},
			{Name: "grid", Value: 3, Doc: "clashes with the launch's"}},
		Packing: []emit.PackEntry{{Matrix: "gate_up", Rows: 8, K: 64, Layers: 2, Base: 0, LayerStride: 1024, TileRows: 8,
			Tiles: 1, KPadded: 64, Order: "row-major", Sources: runs}},
		Tables: []emit.Table{{Name: "Bytes", Type: "f32", Words: []uint32{0x3f800000, 0x80000000, 0x7fc00001, 4, 5, 6, 7,
			0xff800000}}},
		Needs: []emit.Need{{Buffer: "weights", Fill: "what Packing says */ and\na second line"},
			{Buffer: "Bytes", Fill: "the table of that name"}, {Buffer: "bytes", Size: "4 bytes a thread", PageBytes: 4096,
				MoreBytes: 8, Tensors: []string{"a", "b.0"}}},
	}
}

// module writes the generated package and a program into a fresh module.
func module(t *testing.T, o emit.Options, main string) string {
	t.Helper()
	dir := t.TempDir()
	files, _, err := emit.Package(hosted(t), target(t), o, "step", extras())
	require.NoError(t, err)
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for _, f := range files {
		write("step/"+f.Name, string(f.Data))
	}
	write("go.mod", "module example.com/fresh\n\ngo 1.24\n")
	write("main.go", main)
	return dir
}

// goRun runs the go command in a module that may download nothing.
func goRun(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %s: %s", strings.Join(args, " "), out)
	return string(out)
}

func TestHostPackageBuildsAndRunsInAFreshModule(t *testing.T) {
	dir := module(t, emit.Options{}, `package main

import (
	"fmt"

	"example.com/fresh/step"
)

func main() {
	p := step.Params{Weights: 0x1122334455667788, Type: 7, CountOfSteps: 1 << 40, Scale: 0.5, Shift: -2}
	if err := p.Bind("bytes", 0x99); err != nil {
		panic(err)
	}
	fmt.Printf("%x\n", p.Bytes())
	fmt.Println(step.KernelName, step.Grid, step.Threads, step.SharedBytes, step.ParamsBytes, len(step.Buffers()), step.Buffers()[0].Bytes)
	fmt.Println(len(step.Source()) > 1000, step.Packing()[0].Sources, step.KvHeads, step.Grid2, p.Bind("nothing", 1))
	step.Tables()[0].Bytes[0] = 1
	fmt.Printf("%s %s %x\n", step.Tables()[0].Name, step.Tables()[0].Type, step.Tables()[0].Bytes)
}
`)
	goRun(t, dir, "build", "./...")
	require.Equal(t, "8877665544332211"+"9900000000000000"+"0000000000000000"+"07000000"+"00000000"+"0000000000010000"+
		"0000003f"+"feffffff"+"\n"+
		"hosted 2 128 512 48 3 8192\n"+
		"true [{layers.%d.gate 0 2 0 1 4} {layers.%d.up 1 2 0 1 4}] 8 3 kernel hosted has no buffer \"nothing\"\n"+
		"Bytes f32 0000803f00000080"+"0100c07f04000000"+"0500000006000000"+"07000000000080ff\n",
		goRun(t, dir, "run", "."))
}

func TestLaunchIsTypeCheckedBehindTheCudaTag(t *testing.T) {
	dir := module(t, emit.Options{}, `//go:build cuda

package main

import (
	"fmt"

	"example.com/fresh/step"
)

func main() {
	f := step.FunctionOf(func(grid, threads, shared int, params step.DevicePtr) error {
		fmt.Println(grid, threads, shared, uint64(params))
		return nil
	})
	if err := step.Launch(f, 4096); err != nil {
		panic(err)
	}
}
`)
	goRun(t, dir, "vet", "-tags", "cuda", "./...")
	require.Equal(t, "2 128 512 4096\n", goRun(t, dir, "run", "-tags", "cuda", "."))
}

func TestLaunchByValueTakesTheBlockItself(t *testing.T) {
	dir := module(t, emit.Options{ParamsByValue: true}, `//go:build cuda

package main

import (
	"fmt"

	"example.com/fresh/step"
)

func main() {
	f := step.FunctionOf(func(grid, threads, shared int, params []byte) error {
		fmt.Println(grid, threads, shared, len(params), params[24])
		return nil
	})
	if err := step.Launch(f, &step.Params{Type: 9}); err != nil {
		panic(err)
	}
}
`)
	require.Equal(t, "2 128 512 48 9\n", goRun(t, dir, "run", "-tags", "cuda", "."))
}

func TestGeneratedFilesSaySoAndAreFormatted(t *testing.T) {
	files, l, err := emit.Package(hosted(t), target(t), emit.Options{}, "step", extras())
	require.NoError(t, err)
	layout, err := json.MarshalIndent(l, "", "  ")
	require.NoError(t, err)
	golden(t, filepath.Join("host", "layout.json.golden"), append(layout, '\n'))
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
		require.Contains(t, string(f.Data), emit.Generated, f.Name)
		if strings.HasSuffix(f.Name, ".go") {
			require.True(t, strings.HasPrefix(f.Name, "z"))
			cmd := exec.Command("gofmt", "-l")
			cmd.Stdin = strings.NewReader(string(f.Data))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			require.Empty(t, string(out), "%s is not formatted", f.Name)
		}
		golden(t, filepath.Join("host", f.Name+".golden"), f.Data)
	}
	require.Equal(t, []string{"kernel.cu", "kernel.h", "zkernel.go", "zlaunch_cuda.go", "zlayout.go",
		"zpacking.go", "zparams.go", "ztables.go"}, names)
}

func TestHostRefusesNamesThatAreNoPackage(t *testing.T) {
	for _, name := range []string{"", "a-b", "func", "main", "_", "1x"} {
		_, _, err := emit.Package(hosted(t), target(t), emit.Options{}, name, emit.Extras{})
		require.ErrorContains(t, err, "not an importable Go package name", name)
	}
}

func TestLayoutIsReadableAgain(t *testing.T) {
	l, err := emit.NewLayout(hosted(t), target(t), extras())
	require.NoError(t, err)
	l.ByValue = true
	data, err := json.Marshal(l)
	require.NoError(t, err)
	var back emit.Layout
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, l, &back)
}

func TestWordsAreReadBackExactly(t *testing.T) {
	want := emit.Words{0, 1, 0xffffffff, 0x7fc00001}
	text, err := want.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "00000000 00000001 ffffffff 7fc00001", string(text))
	var got emit.Words
	require.NoError(t, got.UnmarshalText(text))
	require.Equal(t, want, got)
	require.EqualError(t, got.UnmarshalText([]byte("00000000 1")), `word 1 is "1", want 8 hexadecimal digits`)
	require.EqualError(t, got.UnmarshalText([]byte("+1234567")), `word 0 is "+1234567", want 8 hexadecimal digits`)
}

func TestExtrasThatDoNotFitTheBuffersAreRefused(t *testing.T) {
	one := func(table emit.Table) emit.Extras { return emit.Extras{Tables: []emit.Table{table}} }
	good := extras().Tables[0]
	for want, x := range map[string]emit.Extras{
		`table "plan": kernel hosted has no such buffer`: one(emit.Table{Name: "plan",
			Type: "u32"}),
		`table "type": kernel hosted has no such buffer`: one(emit.Table{Name: "type",
			Type: "u32"}),
		`table "Bytes" is there twice`: {Tables: []emit.Table{good, good}},
		`table "Bytes" of u32, want u32 or f32 and what its buffer has, f32`: one(emit.Table{Name: "Bytes",
			Type: "u32", Words: good.Words}),
		`table "weights" of bf16, want u32 or f32 and what its buffer has, bf16`: one(emit.Table{Name: "weights",
			Type: "bf16"}),
		`table "Bytes" has 7 words, its buffer 8 elements, want as many and at least 1`: one(emit.Table{Name: "Bytes",
			Type: "f32", Words: good.Words[1:]}),
		`table "bytes" has 0 words, its buffer 0 elements, want as many and at least 1`: one(emit.Table{Name: "bytes",
			Type: "f32"}),
		`need of buffer "weight": kernel hosted has no such buffer`: {
			Needs: []emit.Need{{Buffer: "weight"}}},
		`need of buffer "Bytes": 4 bytes a page and 1 more, but its length is fixed, 8`: {Needs: []emit.Need{{Buffer: "Bytes",
			PageBytes: 4, MoreBytes: 1}}},
	} {
		_, _, err := emit.Package(hosted(t), target(t), emit.Options{}, "step", x)
		require.EqualError(t, err, want)
	}
}

func TestLaunchOfAnyGridTakesIt(t *testing.T) {
	k := hosted(t)
	k.Grid = 0
	l, err := emit.NewLayout(k, target(t), emit.Extras{})
	require.NoError(t, err)
	files, err := emit.Host(l, "step")
	require.NoError(t, err)
	require.Contains(t, string(files[1].Data), "func Launch(f Function, grid int, params DevicePtr) error")
}

func TestRowRunsCoverEveryRowOnce(t *testing.T) {
	// rotary pairs of 3 heads of 8: rows alternate between the halves of a head
	source := func(r int) (string, int) { return "q", r/8*8 + r%8/2 + r%2*4 }
	runs := emit.RowRuns(24, source)
	seen := map[int]int{}
	for _, run := range runs {
		for i := range run.Count {
			_, want := source(run.Row + i*run.RowStep)
			require.Equal(t, want, run.Source+i*run.SourceStep)
			seen[run.Row+i*run.RowStep]++
		}
	}
	require.Len(t, seen, 24)
	for r, n := range seen {
		require.Equal(t, 1, n, "row %d", r)
	}
	require.Len(t, runs, 6)
	require.Equal(t, []emit.RowRun{{Tensor: "o", RowStep: 1, SourceStep: 1, Count: 100}},
		emit.RowRuns(100, func(r int) (string, int) { return "o", r }))
	require.Empty(t, emit.RowRuns(0, nil))
}
