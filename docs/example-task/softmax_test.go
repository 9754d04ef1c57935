package softmax

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
)

var (
	update = flag.Bool("update", false, "write testdata anew")
	cu     = flag.String("cu", "", "write the emitted CUDA to this file")
)

// words are f32 or u32 values as little-endian bytes.
func words[T float32 | uint32](v []T) []byte {
	out := make([]byte, 4*len(v))
	for i, x := range v {
		u := uint32(x)
		if f, ok := any(x).(float32); ok {
			u = math.Float32bits(f)
		}
		binary.LittleEndian.PutUint32(out[4*i:], u)
	}
	return out
}

// memory binds every buffer of the kernel: x and the share table filled, probs
// uninitialised. partial and the barrier hold what an earlier launch might have
// left, zeros.
func memory(kernel *ir.Kernel, t *Softmax, x []float32) *interp.Memory {
	m := interp.NewMemory()
	for _, b := range kernel.Globals() {
		m.Bind(b.Name, make([]byte, b.Bytes()))
	}
	m.Bind("x", words(x))
	m.Bind("shares", words(t.ShareTable(kernel.Grid)))
	m.MarkUninit("probs")
	return m
}

// run executes the kernel on one seed and returns p.
func run(kernel *ir.Kernel, t *Softmax, x []float32, seed uint64) ([]float32, error) {
	program, err := interp.Load(kernel)
	if err != nil {
		return nil, err
	}
	m := memory(kernel, t, x)
	if _, err = program.Run(m, interp.Options{Seed: seed, Params: map[string]uint64{"epoch": 0}}); err != nil {
		return nil, err
	}
	p := make([]float32, t.N)
	for i := range p {
		p[i] = math.Float32frombits(binary.LittleEndian.Uint32(m.Bytes("probs")[4*i:]))
	}
	return p, nil
}

// reference is the same in float64.
func reference(x []float32, temperature float64) []float64 {
	top, sum, p := float64(slices.Max(x)), 0.0, make([]float64, len(x))
	for i, v := range x {
		p[i] = math.Exp((float64(v) - top) / temperature)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

func TestSoftmax(t *testing.T) {
	for _, c := range []struct {
		n           int
		temperature float64
		o           Options
	}{
		{4, 1, Options{CTAs: 1, Consumers: 1, StageBytes: 512, Stages: 2}},
		{128, 1, Options{CTAs: 1, Consumers: 2, StageBytes: 512, Stages: 2}},
		{1000, 0.7, Options{CTAs: 3, Consumers: 2, StageBytes: 512, Stages: 2}}, // a short last chunk
		{1000, 5, Options{CTAs: 2, Consumers: 4, StageBytes: 1024, Stages: 3}},
		{256, 1, Options{CTAs: 5, Consumers: 1, StageBytes: 512, Stages: 1}}, // CTAs without a chunk
	} {
		x := make([]float32, c.n)
		rng := rand.New(rand.NewPCG(1, uint64(c.n)))
		for i := range x {
			x[i] = float32(3 * rng.NormFloat64())
		}
		x[1] = float32(math.Inf(-1))
		kernel, task, err := Kernel(c.n, c.temperature, c.o)
		if err != nil {
			t.Fatal(err)
		}
		want := reference(x, c.temperature)
		var first []float32
		for seed := range uint64(8) {
			got, err := run(kernel, task, x, seed)
			if err != nil {
				t.Fatalf("n %d, %+v: %v", c.n, c.o, err)
			}
			// f32 throughout: exp2 is good to 2 ulp, the exponent of up to 40 to
			// 2⁻²⁴ of itself, the sum to some 2⁻²⁴ a step; 2⁻¹⁶ holds all of it.
			for i := range want {
				if !(math.Abs(float64(got[i])-want[i]) <= want[i]*0x1p-16) {
					t.Fatalf("n %d, %+v: p[%d] is %g, want %g", c.n, c.o, i, got[i], want[i])
				}
			}
			if first == nil {
				first = got
			}
			if !slices.Equal(first, got) {
				t.Fatalf("n %d, %+v: seed %d gives other bits than seed 0", c.n, c.o, seed)
			}
		}
	}
}

func TestSoftmaxAtTheEdges(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	kernel, task, err := Kernel(256, 1, Options{CTAs: 2, Consumers: 2, StageBytes: 512, Stages: 2})
	if err != nil {
		t.Fatal(err)
	}
	filled := func(rest, at200 float32) []float32 {
		x := slices.Repeat([]float32{rest}, 256)
		x[200] = at200
		return x
	}
	for _, c := range []struct {
		what       string
		x          []float32
		rest, p200 float64 // NaN for NaN
	}{
		{"one share is nothing but -inf", filled(-inf, 3), 0, 1},
		{"equal elements", filled(-1e30, -1e30), 1.0 / 256, 1.0 / 256},
		{"one far above", filled(-1e4, 1e4), 0, 1},
		{"NaN", filled(0, nan), math.NaN(), math.NaN()},
		{"NaN beside -inf", filled(-inf, nan), math.NaN(), math.NaN()},
		{"+inf", filled(0, inf), math.NaN(), math.NaN()},
		{"nothing but -inf", filled(-inf, -inf), math.NaN(), math.NaN()},
	} {
		p, err := run(kernel, task, c.x, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range p {
			want := c.rest
			if i == 200 {
				want = c.p200
			}
			if math.IsNaN(want) != math.IsNaN(float64(v)) || math.Abs(float64(v)-want) > 1e-6 {
				t.Fatalf("%s: p[%d] is %g, want %g", c.what, i, v, want)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	o := Options{CTAs: 1, Consumers: 1, StageBytes: 512, Stages: 2}
	_, _, err := Kernel(6, 1, o)
	if err == nil {
		t.Fatal("6 elements are accepted")
	}
	golden(t, "testdata/refusal.txt", err.Error()+"\n")
	for _, temperature := range []float64{0, -1, math.NaN()} {
		_, _, err = Kernel(8, temperature, o)
		if want := fmt.Sprintf("softmax: temperature %g is not above 0", temperature); err == nil ||
			!strings.HasSuffix(err.Error(), want) {
			t.Fatalf("%v, want %s", err, want)
		}
	}
}

// fault is what the executor reports for a kernel that is wrong: the first
// report that want accepts, over several seeds.
func fault(t *testing.T, o Options, want func(f *interp.Fault) bool) string {
	kernel, task, err := Kernel(2048, 1, o)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(50) {
		_, err = run(kernel, task, make([]float32, 2048), seed)
		var f *interp.Fault
		if !errors.As(err, &f) {
			t.Fatalf("seed %d: no fault but %v", seed, err)
		}
		if want(f) {
			return f.Error() + "\n"
		}
	}
	t.Fatalf("no such fault in 50 seeds, the last is\n%v", err)
	return ""
}

// The reports that docs/writing-a-task.md shows.
func TestReports(t *testing.T) {
	o := Options{CTAs: 2, Consumers: 1, StageBytes: 512, Stages: 2}
	noSync, noWrite := o, o
	noSync.NoSync, noWrite.NoWrite = true, true
	golden(t, "testdata/no-sync.txt", fault(t, noSync, func(f *interp.Fault) bool {
		return f.Kind == interp.DataRace && len(f.Sides) == 2 && f.Sides[0].Thread[:5] != f.Sides[1].Thread[:5] // of two CTAs
	}))
	golden(t, "testdata/no-write.txt", fault(t, noWrite, func(f *interp.Fault) bool { return f.Kind == interp.Deadlock }))
}

// The emitted CUDA: one kernel, its regions named. -cu writes it to a file.
func TestEmittedCUDA(t *testing.T) {
	kernel, _, err := Kernel(512, 1, Options{CTAs: 2, Consumers: 1, StageBytes: 512, Stages: 2})
	if err != nil {
		t.Fatal(err)
	}
	target, err := emit.TargetFor("sm_90a")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := emit.CUDA(&b, kernel, target); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"__global__", "role consumers", "// ---- sync ----", "role producer"} {
		if n := strings.Count(b.String(), s); n != 1 {
			t.Fatalf("%q occurs %d times, want once:\n%s", s, n, b.String())
		}
	}
	_, syncWay, _ := strings.Cut(b.String(), "    // ---- sync ----")
	syncWay, _, _ = strings.Cut("    // ---- sync ----"+syncWay, "    // ---- write ----")
	golden(t, "testdata/sync.cu", syncWay)
	if *cu != "" {
		if err := os.WriteFile(*cu, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// What depends on mkgen's own lines and on the schedule may change: numbers, and
// the last line with the seed. Lines of this module may not.
var (
	ownLine = regexp.MustCompile(`example-task/\w+\.go:\d+`)
	number  = regexp.MustCompile(`\d+`)
)

func stable(report string) string {
	report, _, _ = strings.Cut(report, "\tkernel ")
	own := ownLine.FindAllString(report, -1)
	rest := number.ReplaceAllString(ownLine.ReplaceAllString(report, "@"), "#")
	return rest + strings.Join(own, "\n")
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if stable(got) != stable(string(want)) {
		t.Fatalf("%s differs; run with -update if the change is wanted:\n%s", path, got)
	}
}
