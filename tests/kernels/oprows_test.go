package kernels

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/stretchr/testify/require"
)

func opRows(t *testing.T) *OpRows {
	t.Helper()
	r, err := NewOpRows()
	require.NoError(t, err)
	return r
}

// execute runs the rows on the executor and returns out.
func execute(t *testing.T, r *OpRows, seed uint64) []byte {
	t.Helper()
	p, err := interp.Load(r.IR)
	require.NoError(t, err)
	mem := interp.NewMemory()
	for _, in := range r.Inputs {
		mem.Bind(in.Name, append([]byte(nil), in.Data...))
	}
	_, err = p.Run(mem, interp.Options{Seed: seed, Params: r.Params})
	require.NoError(t, err)
	return mem.Bytes("out")
}

func TestOpRowsCoverEveryOp(t *testing.T) {
	r := opRows(t)
	used, shown := map[ir.Op]bool{}, map[ir.Op]bool{}
	r.IR.Instrs(func(in *ir.Instr) { used[in.Op] = true })
	next := 0
	for _, s := range r.Spans {
		shown[s.Op] = true
		require.Equal(t, next, s.First, "spans lie one behind the other")
		next += s.Words
	}
	require.Equal(t, r.Words, next)
	for _, op := range ir.AllOps() {
		require.True(t, used[op], "op %s is not in the kernel", op)
		require.True(t, shown[op], "op %s has no span of the output", op)
	}
}

func TestOpRowsRunOnTheExecutorTheSameUnderEverySchedule(t *testing.T) {
	r := opRows(t)
	first := execute(t, r, 0)
	for seed := range uint64(4) {
		require.Equal(t, first, execute(t, r, seed+1))
	}
	written := map[ir.Op]bool{}
	for _, s := range r.Spans {
		for w := range s.Words {
			written[s.Op] = written[s.Op] || binary.LittleEndian.Uint32(first[4*(s.First+w):]) != 0
		}
	}
	for _, op := range ir.AllOps() {
		require.True(t, written[op], "op %s shows nothing but zeros", op)
	}
}

func TestOpRowsShowWhatGoComputes(t *testing.T) {
	r := opRows(t)
	out := execute(t, r, 3)
	word := func(buf string, i int) uint32 {
		for _, in := range r.Inputs {
			if in.Name == buf {
				return binary.LittleEndian.Uint32(in.Data[4*i:])
			}
		}
		t.Fatalf("no input %s", buf)
		return 0
	}
	checked := 0
	for _, s := range r.Spans {
		for th := range s.Words {
			got := binary.LittleEndian.Uint32(out[4*(s.First+th):])
			u, v := word("words", th), word("words", th+rowThreads)
			f, h := math.Float32frombits(word("f_in", th)), math.Float32frombits(word("h_in", th))
			var want uint32
			switch s.Op.String() + " " + s.Name {
			case "add u32":
				want = u + v
			case "mulhi u32":
				want = uint32(uint64(u) * uint64(v) >> 32)
			case "shr i32 by 0 to 79":
				want = uint32(int32(v) >> min(th%80, 31))
			case "mul f32 product and sum round twice":
				want = math.Float32bits(float32(h*h) + -float32(h*float32(0.3)))
			case "rint f32":
				if f != f {
					continue
				}
				want = math.Float32bits(float32(math.RoundToEven(float64(f))))
			case "tid ":
				want = uint32(th % 128)
			case "prmt 0x5410":
				want = v<<16 | u&0xffff
			case "dp2a by −3 and 127":
				want = v - 3*(u&0xffff) + 127*(u>>16)
			case "bar.cta words of other warps":
				want = uint32((th%128 ^ 33) & 63 * 7)
			default:
				continue
			}
			checked++
			require.Equal(t, want, got, "%s %s thread %d", s.Op, s.Name, th)
		}
	}
	require.Equal(t, 9*rowThreads, checked+countNaN(r))
}

// countNaN is how many threads the rint check passes over.
func countNaN(r *OpRows) int {
	n := 0
	for _, f := range edgeFloats(0) {
		if f != f {
			n++
		}
	}
	return n
}

func TestCompareFindsAndForgivesWhatTheTableSays(t *testing.T) {
	r := opRows(t)
	want := execute(t, r, 0)
	bad, err := r.Compare(want, want)
	require.NoError(t, err)
	require.Empty(t, bad)
	for _, s := range r.Spans {
		got := append([]byte(nil), want...)
		at := 4 * (s.First + 100)
		x := math.Float32frombits(binary.LittleEndian.Uint32(got[at:]))
		flip := uint32(1)
		if s.Check == Near || x != x {
			flip = 1 << 31 >> 2 // an exponent bit
		}
		if x != x {
			continue
		}
		binary.LittleEndian.PutUint32(got[at:], binary.LittleEndian.Uint32(got[at:])^flip)
		bad, err = r.Compare(got, want)
		require.NoError(t, err)
		require.Len(t, bad, 1, "%s %s", s.Op, s.Name)
		require.Equal(t, 100, bad[0].Thread)
		require.NotEmpty(t, bad[0].String())
	}
	near := Span{Check: Near, Rel: 1e-3}
	require.True(t, near.agree(math.Float32bits(1.0005), math.Float32bits(1)))
	require.False(t, near.agree(math.Float32bits(1.002), math.Float32bits(1)))
	require.False(t, near.agree(math.Float32bits(float32(math.Inf(1))), math.Float32bits(3e38)))
	require.True(t, Span{Check: Zero}.agree(1<<31, 0))
	require.False(t, Span{Check: Float}.agree(1<<31, 0))
	require.True(t, Span{Check: Float}.agree(0x7fffffff, 0x7fc00000))
	require.False(t, Span{Check: Bits}.agree(0x7fffffff, 0x7fc00000))
	_, err = r.Compare(nil, want)
	require.ErrorContains(t, err, "results of 0 and")
}

func TestOpRowsCompileWithoutSpills(t *testing.T) {
	c := nvcctest.Need(t)
	r := opRows(t)
	tg, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	src, err := emit.Print(r.IR, tg, emit.Options{})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "op_rows.cu")
	require.NoError(t, os.WriteFile(path, src.Text, 0o644))
	report, err := c.Compile(t.Context(), path, path+"bin",
		nvcc.Options{Arch: tg.Arch, Flags: []string{"-Werror", "all-warnings"}})
	require.NoError(t, err)
	stores, loads := report.Spills()
	require.Zero(t, stores+loads)
	t.Log(report.Functions[0])
}
