package tests

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// prefillExcuses are of the prefill kernel, whatever of clusters it is run in.
var prefillExcuses = mutate.Excuses{
	{Op: "bar.cluster", Classes: earlier, Front: "st @notes", Why: "passes a note for the host",
		Rule: mutate.Conflict},
	{Op: "bar.cluster", Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Front: "bar.cluster", Behind: "none",
		Why:  "the last one: a barrier of the grid lies before it, behind the last arrival at another CTA",
		Rule: mutate.Causality},
	{Op: "fence.proxy.async.global", Classes: later, Role: "consumers", Behind: "bar.sync",
		Why: "the thread that arrives for its CTA fences behind the barrier, for all", Rule: mutate.Causality},
	{Op: "bar.sync", Classes: earlier, Role: "consumers", Front: "fence.proxy.async.global",
		Why: "the thread that arrives for its CTA fences behind the barrier, for all", Rule: mutate.Causality},
	{Op: "wait.acquire @barrier", Classes: []mutate.Class{mutate.Remove, mutate.Weaken, mutate.Count},
		Role: "consumers", Regions: []string{"sync after attention", "sync after merge", "sync after gate_up"},
		Behind: "bar.sync",
		Why:    "the producer waits for the same barrier, and the next product's consumers for what it copies then",
		Rule:   mutate.Causality},
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Role: "consumers",
		Regions: []string{"sync after attention", "sync after merge", "sync after gate_up"}, Front: "wait.acquire @barrier",
		Behind: "wait.mbar @tiles_full",
		Why:    "behind that wait: the next product's consumers wait for what the producer copies", Rule: mutate.Causality},
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove, mutate.Later}, Role: "consumers", Front: "st @best_index",
		Behind: "red.add.release @barrier", Why: "the thread that arrives wrote what the sync publishes",
		Rule: mutate.Causality},
	{Op: "bar.sync", Classes: mutate.Gone, Role: "consumers", Regions: []string{"lm_head"}, Front: "st @logits",
		Behind: "st @scratch", Why: "barriers of the syncs before lie behind the last read of the scratch",
		Rule: mutate.Causality},
	{Op: "wait.mbar @tiles_full", Classes: later, Role: "consumers", Behind: "wgmma.fence",
		Why: "it goes behind wgmma.fence, which orders registers only", Rule: mutate.WGMMAFence},
	{Op: "wgmma.fence", Classes: earlier, Role: "consumers", Front: "wait.mbar @tiles_full | bar.sync | wait.mbar @turns",
		Why: "it goes in front of a wait for memory", Rule: mutate.WGMMAFence},
	{Op: "wait.mbar @turns", Classes: []mutate.Class{mutate.Later, mutate.Parity},
		Role: "consumers", Regions: []string{"attention"}, Rule: mutate.Causality,
		Why: "a turn orders time alone: nobody writes what products of both warpgroups read, and each has sums of its own"},
	{Op: "mbar.arrive @turns", Classes: mutate.Moved, Role: "consumers", Regions: []string{"attention"},
		Why: "a turn orders time alone, and is passed on earlier or later", Rule: mutate.Causality},
	{Op: "wgmma.commit", Classes: later, Role: "consumers", Regions: []string{"attention"}, Behind: "mbar.arrive @turns",
		Why: "no product lies between: the group is the same", Rule: mutate.Causality},
	{Op: "wgmma.wait", Classes: earlier, Role: "consumers", Regions: []string{"attention"}, Front: "mbar.arrive @turns",
		Why: "it goes in front of an arrival that orders time alone: earlier than it must", Rule: mutate.Causality},
	{Op: "mbar.arrive.at @tiles_empty", Classes: []mutate.Class{mutate.Count}, Role: "consumers", Front: "wgmma.wait",
		Why: "each of two lanes arrives at the other's CTA instead of its own", Rule: mutate.Phases},
	{Op: "mbar.arrive.at @tiles_empty", Classes: later, Role: "consumers",
		Behind: "ld @squares | ld @squares_mlp | ld @x | st @logits | st @part_down",
		Why:    "the last stage of a tile is released behind an access to other memory: later than it could",
		Rule:   mutate.Causality},
	{Op: "fence.proxy.async.shared", Classes: later, Role: "consumers", Regions: []string{"attention"},
		Behind: "bar.sync", Why: "each warp fences behind the barrier, for what the others have written",
		Rule: mutate.Causality},
	{Op: "bar.sync", Classes: earlier, Role: "consumers", Regions: []string{"attention"},
		Front: "fence.proxy.async.shared", Why: "each warp fences behind the barrier, for what the others have written",
		Rule: mutate.Causality},
	{Op: "wgmma.commit", Classes: later, Role: "consumers", Regions: []string{"attention"},
		Behind: "wait.mbar @tiles_full", Why: "no product lies between: the group is the same", Rule: mutate.Causality},
	{Op: "wait.mbar @tiles_full", Classes: earlier, Role: "consumers", Regions: []string{"attention"},
		Front: "wgmma.commit", Why: "no product lies between: the group is the same", Rule: mutate.Causality},
	{Op: "wgmma.fence", Classes: []mutate.Class{mutate.Remove, mutate.Later}, Role: "consumers",
		Regions: []string{"attention"}, Front: "wait.mbar @tiles_full", Behind: "wgmma @tiles",
		Why:  "nothing has touched a register of values' product since the fence in front of keys' product",
		Rule: mutate.WGMMAFence},
	{Op: "mbar.arrive.at @tiles_empty", Classes: later, Role: "consumers", Regions: []string{"attention"},
		Behind: "wgmma.wait", Why: "keys are released behind arithmetic and a wait: later than they could",
		Rule: mutate.Causality},
	{Op: "wgmma.wait", Classes: later, Role: "consumers", Regions: []string{"attention"},
		Front: "mbar.arrive.at @tiles_empty", Behind: "wgmma.wait", Rule: mutate.Causality,
		Why: "it goes, with the branch that it stands in, behind the other wait"},
	{Op: "wgmma.wait", Classes: earlier, Role: "consumers", Regions: []string{"attention"}, Front: "wgmma.wait",
		Behind: "mbar.arrive.at @tiles_empty", Why: "it goes in front of a branch: earlier than it must",
		Rule: mutate.Causality},
	{Op: "wait.mbar @tiles_empty", Classes: earlier, Role: "producer", Front: "ld @page_table",
		Why: "it goes in front of a load of what no thread of a launch writes", Rule: mutate.Conflict},
	{Op: "syncwarp", Classes: mutate.Gone, Role: "producer", Front: "mbar.expect @tiles_full", Behind: "tensor.g2s *",
		Why: "a copy may complete before its bytes are expected while the phase lacks its arrival", Rule: mutate.Phases},
	{Op: "syncwarp", Classes: later, Role: "producer", Front: "tensor.g2s *", Behind: "ld @page_table",
		Why: "it goes behind a load of what no thread of a launch writes", Rule: mutate.Conflict},
	{Op: "wait.acquire @barrier", Classes: earlier, Role: "producer", Front: "syncwarp",
		Why: "weights wait for the input's barrier, too: later than they could", Rule: mutate.Causality},
	{Op: "syncwarp", Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Role: "producer", Front: "tensor.g2s *",
		Why: "the lanes come together where one of them is elected, in each Fill and Add", Rule: mutate.Elect},
	{Op: "mbar.expect @tiles_full", Classes: later, Role: "producer", Behind: "tensor.g2s * | syncwarp",
		Why: "a copy may complete before its bytes are expected while the phase lacks its arrival", Rule: mutate.Phases},
}

// severalExcuses are, beside prefillExcuses, of the prefill kernel of several sequences.
var severalExcuses = mutate.Excuses{
	{Op: "wait.acquire @barrier", Classes: []mutate.Class{mutate.Remove, mutate.Weaken, mutate.Count}, Role: "consumers",
		Regions: []string{"sync after pick"}, Behind: "bar.sync", Rule: mutate.Causality,
		Why: "the LM head's consumers wait for what the producer copies behind the same barrier"},
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Role: "consumers",
		Regions: []string{"sync after pick"}, Front: "wait.acquire @barrier", Behind: "wait.mbar @tiles_full",
		Why: "behind that wait: the LM head's consumers wait for what the producer copies", Rule: mutate.Causality},
	{Op: "mbar.arrive.at @tiles_empty", Classes: later, Role: "consumers", Regions: []string{"lm_head"},
		Behind: "ld @sequences", Rule: mutate.Causality,
		Why: "the last stage of a tile is released behind a load of what no thread writes: later than it could"},
}

// codedExcuses are, beside prefillExcuses, of the prefill kernel whose products' inputs are e4m3.
var codedExcuses = mutate.Excuses{
	{Op: "wait.acquire @barrier", Classes: []mutate.Class{mutate.Remove, mutate.Weaken, mutate.Count}, Role: "consumers",
		Regions: []string{"sync after quantise o", "sync after quantise down"}, Behind: "bar.sync", Rule: mutate.Causality,
		Why: "the producer waits for the same barrier, and the product's consumers for what the producer copies then"},
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Role: "consumers",
		Regions: []string{"sync after quantise o", "sync after quantise down"}, Front: "wait.acquire @barrier",
		Behind: "wait.mbar @tiles_full", Rule: mutate.Causality,
		Why: "behind that wait: the product's consumers wait for what the producer copies"},
}

// codedElsewhere are, beside codedExcuses, of what lies before and behind the phases that round.
var codedElsewhere = mutate.Excuses{
	{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove, mutate.Earlier}, Role: "consumers",
		Regions: []string{"sync after embed"}, Front: "wait.acquire @barrier", Behind: "ld @normed", Rule: mutate.Causality,
		Why: "a warp rounds the tokens whose vectors it made; its lanes have met at the barrier before the arrival"},
	{Op: "mbar.arrive.at @tiles_empty", Classes: later, Role: "consumers", Behind: "ld @token_scales",
		Why: "the last stage of a tile is released behind a load of other memory: later than it could", Rule: mutate.Causality},
}

// promptSubject is a grid of clusters of two and its prompt: 40 tokens behind cached ones.
type promptSubject struct {
	sms, room, hidden, cached int
	heads                     int  // three for each KV head; 0: as many as tiny has
	dim                       int  // of a head; 0: as tiny has it
	norms                     bool // behind the branches, and of all of q and of k: phases that tiny has not
	head                      pipeline.Format
	kv                        attention.KVType // of the cache; "": bf16
	coded                     bool             // inputs of products in e4m3
	several                   bool             // sequences: the 40 tokens are of three, see parts
	down                      int              // parts of the columns of the down projection; 0: one
	split                     bool             // keys and values, in as many parts as there can be
	loud                      float64          // factor of scores; 0: as tiny has it
}

// promptPart is a sequence's tokens of a step, behind cached ones.
type promptPart struct{ cached, tokens int }

// parts are those of the step that each run repeats: the prompt, or the end of one, a sequence that decodes, and
// another prompt.
func (x promptSubject) parts() []promptPart {
	if x.several {
		return []promptPart{{x.cached, 17}, {33, 1}, {0, 22}}
	}
	return []promptPart{{x.cached, 40}}
}

// promptSubjects are grids of one cluster and of two, whose CTAs share tokens or weights, one whose attention has
// several blocks of tokens and maxima that grow, one whose products have several tiles a cluster, and one that splits
// keys and values. A mutant need be reported in one of them.
var promptSubjects = []promptSubject{{sms: 2, room: 64}, {sms: 2, room: 64, cached: 300, loud: 1000},
	{sms: 2, room: 256}, {sms: 4, room: 256}, {sms: 2, room: 64, hidden: 256},
	{sms: 4, room: 64, cached: 300, split: true}}

const promptSeeds = 6 // schedules that a mutant of a prefill kernel must survive

// build is tiny's prefill kernel.
func (x promptSubject) build(t *testing.T, weights pipeline.Format) *megakernel.Prefill {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Hidden, c.Traits.AttnScale = cmp.Or(x.hidden, c.Hidden), cmp.Or(x.loud, c.Traits.AttnScale)
	if x.heads > 0 {
		c.Heads, c.KVHeads = x.heads, x.heads/3
	}
	c.HeadDim = cmp.Or(x.dim, c.HeadDim)
	if x.down > 0 {
		c.Intermediate = 512
	}
	if x.norms {
		c.Traits.Norms, c.Traits.QKNorm = models.NormsAfter, models.QKNormWide
		c.Names = models.TensorNames{models.RolePostAttn: "attn.%d", models.RolePostMLP: "mlp.%d"}
	}
	shared := 80 << 10 // two stages
	if x.room > 128 || x.down > 0 {
		shared = 100 << 10
	}
	mk, err := megakernel.Build(c, megakernel.Options{SMs: x.sms, SharedLimit: shared, Weights: weights, Head: x.head,
		KV: x.kv})
	require.NoError(t, err)
	o := megakernel.PrefillOptions{Tokens: x.room, Groups: 2, Cluster: 2, DownParts: max(x.down, 1)}
	if x.coded {
		o.Activations = pipeline.FormatE4M3
	}
	if x.several {
		o.Sequences = len(x.parts())
	}
	p, err := megakernel.BuildPrefill(mk, o)
	require.NoError(t, err)
	return p
}

// open is the kernel in front of the step that each run repeats. What a run writes is not judged: the bits of its
// matrices are another test's.
func (x promptSubject) open(t *testing.T, weights pipeline.Format) *subject {
	t.Helper()
	pages, used, kept := 8+x.cached/16, 0, 0
	p := x.build(t, weights)
	mk := p.Of
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	wide, err := runtime.NewSim(p.IR, 1)
	require.NoError(t, err)
	_, err = runtime.OpenSequence(t.Context(), mk, sim, runtime.FromTensors(synth.NewWeights(1, mk.Config),
		runtime.LoadOptions{}), runtime.Options{Pages: pages, Table: []uint32{1},
		KVScales: slices.Repeat([]float32{0.0625}, mk.KV.ScalesLen())})
	require.NoError(t, err)
	r, err := runtime.OpenPrefill(p, wide, sim, pages, 0)
	require.NoError(t, err)
	var step []batch.Sequence
	var sizes []megakernel.Sequence
	for i, part := range x.parts() {
		tokens := synth.Tokens(7, i, part.cached+part.tokens, 320)
		table := make([]uint32, (len(tokens)+15)/16)
		for j := range table {
			table[j] = uint32((3 + 5*used) % pages)
			used++
		}
		kept += (part.cached + 15) / 16
		for at := 0; at < part.cached; at += x.room {
			_, err = r.Run(t.Context(), tokens[at:min(at+x.room, part.cached)], at, table, true)
			require.NoError(t, err)
		}
		sizes = append(sizes, megakernel.Sequence{New: part.tokens, Cached: part.cached})
		step = append(step, batch.Sequence{New: tokens[part.cached:], Cached: part.cached, Pages: table})
	}
	require.LessOrEqual(t, used, pages)
	r.SplitMost = x.split
	_, err = r.RunAll(t.Context(), step, false) // writes the tokens and the tables that stay
	require.NoError(t, err)
	wide.Options.MaxSteps = 3e6
	return &subject{seeds: promptSeeds, ir: p.IR,
		run: func(_ context.Context, k *ir.Kernel, seed uint64) (report, place string, err error) {
			wide := wide.Fork()
			if err := errors.Join(wide.Swap(k), wide.Zero("barrier"), wide.Zero("epoch")); err != nil {
				return "", "", err
			}
			wide.Reseed(seed)
			scalars := map[string]uint64{megakernel.ScalarRows: 40, megakernel.ScalarPages: uint64(pages),
				megakernel.ScalarChooses: 1, megakernel.ScalarPartBlocks: attention.OnePart}
			if x.split {
				scalars[megakernel.ScalarPartBlocks] = uint64(p.SplitMost(sizes))
			}
			if x.kv == attention.KVE4M3 {
				scalars[megakernel.ScalarKept] = uint64(kept)
			}
			if x.several {
				scalars[megakernel.ScalarSequences] = uint64(len(step))
			} else {
				scalars[megakernel.ScalarPos] = uint64(x.cached)
			}
			return reportOf(runtime.Launch(wide, scalars))
		}}
}

// Every synchronisation of the whole kernel that is left out, weakened, miscounted or moved is reported, in a ring of
// two stages. Of mutants with equal keys the first is run.
func TestMutantsOfThePrefillKernelAreReported(t *testing.T) {
	deep.Only(t)
	excuses := slices.Concat(prefillExcuses, registerExcuses)
	_, left := tryEach(t, promptSubject{}, excuses, func(mutate.Mutation) bool { return true })
	require.NoError(t, excuses.Check(left, excuses))
	// of matrices that the step writes, too
	_, left = promptSubject{sms: 4, room: 256}.try(t, pipeline.FormatE4M3, nil, func(mu mutate.Mutation) bool {
		fence, waits := strings.Contains(mu.Name, "fence.proxy"), strings.Contains(mu.Name, "@barrier")
		return prefillExcuses.Of(mu) == nil && mu.Class == mutate.Remove &&
			mu.Region != "sync after merge" && // which this step has not
			(fence && mu.Role == "consumers" || (fence || waits) && mu.Role == "producer")
	})
	require.Empty(t, left)
}

// Each synchronisation behind a phase that norms add is reported when it is left out or weakened.
func TestMutantsOfThePhasesOfNormsInAPrefillKernelAreReported(t *testing.T) {
	deep.Only(t)
	reported, left := promptSubject{sms: 2, room: 64, norms: true}.try(t, pipeline.FormatBF16, nil,
		func(mu mutate.Mutation) bool {
			return prefillExcuses.Of(mu) == nil && (mu.Class == mutate.Remove || mu.Class == mutate.Weaken) &&
				slices.Contains([]string{"sync after qk_norm", "sync after add_attention", "sync after add_mlp"}, mu.Region)
		})
	require.Len(t, reported, 24)
	excuses := mutate.Excuses{
		{Op: "wait.acquire @barrier", Classes: []mutate.Class{mutate.Remove, mutate.Weaken}, Role: "consumers",
			Regions: []string{"sync after add_attention"}, Behind: "bar.sync", Rule: mutate.Causality,
			Why: "no norm is in front of gate and up: consumers wait for what the producer copies behind the same barrier"},
		{Op: "bar.sync", Classes: []mutate.Class{mutate.Remove}, Role: "consumers",
			Regions: []string{"sync after add_attention"}, Front: "wait.acquire @barrier", Behind: "wait.mbar @tiles_full",
			Why: "behind that wait: the next product's consumers wait for what the producer copies", Rule: mutate.Causality},
	}
	require.NoError(t, excuses.Check(left, excuses))
}

// Each synchronisation between the parts of a product and their sums, and behind these, is reported when it is left
// out, weakened or miscounted.
func TestMutantsOfMergedPartsOfAProductAreReported(t *testing.T) {
	deep.Only(t)
	reported, left := promptSubject{sms: 4, room: 64, down: 2}.try(t, pipeline.FormatBF16, nil,
		func(mu mutate.Mutation) bool {
			return prefillExcuses.Of(mu) == nil && strings.HasPrefix(mu.Region, "sync after down") &&
				slices.Contains([]mutate.Class{mutate.Remove, mutate.Weaken, mutate.Count}, mu.Class)
		})
	require.GreaterOrEqual(t, len(reported), 12)
	require.Empty(t, left)
}

// Each synchronisation of and behind a phase that rounds inputs to e4m3 is reported when it is left out, weakened or
// miscounted.
func TestMutantsOfThePhasesThatRoundInputsAreReported(t *testing.T) {
	deep.Only(t)
	excuses := slices.Concat(codedExcuses, prefillExcuses)
	reported, left := tryEach(t, promptSubject{coded: true}, excuses, func(mu mutate.Mutation) bool {
		return strings.Contains(mu.Region, "quantise") &&
			slices.Contains([]mutate.Class{mutate.Remove, mutate.Weaken, mutate.Count}, mu.Class)
	})
	require.GreaterOrEqual(t, len(reported), 24)
	require.NoError(t, excuses.Check(left, codedExcuses))
}

// tryEach are the mutants that promptSubjects report, of several sequences or in e4m3 as as is, and those that none
// does. The first subject runs those that are
// wanted, each other one those that the ones before have not reported and that no excuse covers.
func tryEach(t *testing.T, as promptSubject, excuses mutate.Excuses,
	wanted func(mutate.Mutation) bool) (reported, left []mutate.Mutation) {
	t.Helper()
	weights := pipeline.FormatBF16
	if as.coded {
		weights = pipeline.FormatE4M3
	}
	for i, x := range promptSubjects {
		if i > 0 && excuses.Check(left, nil) == nil {
			break
		}
		x.several, x.coded = as.several, as.coded
		found, missed := x.try(t, weights, excuses, func(mu mutate.Mutation) bool {
			return i == 0 && wanted(mu) || excuses.Of(mu) == nil && slices.ContainsFunc(left, mu.SameKind)
		})
		reported = append(reported, found...)
		left = slices.DeleteFunc(left, func(l mutate.Mutation) bool { return slices.ContainsFunc(found, l.SameKind) })
		if i == 0 {
			left = missed
		}
	}
	return reported, left
}

// Each synchronisation of the choice behind several sequences, and each beside a load of what a step says of its rows
// and sequences, is reported when it is left out, weakened, miscounted or moved.
func TestMutantsOfTheChoiceBehindSeveralSequencesAreReported(t *testing.T) {
	deep.Only(t)
	excuses := slices.Concat(severalExcuses, prefillExcuses)
	reported, left := tryEach(t, promptSubject{several: true}, excuses, func(mu mutate.Mutation) bool {
		beside := mu.Key.Front + " " + mu.Key.Behind
		return slices.Contains([]string{"sync after pick", "sync after lm_head", "choose"}, mu.Region) ||
			strings.Contains(beside, "@sequences") || strings.Contains(beside, "@rows")
	})
	require.Greater(t, len(reported), 30)
	require.NoError(t, excuses.Check(left, severalExcuses))
}

// try are the mutants of tiny's prefill kernel that a schedule of subject x shows, and those that none does. Those that
// known explains are run under fewer.
func (x promptSubject) try(t *testing.T, weights pipeline.Format, known mutate.Excuses,
	wanted func(mu mutate.Mutation) bool) (reported, left []mutate.Mutation) {
	t.Helper()
	s := x.open(t, weights)
	var ms []mutant
	for _, mu := range mutate.Kinds(mutate.List(s.ir)) {
		if wanted(mu) {
			ms = append(ms, mutant{Mutation: mu})
		}
	}
	for _, o := range s.tryAll(t, ms, known) {
		if o.Report != "" {
			reported = append(reported, o.Mutation)
		} else {
			left = append(left, o.Mutation)
		}
	}
	t.Logf("%d CTAs, %d cached: %d kinds of mutants, %d not reported", x.sms, x.cached, len(ms), len(left))
	return reported, left
}
