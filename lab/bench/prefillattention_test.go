package bench_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/stretchr/testify/require"
)

// Several sequences of equal length through one launch, of groups of heads or none, over shuffled pages of many sizes:
// the sample is as near to float64 as roundings allow.
func TestAttentionOfPromptsAloneIsThatInFloat64(t *testing.T) {
	for name, s := range map[string]bench.PrefillAttentionSuite{
		"pages of 8 in clusters": {Config: attend.PrefillConfig{Heads: 2, KVHeads: 2, HeadDim: 32, Page: 8, SMs: 4,
			Groups: 1}, Sequences: 3, Lengths: []int{150, 5}},
		"pages of a token": {Config: attend.PrefillConfig{Heads: 4, KVHeads: 2, HeadDim: 16, Page: 1, SMs: 3, Groups: 1},
			Sequences: 2, Lengths: []int{70}},
		"pages of a token in clusters": {Config: attend.PrefillConfig{Heads: 2, KVHeads: 2, HeadDim: 64, Page: 1, SMs: 4,
			Groups: 2}, Sequences: 3, Lengths: []int{300, 129}},
		"pages of 2 in clusters": {Config: attend.PrefillConfig{Heads: 6, KVHeads: 3, HeadDim: 48, Page: 2, SMs: 2,
			Groups: 1}, Sequences: 2, Lengths: []int{131}},
		"pages of 4, queries in shared memory": {Config: attend.PrefillConfig{Heads: 2, KVHeads: 1, HeadDim: 256, Page: 4,
			SMs: 2, Groups: 1}, Sequences: 2, Lengths: []int{70}},
		"pages of a token with a window": {Config: attend.PrefillConfig{Heads: 4, KVHeads: 2, HeadDim: 16, Page: 1, SMs: 3,
			Groups: 1, Variant: attend.PrefillVariant{Window: 30}}, Sequences: 2, Lengths: []int{70}},
		"large pages": {Config: attend.PrefillConfig{Heads: 4, KVHeads: 1, HeadDim: 64, Page: 128, SMs: 2, Groups: 2},
			Sequences: 2, Lengths: []int{140}},
		"a soft cap": {Config: attend.PrefillConfig{Heads: 2, KVHeads: 2, HeadDim: 32, Page: 16, SMs: 2, Groups: 1,
			Variant: attend.PrefillVariant{SoftCap: 1.5}}, Sequences: 2, Lengths: []int{70}},
		"ALiBi": {Config: attend.PrefillConfig{Heads: 4, KVHeads: 2, HeadDim: 32, Page: 16, SMs: 2, Groups: 1,
			Variant: attend.PrefillVariant{ALiBi: true}}, Sequences: 2, Lengths: []int{70}},
		"a window": {Config: attend.PrefillConfig{Heads: 2, KVHeads: 2, HeadDim: 32, Page: 16, SMs: 2, Groups: 1,
			Variant: attend.PrefillVariant{Window: 200}}, Sequences: 2, Lengths: []int{40}},
		"a window that hides tokens": {Config: attend.PrefillConfig{Heads: 2, KVHeads: 2, HeadDim: 32, Page: 16, SMs: 2,
			Groups: 1, Variant: attend.PrefillVariant{Window: 16}}, Sequences: 2, Lengths: []int{150}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Machine, s.Rounds = bench.Executor{Seed: 1}, 1
			f, err := s.Run(t.Context())
			require.NoError(t, err)
			require.Len(t, f.Cases, len(s.Lengths))
			n := float64(s.Lengths[0])
			pairs := n * (n + 1) / 2
			if w := float64(s.Config.Variant.Window); w > 0 && w < n { // but those that more tokens lie between
				pairs -= (n - w) * (n - w + 1) / 2
			}
			require.Equal(t, float64(s.Sequences)*pairs*4*float64(s.Config.Heads*s.Config.HeadDim), f.Cases[0].FLOP)
			require.Positive(t, f.Cases[0].Worst, "roundings show")
			require.Len(t, f.Cases[0].Sample, 8)
			path := filepath.Join(t.TempDir(), "attention.json")
			require.NoError(t, f.Write(path))
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			var read bench.AttentionFile
			require.NoError(t, json.Unmarshal(data, &read))
			require.Equal(t, *f, read)
			var text strings.Builder
			require.NoError(t, f.WriteTable(&text, s.Machine.Facts()))
			require.Contains(t, text.String(), "of the executor: no measure of a GPU")
		})
	}
}

// A page table with two pages exchanged, or keys that lie elsewhere, are errors and no figures.
func TestWrongAttentionOfPromptsIsNotMeasured(t *testing.T) {
	s := bench.PrefillAttentionSuite{Machine: swapped{bench.Executor{Seed: 1}}, Sequences: 2, Lengths: []int{90},
		Rounds: 1, Config: attend.PrefillConfig{Heads: 2, KVHeads: 2, HeadDim: 32, Page: 16, SMs: 2, Groups: 1}}
	_, err := s.Run(t.Context())
	require.ErrorContains(t, err, "from float64, want at most 0.0049")
	s.Machine, s.Config.KVHeads = bench.Executor{Seed: 1}, 0
	_, err = s.Run(t.Context())
	require.ErrorContains(t, err, "attend: 0 KV heads")
}

// swapped is a machine on which the first two entries of a page table are exchanged.
type swapped struct{ bench.Executor }

func (m swapped) Load(ctx context.Context, k *ir.Kernel) (bench.Loaded, error) {
	l, err := m.Executor.Load(ctx, k)
	return swappedLoaded{l}, err
}

type swappedLoaded struct{ bench.Loaded }

func (l swappedLoaded) Write(name string, offset int64, src []byte) error {
	if name == attend.BufferPrefillTable {
		src = append(append(append([]byte{}, src[4:8]...), src[:4]...), src[8:]...)
	}
	return l.Loaded.Write(name, offset, src)
}
