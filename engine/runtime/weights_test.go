package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// large is a model of 70 MB, so that loading takes several blocks of every buffer.
func large(t testing.TB, tied bool) *megakernel.Kernel {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Hidden, c.Intermediate, c.Layers, c.Vocab, c.TieEmbeddings = 1000, 1504, 3, 6001, tied
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 7})
	require.NoError(t, err)
	return mk
}

// cheap are tensors that depend on name, row and column.
type cheap struct{}

func (cheap) Row(tensor string, row int, dst []half.BF16) error {
	seed := uint32(row) * 2654435761
	for _, c := range tensor {
		seed = seed*31 + uint32(c)
	}
	for i := range dst {
		dst[i] = half.BF16((seed+uint32(i)*40503)>>7) &^ 0x4000 // finite
	}
	return nil
}

// memory is a Device of plain memory that is slow to copy: what was staged is
// read only some time after Write.
type memory struct {
	runtime.Device // nil: nothing else is called
	bytes          map[string][]byte
	staged, freed  atomic.Int32
	most           atomic.Int64 // bytes staged in all
	broken         func(name string, offset int64) error
}

func newMemory(mk *megakernel.Kernel) *memory {
	m := &memory{bytes: map[string][]byte{}}
	for _, b := range mk.IR.Globals() {
		m.bytes[b.Name] = make([]byte, b.Bytes())
	}
	return m
}

func (m *memory) Stage(n int) (runtime.Staging, error) {
	m.staged.Add(1)
	m.most.Add(int64(n))
	return &slow{m: m, bytes: make([]byte, n)}, nil
}

type slow struct {
	m     *memory
	bytes []byte
	wg    sync.WaitGroup
	freed bool
}

func (s *slow) Bytes() []byte { return s.bytes }

func (s *slow) Write(name string, offset int64, n int) error {
	if s.m.broken != nil {
		if err := s.m.broken(name, offset); err != nil {
			return err
		}
	}
	s.wg.Go(func() {
		time.Sleep(time.Millisecond)
		copy(s.m.bytes[name][offset:], s.bytes[:n])
	})
	return nil
}

func (s *slow) Wait() error { s.wg.Wait(); return nil }

func (s *slow) Free() error {
	s.wg.Wait()
	if !s.freed {
		s.freed = true
		s.m.freed.Add(1)
	}
	return nil
}

// requireLoaded compares the device's memory with what Kernel packs.
func requireLoaded(t *testing.T, mk *megakernel.Kernel, w megakernel.Tensors, read func(name string) []byte) {
	t.Helper()
	want := make([]byte, mk.Plan.PackedBytes)
	p := mk.Plan
	for l := range p.Layers {
		require.NoError(t, mk.PackLayer(want[int64(l)*p.LayerBytes:][:p.LayerBytes], l, w))
	}
	require.NoError(t, mk.PackLayer(want[int64(p.Layers)*p.LayerBytes:], pipeline.FinalLayer, w))
	same := func(name string, want []byte) {
		got := read(name)
		require.Len(t, got, len(want), name)
		for i := range want {
			if want[i] != got[i] {
				require.Failf(t, "another byte", "%s: byte %d of %d", name, i, len(want))
			}
		}
	}
	same("weights", want)
	gains, err := mk.Gains(w)
	require.NoError(t, err)
	same("gains", gains)
	if !mk.OwnEmbedding() {
		require.Nil(t, read(megakernel.BufferEmbed))
		return
	}
	var embed []byte
	row := make([]half.BF16, mk.Config.Hidden)
	for r := range mk.Config.Vocab {
		require.NoError(t, w.Row("model.embed_tokens.weight", r, row))
		for _, v := range row {
			embed = append(embed, byte(v), byte(v>>8))
		}
	}
	same(megakernel.BufferEmbed, embed)
}

func TestLoadFillsWeightsEmbeddingAndGains(t *testing.T) {
	for _, tied := range []bool{false, true} {
		mk := large(t, tied)
		for _, workers := range deep.Most([]int{5, 1, 100}, 1) {
			dev := newMemory(mk)
			var last, total int64
			stats, err := runtime.FromTensors(cheap{},
				runtime.LoadOptions{Workers: workers, Check: workers == 5, Progress: func(done, all int64) {
					require.Greater(t, done, last)
					last, total = done, all
				}}).Load(t.Context(), mk, dev)
			require.NoError(t, err)
			require.Equal(t, []int64{stats.Bytes, stats.Bytes}, []int64{last, total})
			require.LessOrEqual(t, stats.Workers, 16)
			require.Positive(t, stats.Rate())
			require.Equal(t, dev.staged.Load(), dev.freed.Load())
			require.LessOrEqual(t, dev.most.Load(), int64(512<<20))
			requireLoaded(t, mk, cheap{}, func(name string) []byte { return dev.bytes[name] })
		}
	}
}

func TestLoadOntoTheExecutor(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, c.TieEmbeddings = range []bool{true, false} {
		mk, err := megakernel.Build(c, megakernel.Options{SMs: 4})
		require.NoError(t, err)
		sim, err := runtime.NewSim(mk.IR, 1)
		require.NoError(t, err)
		w := synth.NewWeights(3, c)
		s, err := runtime.OpenSequence(t.Context(), mk, sim, runtime.FromTensors(w, runtime.LoadOptions{}),
			runtime.Options{Pages: 2})
		require.NoError(t, err)
		require.Equal(t, sim.Size("weights")+sim.Size("gains")+sim.Size("embed"), s.Loaded().Bytes)
		requireLoaded(t, mk, w, func(name string) []byte {
			if sim.Size(name) == 0 {
				return nil
			}
			data := make([]byte, sim.Size(name))
			require.NoError(t, sim.Read(name, 0, data))
			return data
		})
	}
}

// spoiled is cheap with an error or a NaN in one place.
type spoiled struct {
	cheap
	tensor string
	row    int
	err    error
}

func (s spoiled) Row(tensor string, row int, dst []half.BF16) error {
	err := s.cheap.Row(tensor, row, dst)
	if tensor == s.tensor && row == s.row {
		dst[7] = 0xffc0
		return s.err
	}
	return err
}

func TestLoadEndsWithTheTensorThatFailed(t *testing.T) {
	mk := large(t, false)
	for _, tensor := range []string{"model.layers.1.self_attn.k_proj.weight", "lm_head.weight",
		"model.embed_tokens.weight", "model.norm.weight"} {
		dev := newMemory(mk)
		_, err := runtime.FromTensors(spoiled{tensor: tensor, err: fmt.Errorf("%s: lost", tensor)},
			runtime.LoadOptions{Workers: 4}).Load(t.Context(), mk, dev)
		require.EqualError(t, err, tensor+": lost")
		require.Equal(t, dev.staged.Load(), dev.freed.Load(), "staging memory is given back")
	}
}

func TestCheckRefusesWhatIsNotFinite(t *testing.T) {
	mk := large(t, false)
	for _, tensor := range []string{"model.layers.2.mlp.up_proj.weight", "model.embed_tokens.weight"} {
		w := spoiled{tensor: tensor, row: 31}
		_, err := runtime.FromTensors(w, runtime.LoadOptions{Check: true}).Load(t.Context(), mk, newMemory(mk))
		require.EqualError(t, err, tensor+": found NaN at [31, 7], want finite weights")
		_, err = runtime.FromTensors(w, runtime.LoadOptions{}).Load(t.Context(), mk, newMemory(mk))
		require.NoError(t, err)
	}
}

// checked is cheap with a Check of its own.
type checked struct {
	cheap
	err error
}

func (c checked) Check(_ context.Context, progress func(done, total int64)) error {
	progress(50, 100)
	progress(100, 100)
	return c.err
}

func TestCheckOfTheSourceComesFirst(t *testing.T) {
	mk := large(t, true)
	dev := newMemory(mk)
	bad := errors.New("bad weights")
	_, err := runtime.FromTensors(checked{err: bad}, runtime.LoadOptions{Check: true}).Load(t.Context(), mk, dev)
	require.ErrorIs(t, err, bad)
	require.Zero(t, dev.staged.Load())
	var dones []int64
	stats, err := runtime.FromTensors(checked{}, runtime.LoadOptions{Check: true, Progress: func(done, total int64) {
		dones = append(dones, done)
		require.Equal(t, 100+dev.size(), total)
	}}).Load(t.Context(), mk, dev)
	require.NoError(t, err)
	require.Equal(t, []int64{50, 100}, dones[:2])
	require.Equal(t, 100+stats.Bytes, dones[len(dones)-1])
}

// size is how many bytes loading brings.
func (m *memory) size() int64 {
	return int64(len(m.bytes["weights"]) + len(m.bytes["gains"]) + len(m.bytes["embed"]))
}

func TestLoadStopsWithItsContext(t *testing.T) {
	mk := large(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	dev := newMemory(mk)
	calls := 0
	_, err := runtime.FromTensors(cheap{}, runtime.LoadOptions{Workers: 2, Progress: func(done, total int64) {
		require.Less(t, done, total)
		calls++
		cancel()
	}}).Load(ctx, mk, dev)
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, calls, 2)
	require.Equal(t, dev.staged.Load(), dev.freed.Load())
}

func TestLoadReportsADeviceThatFails(t *testing.T) {
	mk := large(t, false)
	dev := newMemory(mk)
	lost := errors.New("device lost")
	dev.broken = func(name string, offset int64) error {
		if name == "weights" && offset > 10<<20 {
			return lost
		}
		return nil
	}
	_, err := runtime.FromTensors(cheap{}, runtime.LoadOptions{}).Load(t.Context(), mk, dev)
	require.ErrorIs(t, err, lost)
	require.ErrorContains(t, err, "buffer weights: ")
	require.Equal(t, dev.staged.Load(), dev.freed.Load())
}

// A checkpoint on disk is refused by the tensor's name and the position before
// anything is staged.
func TestCheckNamesTheTensorOfACheckpoint(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 4})
	require.NoError(t, err)
	const bad = "model.layers.1.mlp.down_proj.weight"
	var list []checkpoint.Tensor
	for _, tensor := range synth.Tensors(c) {
		bits := make([]half.BF16, tensor.Elems())
		require.NoError(t, synth.Fill(bits, 1, tensor, 0))
		if tensor.Name == bad {
			bits[3*tensor.Shape[1]+5] = 0x7fc0
		}
		list = append(list, checkpoint.Tensor{Name: tensor.Name, DType: models.BF16, Shape: tensor.Shape,
			Data: checkpoint.BF16Bytes(bits)})
	}
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, checkpoint.SingleFile))
	require.NoError(t, err)
	require.NoError(t, checkpoint.WriteSafetensors(f, list))
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, checkpoint.ConfigFile), []byte(tinyConfig), 0o600))
	w, err := checkpoint.Open(dir)
	require.NoError(t, err)
	defer w.Close()
	dev := newMemory(mk)
	_, err = runtime.FromTensors(w, runtime.LoadOptions{Check: true}).Load(t.Context(), mk, dev)
	require.ErrorContains(t, err, bad+": found NaN at [3, 5]")
	require.Zero(t, dev.staged.Load())
	_, err = runtime.FromTensors(w, runtime.LoadOptions{}).Load(t.Context(), mk, dev)
	require.NoError(t, err)
	requireLoaded(t, mk, w, func(name string) []byte { return dev.bytes[name] })
	other := mk.Config
	other.Layers++
	wrong, err := megakernel.Build(other, megakernel.Options{SMs: 4})
	require.NoError(t, err)
	_, err = runtime.FromTensors(w, runtime.LoadOptions{}).Load(t.Context(), wrong, newMemory(wrong))
	require.ErrorContains(t, err, "model.layers.2.")
}

const tinyConfig = `{"model_type": "llama", "hidden_size": 96, "intermediate_size": 352, "num_hidden_layers": 2, "num_attention_heads": 6,
	"num_key_value_heads": 2, "head_dim": 32, "vocab_size": 320, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000,
	"bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": true}`
