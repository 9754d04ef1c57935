package prefill_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/prefill"
	"github.com/stretchr/testify/require"
)

// prompt is Y = X·Wᵀ of a prefill step in a kernel of its own. Half of X is written by the kernel.
type prompt struct {
	rows, k, columns     int
	tokens, n            int // there is room for, of the step
	groups, cluster, sms int
	stages, layers       int
	depth                int  // columns of a stage; 0: 64
	apart, last          bool // CTAs of a cluster share the tokens; only the last tile of tokens
	coded                bool // of e4m3 by e4m3: the kernel rounds X
	parts                int  // of the columns
}

func (p prompt) String() string {
	return fmt.Sprintf("%d of %d tokens, %d×%d by %d, %d groups, clusters of %d of %d, stages of %d, apart %v, last %v, coded %v, %d parts",
		p.n, p.tokens, p.rows, p.k, p.columns, p.groups, p.cluster, p.sms, p.depth, p.apart, p.last,
		p.coded, p.parts)
}

// build is make without an error.
func (p prompt) build(t testing.TB) (*ir.Kernel, *pipeline.Plan) {
	t.Helper()
	k, plan, err := p.make(t)
	require.NoError(t, err)
	return k, plan
}

// make is the kernel: the layers' products one after another, each of the same input.
func (p prompt) make(t testing.TB) (*ir.Kernel, *pipeline.Plan, error) {
	t.Helper()
	plan, err := pipeline.New(pipeline.Request{SMs: p.sms, Layers: p.layers,
		Layer:       []pipeline.Matrix{{Name: "other", Rows: 24, K: 64}, {Name: "w", Rows: p.rows, K: p.k, Format: p.format()}},
		SharedLimit: 131072})
	require.NoError(t, err)
	consumers := 4 * p.groups
	k := dsl.New("prompt", dsl.Options{Warps: consumers + 4, Grid: p.sms, Cluster: p.cluster, SharedLimit: 232448})
	e := grid.NewEnv(k, p.sms, consumers, dsl.Shared[dsl.F32](k, "scratch", consumers))
	w := dsl.Global[dsl.B128](k, "w", plan.PackedBytes/16, dsl.ReadOnly())
	a := prefill.Activations{K: p.k, T: p.tokens}
	source := dsl.Global[dsl.BF16](k, "source", int64(a.Len()), dsl.ReadOnly())
	x := dsl.Global[dsl.BF16](k, "x", int64(a.Len()))
	y := dsl.Global[dsl.F32](k, "y", int64(p.layers*p.tokens*p.rows))
	seen := dsl.Global[dsl.BF16](k, "seen", int64(p.sms*consumers*dsl.WarpSize))
	counter := dsl.Global[dsl.U32](k, "counter", 1)
	n := dsl.Scalar[dsl.U32](k, "n", "")
	g := p.gemm(plan)
	if p.parts > 1 {
		g.Sums = dsl.Global[dsl.F32](k, "sums", g.SumsLen(p.tokens))
	}
	if p.coded {
		g.Input = p.codes(k)
	}
	g.Maps(k, w, a, x)
	span := prefill.Span{N: n}
	if p.last {
		always := n.GeC(1)
		span.Last = &always
	}
	stage := (g.StageBytes() + 1023) / 1024 * 1024
	ring := pipeline.NewTileRing(k, pipeline.TileStages{Stages: p.stages, Bytes: stage, Warps: consumers,
		Cluster: p.cluster}, nil)
	k.If(e.Tid.EqC(0), ring.Init)
	k.ClusterBarrier()
	k.Roles(dsl.Role{Name: "consumers", First: 0, End: consumers, Body: func() {
		if p.groups == 2 {
			k.MoreRegisters(224)
		}
		c := ring.Consumer()
		barrier := grid.NewGridBarrier(e, counter, k.U32(0))
		if p.coded {
			(&prefill.Quantise{From: a, X: source, To: *g.Input}).Emit(e, span, p.padded())
		}
		k.ForStep(e.CTA.MulC(e.Threads()).Add(e.Tid), k.U32(a.Len()), e.Threads()*p.sms,
			func(i dsl.Val[dsl.U32]) { x.Store(i, source.Load(i)) })
		k.FenceProxyAsyncGlobal()
		barrier.Sync()
		next := e.CTA.AddC(1).RemC(p.sms).MulC(e.Threads()).Add(e.Tid) // what another CTA has written
		seen.Store(next, x.Load(next))
		k.For(k.U32(0), k.U32(p.layers), func(layer dsl.Val[dsl.U32]) {
			epilogue := func(part *prefill.Part) {
				part.Each(func(v prefill.Pair) {
					k.If(part.Tokens[v.Half].Lt(n), func() {
						y.StoreN(layer.MulC(p.tokens).Add(part.Tokens[v.Half]).MulC(p.rows).Add(v.Row), []dsl.Val[dsl.F32]{v.Y0, v.Y1})
					})
				})
			}
			g.Consume(e, c, ring, layer, span, stage, epilogue)
			if p.parts > 1 {
				barrier.Sync()
				g.Finish(e, layer, span, epilogue)
				barrier.Sync() // sums are written again
			}
		}, dsl.Unroll(1))
	}}, dsl.Role{Name: "producer", First: consumers, End: consumers + 4, Body: func() {
		if p.groups == 2 {
			k.FewerRegisters(56)
		}
		k.If(k.Warp().EqC(consumers), func() {
			c := ring.Producer()
			k.For(k.U32(0), k.U32(p.layers), func(layer dsl.Val[dsl.U32]) {
				g.Produce(e, c, layer, span, p.stages, func() {
					dsl.WaitUntil(counter, dsl.At(0), dsl.GE, k.U32(p.sms), dsl.Acquire(dsl.GPUScope))
					k.FenceProxyAsyncGlobal()
				})
			}, dsl.Unroll(1))
		})
	}})
	k.ClusterBarrier()
	out, err := k.Finish()
	return out, plan, err
}

// gemm is the product, without its maps.
func (p prompt) gemm(plan *pipeline.Plan) *prefill.GEMM {
	return &prefill.GEMM{Name: "w", M: &plan.Layer[1], Plan: plan, Columns: p.columns, Depth: max(p.depth, 64),
		Groups: p.groups, Cluster: p.cluster, Apart: p.apart, Parts: p.parts}
}

// memory is the kernel's buffers with random contents; y is uninitialised.
func (p prompt) memory(t testing.TB, plan *pipeline.Plan) (mem *interp.Memory, w [][]half.BF16, x []half.BF16) {
	t.Helper()
	rng := rig.Rand(uint64(p.rows + p.k))
	packed := make([]byte, plan.PackedBytes)
	for layer := range p.layers {
		w = append(w, rig.Normals(rng, p.rows*p.k, 1))
		image := packed[int64(layer)*plan.LayerBytes:][:plan.LayerBytes]
		require.NoError(t, plan.Pack(image, layer, 0, pipeline.Permuted(rig.Normals(rng, 24*64, 1), 64, nil)))
		require.NoError(t, plan.Pack(image, layer, 1, pipeline.Permuted(w[layer], p.k, nil)))
	}
	a := prefill.Activations{K: p.k, T: p.tokens}
	x = rig.Normals(rng, p.tokens*p.k, 1)
	laid := make([]half.BF16, a.Len())
	for i, v := range x {
		laid[a.Index(i/p.k, i%p.k)] = v
	}
	mem = interp.NewMemory()
	mem.Bind("w", packed)
	mem.Bind("source", rig.BF16Bytes(laid))
	mem.Bind("x", make([]byte, 2*a.Len()))
	mem.Bind("y", make([]byte, 4*p.layers*p.tokens*p.rows))
	mem.MarkUninit("x")
	mem.MarkUninit("y")
	if p.coded {
		mem.Bind("codes", make([]byte, p.tokens*prefill.CodedColumns(p.k)))
		mem.Bind("token_scales", make([]byte, 4*p.tokens))
		mem.MarkUninit("codes")
		mem.MarkUninit("token_scales")
	}
	if p.parts > 1 {
		mem.Bind("sums", make([]byte, 4*p.gemm(plan).SumsLen(p.tokens)))
		mem.MarkUninit("sums")
	}
	mem.Bind("seen", make([]byte, 2*p.sms*4*p.groups*dsl.WarpSize))
	mem.Bind("counter", make([]byte, 4))
	return mem, w, x
}

func prompts() []prompt {
	all := []prompt{
		{rows: 48, k: 192, columns: 16, tokens: 64, n: 64, groups: 1, cluster: 1, sms: 2, stages: 2, layers: 2},
		{rows: 72, k: 96, columns: 32, tokens: 256, n: 200, groups: 2, cluster: 2, sms: 4, stages: 3, layers: 2},
		{rows: 32, k: 64, columns: 32, tokens: 128, n: 3, groups: 1, cluster: 2, sms: 2, stages: 2, layers: 1},
		{rows: 72, k: 224, columns: 16, tokens: 64, n: 40, groups: 1, cluster: 2, sms: 4, stages: 2, layers: 2, depth: 128,
			apart: true},
		{rows: 48, k: 96, columns: 16, tokens: 256, n: 140, groups: 1, cluster: 2, sms: 2, stages: 3, layers: 1, last: true},
		// rows of codes that end amid a group of 64
		{rows: 48, k: 256, columns: 16, tokens: 64, n: 64, groups: 1, cluster: 1, sms: 2, stages: 2, layers: 2, depth: 128,
			coded: true},
		{rows: 72, k: 96, columns: 32, tokens: 256, n: 200, groups: 2, cluster: 2, sms: 4, stages: 3, layers: 2, coded: true},
		{rows: 72, k: 288, columns: 16, tokens: 64, n: 40, groups: 1, cluster: 2, sms: 4, stages: 2, layers: 2, coded: true,
			apart: true},
		{rows: 48, k: 352, columns: 16, tokens: 256, n: 140, groups: 1, cluster: 2, sms: 2, stages: 3, layers: 1, depth: 128,
			coded: true, last: true},
		// parts of the columns
		{rows: 72, k: 512, columns: 16, tokens: 64, n: 40, groups: 1, cluster: 2, sms: 4, stages: 3, layers: 2, depth: 128,
			apart: true, parts: 4},
		{rows: 72, k: 192, columns: 32, tokens: 256, n: 200, groups: 2, cluster: 2, sms: 4, stages: 3, layers: 2, parts: 3},
		{rows: 48, k: 256, columns: 16, tokens: 256, n: 140, groups: 1, cluster: 2, sms: 2, stages: 3, layers: 1, last: true,
			parts: 2},
		{rows: 48, k: 256, columns: 16, tokens: 64, n: 64, groups: 1, cluster: 1, sms: 2, stages: 2, layers: 2, depth: 128,
			coded: true, parts: 2},
	}
	if deep.On() {
		all = append(all, prompt{rows: 512, k: 512, columns: 256, tokens: 512, n: 300, groups: 2, cluster: 2, sms: 4,
			stages: 4, layers: 1},
			prompt{rows: 448, k: 256, columns: 224, tokens: 256, n: 256, groups: 2, cluster: 1, sms: 3, stages: 4, layers: 2})
	}
	return all
}

func TestPrefillGEMMMultipliesTheTokensOfAStep(t *testing.T) {
	for _, p := range prompts() {
		t.Run(p.String(), func(t *testing.T) {
			kernel, plan := p.build(t)
			program, err := interp.Load(kernel)
			require.NoError(t, err)
			var first []byte
			for seed := range uint64(6) { // every policy once
				mem, w, x := p.memory(t, plan)
				_, err := program.Run(mem, interp.Options{Seed: seed, Params: map[string]uint64{"n": uint64(p.n)}})
				require.NoError(t, err)
				if first != nil {
					require.Equal(t, first, mem.Bytes("y"), "seed %d gives other bits", seed)
					continue
				}
				first = mem.Bytes("y")
				got, factors := rig.F32s(first), p.factors(t, mem, w, x)
				for i := range p.layers * p.n * p.rows {
					layer, token, row := i/(p.n*p.rows), i/p.rows%p.n, i%p.rows
					if p.last && token < (p.n-1)/128*128 { // of two CTAs' tiles of 64
						continue
					}
					var want, size float64
					for k := range p.k {
						v := factors.token(token, k) * factors.row(layer, row, k)
						want, size = want+v, size+math.Abs(v)
					}
					have := got[(layer*p.tokens+token)*p.rows+row]
					require.InDelta(t, want, have, size*0x1p-22*8, "layer %d token %d row %d", layer, token, row)
				}
			}
		})
	}
}

// promptExcuses are of the template alone.
var promptExcuses = mutate.Excuses{
	{Op: "fence.proxy.async.global", Classes: rig.MutantLater, Role: "consumers", Behind: "bar.sync",
		Why: "the thread that arrives for its CTA fences behind the barrier, for all", Rule: mutate.Causality},
	{Op: "bar.sync", Classes: rig.MutantEarlier, Role: "consumers", Front: "fence.proxy.async.global",
		Why: "the thread that arrives for its CTA fences behind the barrier, for all", Rule: mutate.Causality},
	{Op: "wait.mbar @tiles_full", Classes: rig.MutantLater, Role: "consumers", Behind: "wgmma.fence",
		Why: "it goes behind wgmma.fence, which orders registers only", Rule: mutate.WGMMAFence},
	{Op: "wgmma.fence", Classes: rig.MutantEarlier, Role: "consumers", Front: "wait.mbar @tiles_full",
		Why: "it goes in front of a wait for memory", Rule: mutate.WGMMAFence},
	{Op: "mbar.arrive.at @tiles_empty", Classes: []mutate.Class{mutate.Count}, Role: "consumers", Front: "wgmma.wait",
		Why: "each of two lanes arrives at the other's CTA instead of its own", Rule: mutate.Phases},
	{Op: "mbar.arrive.at @tiles_empty", Classes: rig.MutantLater, Role: "consumers", Behind: "st @y | st @sums",
		Why:  "the last stage of a tile is released behind a store of results: later than it could",
		Rule: mutate.Causality},
	{Op: "mbar.expect @tiles_full", Classes: rig.MutantLater, Role: "producer", Behind: "tensor.g2s *",
		Why: "a copy may complete before its bytes are expected while the phase lacks its arrival", Rule: mutate.Phases},
	{Op: "wait.acquire @counter", Classes: rig.MutantEarlier, Role: "producer", Front: "syncwarp",
		Why: "weights wait for the input's barrier, too: later than they could", Rule: mutate.Causality},
	{Op: "syncwarp", Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Role: "producer", Front: "tensor.g2s *",
		Why: "the lanes come together where one of them is elected, in each Fill and Add", Rule: mutate.Elect},
}

func TestMutantsOfPrefillGEMMAreReported(t *testing.T) {
	shared := prompt{rows: 32, k: 256, columns: 16, tokens: 128, n: 128, groups: 1, cluster: 2, sms: 2, stages: 2,
		layers: 2}
	apart := shared
	apart.rows, apart.tokens, apart.n, apart.apart = 64, 64, 64, true
	parts := apart
	parts.parts, parts.sms = 2, 4 // two clusters, which share a tile's parts
	for _, p := range deep.Most([]prompt{parts, shared, apart}, 2) {
		t.Run(p.String(), func(t *testing.T) { mutantsOfAPrompt(t, p) })
	}
}

func mutantsOfAPrompt(t *testing.T, p prompt) {
	kernel, plan := p.build(t)
	left := rig.Survivors(t, []*ir.Kernel{kernel}, func(_ int, program *interp.Program, seed uint64) error {
		mem, _, _ := p.memory(t, plan)
		_, err := program.Run(mem, interp.Options{Seed: seed, MaxSteps: 1e6, Params: map[string]uint64{"n": uint64(p.n)}})
		return err
	})
	excuses := promptExcuses
	if p.parts > 1 {
		excuses = append(slices.Clone(excuses), mutate.Excuse{Op: "bar.cluster", Front: "bar.cluster",
			Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Rule: mutate.Causality,
			Why: "all CTAs have met at the grid's barrier behind the last tile"})
	}
	require.NoError(t, excuses.Check(left, excuses))
}

// The tiles that 8B's products take, with what an H100 has room for.
func TestPrefillGEMMCompilesWithoutSpillsOrSerialisedProducts(t *testing.T) {
	for _, p := range deep.Most([]prompt{
		{rows: 4096, k: 14336, columns: 256, stages: 4}, {rows: 6144, k: 4096, columns: 192, stages: 5},
		{rows: 28672, k: 4096, columns: 224, stages: 5},
	}, 1) {
		p.tokens, p.groups, p.cluster, p.sms, p.layers = 512, 2, 2, 132, 32
		kernel, _ := p.build(t)
		t.Logf("%v: %+v", p, rig.CompilesWhole(t, kernel))
	}
}
