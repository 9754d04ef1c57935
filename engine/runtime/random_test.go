package runtime_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/randomize"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// TestRandomWeightsAreSynthsBitForBit runs the kernel on the executor and compares
// all three buffers with what is packed from package synth.
func TestRandomWeightsAreSynthsBitForBit(t *testing.T) {
	if testing.Short() {
		t.Skip("values of many kernels, with -short")
	}
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	untied := tiny
	untied.TieEmbeddings = false
	odd := untied // padded rows and columns, SMs without tiles
	odd.Hidden, odd.Intermediate, odd.Layers, odd.Vocab = 104, 72, 3, 77
	wide := tiny // rows of several blocks of 4 bits, and runs
	wide.Hidden, wide.Intermediate, wide.Layers = 512, 1096, 1
	if !deep.On() {
		wide.Intermediate = 584
	}
	var own []pipeline.Format
	for i, c := range []models.Config{tiny, untied, odd, tiny, odd, tiny, odd, odd, tiny, wide, wide, wide, odd, wide,
		odd, odd, tiny, odd, odd, wide, tiny, odd, wide} {
		for j, sms := range []int{1, 4, 23} {
			// of every model one of the numbers
			if (i > 19 || i < 19 && i%2 != 0 || (i+j)%3 != 1) && !deep.On() {
				continue
			}
			o := randomOptions(i, j, sms)
			if of := o.Weights; slices.Contains(pipeline.OwnFormats(), of) {
				own = append(own, of)
			}
			if o.Head != "" {
				c.Vocab = 80 // rows of codes are made in whole tiles
			}
			mk, err := megakernel.Build(c, o)
			require.NoError(t, err)
			seed := uint64(sms)<<40 + 7
			if o.MLP == "" && !o.Weights.Integers() && !o.Head.Integers() {
				requireRandomInBatches(t, mk, seed)
			}
			r, err := randomize.New(mk)
			require.NoError(t, err)
			sim, err := runtime.NewSim(mk.IR, 1)
			require.NoError(t, err)
			s, err := runtime.OpenSequence(t.Context(), mk, sim, runtime.Random(seed, r, nil), runtime.Options{Pages: 1})
			require.NoError(t, err)
			require.Equal(t, sim.Size("weights")+sim.Size("gains")+sim.Size("embed"), s.Loaded().Bytes)
			requireLoaded(t, mk, synth.NewWeights(seed, c), func(name string) []byte {
				if sim.Size(name) == 0 {
					return nil
				}
				data := make([]byte, sim.Size(name))
				require.NoError(t, sim.Read(name, 0, data))
				return data
			})
			_, err = s.Step(3) // every byte the step reads is initialised
			require.NoError(t, err)
		}
	}
	if deep.On() {
		require.ElementsMatch(t, pipeline.OwnFormats(), own)
	}
}

// randomOptions are those of model i of TestRandomWeightsAreSynthsBitForBit with the j-th number of SMs.
func randomOptions(i, j, sms int) megakernel.Options {
	own := pipeline.OwnFormats()
	o := megakernel.Options{SMs: sms}
	switch {
	case i > 19:
		o.Weights = own[(16+3*(i-20)+j)%len(own)]
	case i == 19:
		o.Weights = "i4g32,qkv=nvfp4,down=i8"
	case i > 14:
		o.Head = []pipeline.Format{pipeline.FormatE4M3B128, pipeline.FormatI8, pipeline.FormatE4M3,
			pipeline.FormatI4G32}[i-15]
	case i > 12:
		o.Weights = pipeline.FormatE4M3B128
	case i > 6 && j > 0:
		o.Weights = own[4+2*(i-7)+j-1]
	case i > 6:
		o.Weights = pipeline.Formats()[2+(i-7)%7]
	case i > 4:
		o.Weights = pipeline.FormatE4M3
	case i > 2:
		o.MLP = megakernel.MLPFused
	}
	return o
}

// requireRandomInBatches makes and compares the weights as a kernel for several
// tokens wants them, their tiles interleaved.
func requireRandomInBatches(t *testing.T, mk *megakernel.Kernel, seed uint64) {
	t.Helper()
	p, matrices := mk.Plan, func(plans []pipeline.MatrixPlan) (ms []pipeline.Matrix) {
		for i := range plans {
			ms = append(ms, plans[i].Matrix)
		}
		return ms
	}
	q, err := pipeline.New(pipeline.Request{SMs: p.SMs, Layers: p.Layers, Layer: matrices(p.Layer),
		Final: matrices(p.Final), StageBytes: 2176, SharedLimit: p.SharedLimit, BatchTiles: 5})
	require.NoError(t, err)
	again := *mk
	again.Plan = q
	r, err := randomize.New(&again)
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	_, err = runtime.OpenSequence(t.Context(), &again, sim, runtime.Random(seed, r, nil), runtime.Options{Pages: 1})
	require.NoError(t, err)
	requireLoaded(t, &again, synth.NewWeights(seed, mk.Config), func(name string) []byte {
		if sim.Size(name) == 0 {
			return nil
		}
		data := make([]byte, sim.Size(name))
		require.NoError(t, sim.Read(name, 0, data))
		return data
	})
}

func TestRandomRefusals(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2})
	require.NoError(t, err)
	r, err := randomize.New(mk)
	require.NoError(t, err)
	_, err = runtime.Random(1, r, nil).Load(t.Context(), mk, newMemory(mk))
	require.EqualError(t, err, "random weights: a *runtime_test.memory cannot run a second kernel")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	_, err = runtime.Random(1, r, nil).Load(ctx, mk, sim)
	require.ErrorIs(t, err, context.Canceled)
	_, err = runtime.Random(1, r, nil).Load(t.Context(), mk, sim)
	require.ErrorContains(t, err, "random weights: ", "the megakernel's buffers are not allocated")
}

// The executor ignores the machine code, so that compiling is all that differs.
func TestRandomCompiledMakesMachineCode(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 4})
	require.NoError(t, err)
	_, err = runtime.RandomCompiled(t.Context(), mk, 5, "sm_1", compile.Options{})
	require.ErrorContains(t, err, "sm_1")
	w, err := runtime.RandomCompiled(t.Context(), mk, 5, "sm_90a", compile.Options{Dir: t.TempDir()})
	if errors.Is(err, compile.ErrNoCompiler) && os.Getenv("MKGEN_NEED_NVCC") == "" {
		t.Skip(err)
	}
	require.NoError(t, err)
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	dev := &recorder{Sim: sim}
	_, err = runtime.OpenSequence(t.Context(), mk, dev, w, runtime.Options{Pages: 1})
	require.NoError(t, err)
	require.Equal(t, "\x7fELF", string(dev.cubin[:4]))
}

// recorder is a Sim that keeps the machine code it is given.
type recorder struct {
	*runtime.Sim
	cubin []byte
}

func (r *recorder) RunOnce(k *ir.Kernel, cubin []byte, scalars map[string]uint64) error {
	r.cubin = cubin
	return r.Sim.RunOnce(k, cubin, scalars)
}
