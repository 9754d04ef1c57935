package tasks_test

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
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// setup is the kernel around a template. Zero fields: one CTA, one consumer
// warp, no ring.
type setup struct {
	sms, consumers          int
	matrices                []pipeline.Matrix // streamed through the ring
	final                   pipeline.Matrix   // and one of the final phase, unless it has no name
	kvToken                 int               // bytes of a token, when KV is
	stage, stages, inFlight int               // 0: the planner's choice
	batch                   int               // row tiles whose chunks are streamed in turn at most; 0: none
	wide                    int               // pipeline.Request.BatchWide
}

// kvSetup is a kernel with a ring of stages of perStage tokens: three of them, or, but
// for every third n, as many as let a warp pass over the chunks that are others'.
func kvSetup(sms, consumers int, l tasks.KVLayout, perStage, n int) setup {
	s := setup{sms: sms, consumers: consumers, kvToken: l.TokenBytes(),
		stage: max(512, (perStage*l.TokenBytes()+127)/128*128), stages: 3}
	if stages := (32*consumers+perStage-1)/perStage + 2; n%3 != 0 && stages <= pipeline.MaxStages &&
		stages*s.stage <= 120<<10 {
		s.stages, s.inFlight = stages, 2
	}
	return s
}

// rig is a small kernel around one template and the memory it runs on.
type rig struct {
	t    testing.TB
	k    *dsl.Kernel
	e    *tasks.Env
	plan *pipeline.Plan // nil without a ring
	ring *pipeline.Ring

	data    map[string][]byte // initial contents of buffers
	results []string          // buffers the kernel writes, in order of declaration
	params  map[string]uint64
	shares  dsl.Buf[dsl.U32] // [SM][matrix]{first, count}, then the SM's offsets in layer and final phase

	work     *tasks.Work // a plan's, where there is one
	prologue func()      // emitted before the CTA barrier that begins the kernel; may be nil
}

func newRig(t testing.TB, s setup) *rig {
	t.Helper()
	s.sms, s.consumers = max(s.sms, 1), max(s.consumers, 1)
	r := &rig{t: t, data: map[string][]byte{}, params: map[string]uint64{}}
	r.k = dsl.New("rig", dsl.Options{Warps: s.consumers + 1, Grid: s.sms, SharedLimit: 232448})
	if len(s.matrices) > 0 || s.kvToken > 0 {
		if len(s.matrices) == 0 {
			s.matrices = []pipeline.Matrix{{Name: "unused", Rows: 8, K: 32}}
		}
		var final []pipeline.Matrix
		if s.final.Name != "" {
			final = append(final, s.final)
		}
		p, err := pipeline.New(pipeline.Request{SMs: s.sms, Layers: 1, Layer: s.matrices, Final: final,
			KVTokenBytes: s.kvToken, StageBytes: s.stage, Stages: s.stages, InFlight: s.inFlight, BatchTiles: s.batch,
			BatchWide: s.wide, SharedLimit: 131072})
		require.NoError(t, err)
		r.plan, r.ring = p, pipeline.NewRing(r.k, p, s.consumers)
		r.shares = in[dsl.U32](r, "shares", u32Bytes(r.shareTable()...), 0)
	}
	r.e = tasks.NewEnv(r.k, s.sms, s.consumers, dsl.Shared[dsl.F32](r.k, "scratch", s.consumers))
	return r
}

func (r *rig) shareTable() []uint32 {
	var out []uint32
	for sm := range r.plan.SMs {
		for _, m := range r.matrices() {
			out = append(out, uint32(m.First[sm]), uint32(m.Count[sm]))
		}
	}
	return out
}

// matrices are those of the layer, then of the final phase.
func (r *rig) matrices() []pipeline.MatrixPlan { return slices.Concat(r.plan.Layer, r.plan.Final) }

func (r *rig) word(i int) dsl.Val[dsl.U32] {
	row := 2 * len(r.matrices())
	return dsl.Uniform(r.shares.Load(r.e.CTA.MulC(row).AddC(i)), dsl.CTAScope)
}

// share is this CTA's part of matrix i.
func (r *rig) share(i int) tasks.Share {
	return tasks.Share{First: r.word(2 * i), Count: r.word(2*i + 1)}
}

// from is where matrix i begins in the packed weights.
func (r *rig) from(i int) dsl.Val[dsl.U64] {
	start := r.matrices()[i].Start
	if i >= len(r.plan.Layer) {
		start += r.plan.LayerBytes
	}
	return r.k.U64(uint64(start) / 16)
}

// in declares a buffer with contents of n elements (0: as many as there are
// bytes for) that the kernel only reads.
func in[T dsl.Elem](r *rig, name string, data []byte, n int) dsl.Buf[T] {
	r.data[name] = data
	return dsl.Global[T](r.k, name, int64(n), dsl.ReadOnly(), dsl.Align(16))
}

// inOut declares a buffer with contents that the kernel changes.
func inOut[T dsl.Elem](r *rig, name string, data []byte, n int) dsl.Buf[T] {
	r.data[name] = data
	r.results = append(r.results, name)
	return dsl.Global[T](r.k, name, int64(n), dsl.Align(16))
}

// out declares a buffer of n elements, uninitialised.
func out[T dsl.Elem](r *rig, name string, n int) dsl.Buf[T] {
	r.results = append(r.results, name)
	return dsl.Global[T](r.k, name, int64(n), dsl.Align(16))
}

// scalar declares a parameter and its value.
func (r *rig) scalar(name string, v uint32) dsl.Val[dsl.U32] {
	r.params[name] = uint64(v)
	return dsl.Scalar[dsl.U32](r.k, name, "")
}

// body emits the prologue and the two roles; a rig without a ring has no
// producer (produce is nil, c is nil).
func (r *rig) body(consume func(c *pipeline.Consumer), produce func(p *pipeline.Producer)) {
	k, e := r.k, r.e
	if r.ring != nil {
		k.If(e.Tid.EqC(0), func() {
			if r.work != nil {
				r.work.Init()
			}
			r.ring.Init()
		})
		if r.prologue != nil {
			r.prologue()
		}
		k.Barrier()
	}
	roles := []dsl.Role{{Name: "consumers", First: 0, End: e.Consumers, Body: func() {
		if r.ring == nil {
			consume(nil)
			return
		}
		c := r.ring.Consumer()
		if r.work != nil {
			r.work.Start()
		}
		consume(c)
	}}}
	if produce != nil {
		roles = append(roles, dsl.Role{Name: "producer", First: e.Consumers, End: e.Consumers + 1, Body: func() {
			produce(r.ring.Producer())
		}})
	}
	k.Roles(roles...)
}

// seeds is how many interleavings a test tries.
func seeds() int {
	if !deep.On() {
		return 2
	}
	return 4
}

// run executes the kernel over several seeds: no fault in any, and the same bits
// in all buffers it writes. It returns those.
func (r *rig) run() map[string][]byte {
	r.t.Helper()
	program := r.load()
	var first map[string][]byte
	for seed := range seeds() {
		got, err := r.once(program, uint64(seed))
		require.NoError(r.t, err)
		if first == nil {
			first = got
		}
		require.Equal(r.t, first, got, "seed %d gives other bits than seed 0", seed)
	}
	return first
}

func (r *rig) load() *interp.Program {
	r.t.Helper()
	kernel, err := r.k.Finish()
	require.NoError(r.t, err)
	program, err := interp.Load(kernel)
	require.NoError(r.t, err)
	return program
}

// once executes one seed on fresh memory. Uninitialised buffers hold NaN
// patterns, and reading them is a fault.
func (r *rig) once(program *interp.Program, seed uint64) (map[string][]byte, error) {
	mem := interp.NewMemory()
	for _, b := range program.Kernel().Globals() {
		data, ok := r.data[b.Name]
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
	if _, err := program.Run(mem, interp.Options{Seed: seed, Params: r.params, MaxSteps: 2e8}); err != nil {
		return nil, err
	}
	got := map[string][]byte{}
	for _, n := range r.results {
		got[n] = mem.Bytes(n)
	}
	return got, nil
}

// eachPair calls an epilogue for every pair of n rows with the dot products in
// y, spread over all consumer threads, as a GEMV would.
func (r *rig) eachPair(y dsl.Buf[dsl.F32], n int, epilogue tasks.Epilogue) {
	e := r.e
	first := e.CTA.MulC(e.Threads()).Add(e.Tid)
	r.k.ForStep(first, r.k.U32(n/2), e.Threads()*e.Grid, func(i dsl.Val[dsl.U32]) {
		v := y.LoadN(i.MulC(2), 2)
		epilogue(i.MulC(2), v[0], v[1])
	})
}

// refused is the message of a kernel that must be refused.
func (r *rig) refused() string {
	r.t.Helper()
	_, err := r.k.Finish()
	require.Error(r.t, err)
	return err.Error()
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 77)) }

// toBF16 rounds to the nearest bfloat16, ties to even.
func toBF16(x float64) half.BF16 {
	return half.BF16Of(float32(x))
}

func fromBF16(b half.BF16) float64 { return float64(b.Float32()) }

// normals are n bf16 numbers of a normal distribution.
func normals(rng *rand.Rand, n int, scale float64) []half.BF16 {
	out := make([]half.BF16, n)
	for i := range out {
		out[i] = toBF16(scale * rng.NormFloat64())
	}
	return out
}

func wide(v []half.BF16) []float64 {
	out := make([]float64, len(v))
	for i, b := range v {
		out[i] = fromBF16(b)
	}
	return out
}

// floats are n f32 numbers of a normal distribution.
func floats(rng *rand.Rand, n int, scale float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(scale * rng.NormFloat64())
	}
	return out
}

func wide32(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

func bf16Bytes(v []half.BF16) []byte {
	var out []byte
	for _, x := range v {
		out = x.Append(out)
	}
	return out
}

func u32Bytes(v ...uint32) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, x)
	}
	return out
}

func f32Bytes(v []float32) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

func bf16s(b []byte) []half.BF16 {
	out := make([]half.BF16, len(b)/2)
	for i := range out {
		out[i] = half.BF16At(b[2*i:])
	}
	return out
}

func u32s(b []byte) []uint32 {
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

func f32s(b []byte) []float64 {
	out := make([]float64, len(b)/4)
	for i, u := range u32s(b) {
		out[i] = float64(math.Float32frombits(u))
	}
	return out
}

// near requires |got − want| ≤ tol[i] element by element.
func near(t testing.TB, want, got, tol []float64, format string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tol[i]) {
			require.Failf(t, "too far", "element %d is %g, want %g ± %g; "+format,
				append([]any{i, got[i], want[i], tol[i]}, args...)...)
		}
	}
}

// scaled is |v|·by + floor, the tolerance of a relative error.
func scaled(v []float64, by, floor float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = math.Abs(x)*by + floor
	}
	return out
}

// refusesIn fails unless the rig's kernel is refused with want in one line that names a line of the template's file, a
// name without .go, and its caller's in a test of the same folder.
func refusesIn(t testing.TB, file, want string, r *rig) {
	t.Helper()
	lines := fmt.Sprintf(`^(\w+)/%s\.go:\d+ \(called from (\w+)/\w*refused_test\.go:\d+\): %s$`, file, regexp.QuoteMeta(want))
	found := regexp.MustCompile(lines).FindStringSubmatch(r.refused())
	require.NotNil(t, found, "%s: want %s", r.refused(), want)
	require.Equal(t, found[1], found[2])
}
