package bench_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

const refLength = 26 // the second split has tokens from position 16 on

// writeReference writes what tests/gpu/reference.py would of tiny, from the
// float64 reference: o as it is, h rounded as a framework does, s as the kernel does; sequences of these
// lengths, by default one of refLength.
func writeReference(t *testing.T, c models.Config, seed uint64, lengths ...int) string {
	t.Helper()
	return writeReferenceOf(t, c, reference.Synthetic(c, seed), reference.AsKernel(c), seed, lengths...)
}

// writeReferenceOf is writeReference of other weights, and a kernel of other roundings.
func writeReferenceOf(t *testing.T, c models.Config, w reference.Weights, kernel reference.Hooks, seed uint64,
	lengths ...int) string {
	t.Helper()
	dir, shape := t.TempDir(), c
	var list []map[string]any
	if lengths == nil {
		lengths = []int{refLength}
	}
	for q, length := range lengths {
		tokens := synth.Tokens(seed, q, length, c.Vocab)
		var raw []byte
		for _, id := range tokens {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
		}
		entry := map[string]any{"length": length, "first": 0, "scored": length}
		write := func(kind string, data []byte) {
			entry[kind] = fmt.Sprintf("%s.%d", kind, q)
			require.NoError(t, os.WriteFile(filepath.Join(dir, entry[kind].(string)), data, 0o666))
		}
		write("tokens", raw)
		logits := map[string][][]float32{}
		for kind, hooks := range map[string]reference.Hooks{"o": {}, "h": reference.FrameworkRounding(shape), "s": kernel} {
			m, err := reference.NewModel(shape, w, hooks)
			require.NoError(t, err)
			var rows []byte
			for _, id := range tokens {
				row := make([]float32, c.Vocab)
				for i, x := range m.Step(id) {
					row[i] = float32(x)
					rows = binary.LittleEndian.AppendUint32(rows, math.Float32bits(row[i]))
				}
				logits[kind] = append(logits[kind], row)
			}
			if kind != "s" {
				write(kind, rows)
			}
		}
		var own []byte
		for p, o := range logits["o"] {
			m, err := gate.Measure(o, o, logits["s"][p], 0)
			require.NoError(t, err)
			own = binary.LittleEndian.AppendUint64(own, math.Float64bits(m.KLOurs))
		}
		write("s", own)
		list = append(list, entry)
	}
	hash, err := synth.SampleHash(seed, synth.Tensors(shape), nil)
	require.NoError(t, err)
	config, err := os.ReadFile("../../models/testdata/configs/tiny.json")
	require.NoError(t, err)
	manifest, err := json.Marshal(map[string]any{"config": json.RawMessage(config), "seed": seed, "weights_hash": hash,
		"vocab": c.Vocab, "sequences": list, "roundings": gate.Roundings{Version: gate.RoundingsVersion, KV: "bf16"}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), manifest, 0o666))
	return dir
}

// small is the gate with little evidence.
func small() gate.Rules {
	r := gate.DefaultRules()
	r.MinPositions, r.MinSequences = 1, 1
	return r
}

func tinySuite(t *testing.T) *bench.Suite { return tinySuiteOf(t, megakernel.LaunchSingle) }

func tinySuiteOf(t *testing.T, launch megakernel.Launching) *bench.Suite {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Page: 4, Splits: 2, StageBytes: 2048, Launch: launch,
		Draws: launch == megakernel.LaunchSingle})
	require.NoError(t, err)
	return &bench.Suite{Machine: bench.Executor{Seed: 1}, Kernel: mk, Weights: synth.NewWeights(2, c),
		WeightsName: "random, seed 2", Method: bench.Method{Contexts: []int{3, 20}, Rounds: 2, Tokens: 3}}
}

// All of the benchmark on the executor: figures, and the same tokens by launches of
// one token as by a launch of a round.
func TestASuiteMeasuresOnTheExecutor(t *testing.T) {
	s := tinySuite(t)
	s.Choices = bench.BesideGreedy(sampling.Params{Temperature: 1.5, TopK: 40, Seed: 1})
	o, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Nil(t, o.Gate)
	require.Len(t, o.Cases, 10)
	for i, c := range o.Cases {
		require.Equal(t, s.Choices[i%5].Name, c.Choice)
		require.Equal(t, i%5 > 0, c.OfGreedy > 0)
		require.Equal(t, []int{3, 20}[i/5], c.Context)
		require.Equal(t, []any{3, 3, "random, seed 2"}, []any{c.TokensPerRound, c.TokensPerLaunch, c.Weights})
		require.Equal(t, bench.BytesPerToken(s.Kernel.Config, 0, s.Kernel.KVTokenBytes(), c.Context, 3), c.BytesPerToken)
		require.Equal(t, 3, c.Replayed)
		require.Positive(t, c.DeviceMicros)
		require.Positive(t, c.P99)
		require.Positive(t, c.Share)
	}
}

// The gate in the same process: the kernel passes, every planted fault is caught,
// and after them the kernel is whole again.
func TestASuiteJudgesWithPlantedFaults(t *testing.T) {
	deep.Only(t)
	for _, launch := range megakernel.Launchings() {
		t.Run(string(launch), func(t *testing.T) {
			t.Parallel()
			judgeWithPlantedFaults(t, tinySuiteOf(t, launch))
		})
	}
}

func judgeWithPlantedFaults(t *testing.T, s *bench.Suite) {
	t.Helper()
	var err error
	s.Reference, err = gate.OpenReference(writeReference(t, s.Kernel.Config, 2))
	require.NoError(t, err)
	seed := uint64(2)
	require.NoError(t, s.Reference.Matches(s.Kernel.Config, s.Weights, &seed))
	require.NoError(t, s.Reference.Matches(s.Kernel.Config, s.Weights, nil), "the same weights, read")
	require.Less(t, s.Kernel.ChunkTokens(), refLength-1, "the last split has tokens")
	s.Rules = small()
	s.Method.Contexts = s.Method.Contexts[:1]
	o, err := s.Run(t.Context())
	require.NoError(t, err)
	for _, d := range o.Gate.Details {
		t.Logf("%+v", d)
	}
	require.NoError(t, o.Gate.Err())
	require.Equal(t, gate.Faults(), o.Gate.Gate.FaultsCaught)
	require.Equal(t, refLength, o.Gate.Gate.Positions)
	require.Equal(t, o.Gate.Gate, o.Cases[0].Gate)
}

// Weights of 4 and 8 bits: their own faults, too, in kernels of one row with zero points and, with scales of rows,
// without.
func TestFaultsOfFormatsAreCaught(t *testing.T) {
	formats := []pipeline.Format{"i4g32-zeros-f16", "i4", "i8", "nvfp4", "e4m3", "e4m3b128"}
	if !deep.On() {
		formats = nil
	}
	for _, format := range formats {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			const seed = 2
			c, err := models.Lookup("tiny")
			require.NoError(t, err)
			mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Page: 4, Splits: 2, StageBytes: 2304, Weights: format})
			require.NoError(t, err)
			s := &bench.Suite{Machine: bench.Executor{Seed: 1}, Kernel: mk, Weights: mk.Rounded(synth.NewWeights(seed, c)),
				WeightsName: "random, seed 2", Method: bench.Method{Contexts: []int{3}, Rounds: 2, Tokens: 3}, Rules: small()}
			weights := reference.Weights{}
			for name, row := range reference.Synthetic(c, seed) {
				rows, columns := 1, len(row)
				if dims := checkpoint.ShapesOf(c)[name]; len(dims) > 1 {
					rows, columns = dims[0], dims[1]
				}
				weights[name] = make([]half.BF16, len(row))
				for r := range rows {
					require.NoError(t, s.Weights.Row(name, r, weights[name][r*columns:][:columns]))
				}
			}
			s.Reference, err = gate.OpenReference(writeReferenceOf(t, c, weights,
				reference.AsKernelWith(c, mk.RoundInput, mk.RoundHeadInput), seed))
			require.NoError(t, err)
			s.Reference.Roundings.Inputs = string(format)
			o, err := s.Run(t.Context())
			require.NoError(t, err)
			for _, d := range o.Gate.Details {
				t.Logf("%+v", d)
			}
			require.NoError(t, o.Gate.Err())
			want := append(gate.Faults(), gate.BytesExchanged, gate.ScaleOfNeighbour, gate.ScalesNotCopied, gate.NibblesSwapped)
			if format == "i8" {
				want[len(want)-1] = gate.HalvesSwapped
			}
			if format == "i4g32-zeros-f16" {
				want = append(want, gate.ZeroPointOff)
			}
			if !format.Integers() {
				want = append(gate.Faults(), gate.ScaleOfNeighbour, gate.ScalesNotCopied)
			}
			require.Equal(t, want, o.Gate.Gate.FaultsCaught)
		})
	}
}

// elsewhere is the executor under another name, with so much memory.
type elsewhere struct {
	bench.Executor
	facts bench.Facts
	free  int64
}

func (e elsewhere) Facts() bench.Facts   { return e.facts }
func (e elsewhere) Free() (int64, error) { return e.free, nil }

func TestTheCeilingNeedsMemoryFarBeyondTheCaches(t *testing.T) {
	s := tinySuite(t)
	s.Machine = elsewhere{bench.Executor{Seed: 1}, bench.Facts{GPU: "NVIDIA H200", SMs: 2, L2: 60 << 20}, 5<<30 - 16}
	_, err := s.Run(t.Context())
	require.EqualError(t, err,
		"ceiling: 5368709104 bytes of memory are free, a buffer of 4294967296 is needed beside 1073741824 to spare")
}

func TestAnEndedContextEndsASuite(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := tinySuite(t)
	s.Progress = func(what string) {
		if what == "context 20" {
			cancel()
		}
	}
	_, err := s.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAReferenceOfSomethingElseIsRefused(t *testing.T) {
	s := tinySuite(t)
	ref, err := gate.OpenReference(writeReference(t, s.Kernel.Config, 3))
	require.NoError(t, err)
	seed := uint64(2)
	require.EqualError(t, ref.Matches(s.Kernel.Config, s.Weights, &seed),
		"reference: its seed is 3, that of what runs here 2")
	require.ErrorContains(t, ref.Matches(s.Kernel.Config, s.Weights, nil), "reference: its weights hash is ")
	other := s.Kernel.Config
	other.Rope.Theta = 1e4 + 1
	require.ErrorContains(t, ref.Matches(other, s.Weights, &seed), "reference: its rotary embedding is theta 1")
	other = s.Kernel.Config
	other.Hidden = 128
	require.EqualError(t, ref.Matches(other, s.Weights, &seed),
		"reference: its hidden size is 96, that of what runs here 128")
}
