package rig

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// Setup is the kernel around a template. Zero fields: one CTA, one consumer
// warp, no ring.
type Setup struct {
	SMs, Consumers          int               // CTAs, and consumer warps of each; 0: one
	Matrices                []pipeline.Matrix // streamed through the ring
	Final                   pipeline.Matrix   // and one of the final phase, unless it has no name
	KVToken                 int               // bytes of a token, when KV is
	Stage, Stages, InFlight int               // 0: the planner's choice
	Batch                   int               // row tiles whose chunks are streamed in turn at most; 0: none
	Wide                    int               // pipeline.Request.BatchWide
}

// KVSetup is a kernel with a ring of stages of perStage tokens: three of them, or, but
// for every third n, as many as let a warp pass over the chunks that are others'.
func KVSetup(sms, consumers int, l attention.KVLayout, perStage, n int) Setup {
	s := Setup{SMs: sms, Consumers: consumers, KVToken: l.TokenBytes(),
		Stage: max(512, (perStage*l.TokenBytes()+127)/128*128), Stages: 3}
	if stages := (32*consumers+perStage-1)/perStage + 2; n%3 != 0 && stages <= pipeline.MaxStages &&
		stages*s.Stage <= 120<<10 {
		s.Stages, s.InFlight = stages, 2
	}
	return s
}

// Rig is a small kernel around one template and the memory it runs on.
type Rig struct {
	T    testing.TB // what fails where the kernel does
	K    *dsl.Kernel
	Env  *grid.Env
	Plan *pipeline.Plan // nil without a ring
	Ring *pipeline.Ring // the ring of the plan

	Data    map[string][]byte // initial contents of buffers
	results []string          // buffers the kernel writes, in order of declaration
	Params  map[string]uint64 // values of the kernel's scalars
	shares  dsl.Buf[dsl.U32]  // [SM][matrix]{first, count}, then the SM's offsets in layer and final phase

	Work     *attention.Work // a plan's, where there is one
	Prologue func()          // emitted before the CTA barrier that begins the kernel; may be nil
}

// New begins the kernel of a rig: its buffers of shares, ring and thread coordinates. Its warps have nothing to do yet.
func New(t testing.TB, s Setup) *Rig {
	t.Helper()
	s.SMs, s.Consumers = max(s.SMs, 1), max(s.Consumers, 1)
	r := &Rig{T: t, Data: map[string][]byte{}, Params: map[string]uint64{}}
	r.K = dsl.New("rig", dsl.Options{Warps: s.Consumers + 1, Grid: s.SMs, SharedLimit: 232448})
	if len(s.Matrices) > 0 || s.KVToken > 0 {
		if len(s.Matrices) == 0 {
			s.Matrices = []pipeline.Matrix{{Name: "unused", Rows: 8, K: 32}}
		}
		var final []pipeline.Matrix
		if s.Final.Name != "" {
			final = append(final, s.Final)
		}
		p, err := pipeline.New(pipeline.Request{SMs: s.SMs, Layers: 1, Layer: s.Matrices, Final: final,
			KVTokenBytes: s.KVToken, StageBytes: s.Stage, Stages: s.Stages, InFlight: s.InFlight, BatchTiles: s.Batch,
			BatchWide: s.Wide, SharedLimit: 131072})
		require.NoError(t, err)
		r.Plan, r.Ring = p, pipeline.NewRing(r.K, p, s.Consumers)
		r.shares = In[dsl.U32](r, "shares", U32Bytes(r.shareTable()...), 0)
	}
	r.Env = grid.NewEnv(r.K, s.SMs, s.Consumers, dsl.Shared[dsl.F32](r.K, "scratch", s.Consumers))
	return r
}

func (r *Rig) shareTable() []uint32 {
	var out []uint32
	for sm := range r.Plan.SMs {
		for _, m := range r.matrices() {
			out = append(out, uint32(m.First[sm]), uint32(m.Count[sm]))
		}
	}
	return out
}

// matrices are those of the layer, then of the final phase.
func (r *Rig) matrices() []pipeline.MatrixPlan { return slices.Concat(r.Plan.Layer, r.Plan.Final) }

func (r *Rig) word(i int) dsl.Val[dsl.U32] {
	row := 2 * len(r.matrices())
	return dsl.Uniform(r.shares.Load(r.Env.CTA.MulC(row).AddC(i)), dsl.CTAScope)
}

// Share is this CTA's part of matrix i.
func (r *Rig) Share(i int) product.Share {
	return product.Share{First: r.word(2 * i), Count: r.word(2*i + 1)}
}

// From is where matrix i begins in the packed weights.
func (r *Rig) From(i int) dsl.Val[dsl.U64] {
	start := r.matrices()[i].Start
	if i >= len(r.Plan.Layer) {
		start += r.Plan.LayerBytes
	}
	return r.K.U64(uint64(start) / 16)
}

// In declares a buffer with contents of n elements (0: as many as there are
// bytes for) that the kernel only reads.
func In[T dsl.Elem](r *Rig, name string, data []byte, n int) dsl.Buf[T] {
	r.Data[name] = data
	return dsl.Global[T](r.K, name, int64(n), dsl.ReadOnly(), dsl.Align(16))
}

// InOut declares a buffer with contents that the kernel changes.
func InOut[T dsl.Elem](r *Rig, name string, data []byte, n int) dsl.Buf[T] {
	r.Data[name] = data
	r.results = append(r.results, name)
	return dsl.Global[T](r.K, name, int64(n), dsl.Align(16))
}

// Out declares a buffer of n elements, uninitialised.
func Out[T dsl.Elem](r *Rig, name string, n int) dsl.Buf[T] {
	r.results = append(r.results, name)
	return dsl.Global[T](r.K, name, int64(n), dsl.Align(16))
}

// Scalar declares a parameter and its value.
func (r *Rig) Scalar(name string, v uint32) dsl.Val[dsl.U32] {
	r.Params[name] = uint64(v)
	return dsl.Scalar[dsl.U32](r.K, name, "")
}

// Body emits the prologue and the two roles; a rig without a ring has no
// producer (produce is nil, c is nil).
func (r *Rig) Body(consume func(c *pipeline.Consumer), produce func(p *pipeline.Producer)) {
	k, e := r.K, r.Env
	if r.Ring != nil {
		k.If(e.Tid.EqC(0), func() {
			if r.Work != nil {
				r.Work.Init()
			}
			r.Ring.Init()
		})
		if r.Prologue != nil {
			r.Prologue()
		}
		k.Barrier()
	}
	roles := []dsl.Role{{Name: "consumers", First: 0, End: e.Consumers, Body: func() {
		if r.Ring == nil {
			consume(nil)
			return
		}
		c := r.Ring.Consumer()
		if r.Work != nil {
			r.Work.Start()
		}
		consume(c)
	}}}
	if produce != nil {
		roles = append(roles, dsl.Role{Name: "producer", First: e.Consumers, End: e.Consumers + 1, Body: func() {
			produce(r.Ring.Producer())
		}})
	}
	k.Roles(roles...)
}

// Seeds is how many interleavings a test tries.
func Seeds() int {
	if !deep.On() {
		return 2
	}
	return 4
}

// Run executes the kernel over several seeds: no fault in any, and the same bits
// in all buffers it writes. It returns those.
func (r *Rig) Run() map[string][]byte {
	r.T.Helper()
	program := r.Load()
	var first map[string][]byte
	for seed := range Seeds() {
		got, err := r.Once(program, uint64(seed))
		require.NoError(r.T, err)
		if first == nil {
			first = got
		}
		require.Equal(r.T, first, got, "seed %d gives other bits than seed 0", seed)
	}
	return first
}

// Load finishes the kernel and makes it ready to run on the CPU.
func (r *Rig) Load() *interp.Program {
	r.T.Helper()
	kernel, err := r.K.Finish()
	require.NoError(r.T, err)
	program, err := interp.Load(kernel)
	require.NoError(r.T, err)
	return program
}

// Once executes one seed on fresh memory. Uninitialised buffers hold NaN
// patterns, and reading them is a fault.
func (r *Rig) Once(program *interp.Program, seed uint64) (map[string][]byte, error) {
	mem := interp.NewMemory()
	for _, b := range program.Kernel().Globals() {
		data, ok := r.Data[b.Name]
		bytes := make([]byte, max(int(b.Bytes()), len(data)))
		copy(bytes, data)
		if !ok {
			for i := range bytes {
				bytes[i] = 0xff
			}
		}
		mem.Bind(b.Name, bytes)
		if !ok {
			mem.MarkUninit(b.Name)
		}
	}
	if _, err := program.Run(mem, interp.Options{Seed: seed, Params: r.Params, MaxSteps: 2e8}); err != nil {
		return nil, err
	}
	got := map[string][]byte{}
	for _, n := range r.results {
		got[n] = mem.Bytes(n)
	}
	return got, nil
}

// EachRows calls an epilogue for all n rows with the dot products in y, spread over all consumer threads, as a GEMV
// would.
func (r *Rig) EachRows(y dsl.Buf[dsl.F32], n int, epilogue product.Finisher) {
	e, each := r.Env, epilogue.Each()
	first := e.CTA.MulC(e.Threads()).Add(e.Tid)
	r.K.ForStep(first, r.K.U32(n/each), e.Threads()*e.Grid, func(i dsl.Val[dsl.U32]) {
		var v []dsl.Val[dsl.F32]
		for at := 0; at < each; at += 4 {
			v = append(v, y.LoadN(i.MulC(each).AddC(at), min(each, 4))...)
		}
		epilogue.Finish(i.MulC(each), v)
	})
}

// Refused is the message of a kernel that must be refused.
func (r *Rig) Refused() string {
	r.T.Helper()
	_, err := r.K.Finish()
	require.Error(r.T, err)
	return err.Error()
}

// Rand is a source of random numbers, the same for the same seed.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 77)) }

// ToBF16 rounds to the nearest bfloat16, ties to even.
func ToBF16(x float64) half.BF16 {
	return half.BF16Of(float32(x))
}

// FromBF16 is a bf16 as a float64.
func FromBF16(b half.BF16) float64 { return float64(b.Float32()) }

// Normals are n bf16 numbers of a normal distribution.
func Normals(rng *rand.Rand, n int, scale float64) []half.BF16 {
	out := make([]half.BF16, n)
	for i := range out {
		out[i] = ToBF16(scale * rng.NormFloat64())
	}
	return out
}

// Wide are values of bf16 in float64.
func Wide(v []half.BF16) []float64 {
	out := make([]float64, len(v))
	for i, b := range v {
		out[i] = FromBF16(b)
	}
	return out
}

// Floats are n f32 numbers of a normal distribution.
func Floats(rng *rand.Rand, n int, scale float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(scale * rng.NormFloat64())
	}
	return out
}

// Wide32 are values of float32 in float64.
func Wide32(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// BF16Bytes are the bytes of values of bf16, as device memory has them.
func BF16Bytes(v []half.BF16) []byte {
	var out []byte
	for _, x := range v {
		out = x.Append(out)
	}
	return out
}

// U32Bytes are the bytes of 32-bit words, as device memory has them.
func U32Bytes(v ...uint32) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, x)
	}
	return out
}

// F32Bytes are the bytes of floats, as device memory has them.
func F32Bytes(v []float32) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// BF16s are the values of bf16 that device memory holds.
func BF16s(b []byte) []half.BF16 {
	out := make([]half.BF16, len(b)/2)
	for i := range out {
		out[i] = half.BF16At(b[2*i:])
	}
	return out
}

// U32s are the words that device memory holds.
func U32s(b []byte) []uint32 {
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

// F32s are the floats that device memory holds, in float64.
func F32s(b []byte) []float64 {
	out := make([]float64, len(b)/4)
	for i, u := range U32s(b) {
		out[i] = float64(math.Float32frombits(u))
	}
	return out
}

// Near requires |got − want| ≤ tol[i] element by element.
func Near(t testing.TB, want, got, tol []float64, format string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tol[i]) {
			require.Failf(t, "too far", "element %d is %g, want %g ± %g; "+format,
				append([]any{i, got[i], want[i], tol[i]}, args...)...)
		}
	}
}

// Scaled is |v|·by + floor, the tolerance of a relative error.
func Scaled(v []float64, by, floor float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = math.Abs(x)*by + floor
	}
	return out
}

// RefusesIn fails unless the rig's kernel is refused with want in one line that names a line of the template's file, a
// name without .go, and its caller's in a test of the same folder.
func RefusesIn(t testing.TB, file, want string, r *Rig) {
	t.Helper()
	lines := fmt.Sprintf(`^(\w+)/%s\.go:\d+ \(called from (\w+)/\w*refused_test\.go:\d+\): %s$`, file, regexp.QuoteMeta(want))
	found := regexp.MustCompile(lines).FindStringSubmatch(r.Refused())
	require.NotNil(t, found, "%s: want %s", r.Refused(), want)
	require.Equal(t, found[1], found[2])
}
