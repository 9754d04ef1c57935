//go:build unix

package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// nowhere is a Device that takes staged memory at once.
type nowhere struct{ runtime.Device }

func (nowhere) Stage(n int) (runtime.Staging, error) { return drop(make([]byte, n)), nil }

type drop []byte

func (d drop) Bytes() []byte                { return d }
func (drop) Write(string, int64, int) error { return nil }
func (drop) Wait() error                    { return nil }
func (drop) Free() error                    { return nil }

// BenchmarkLoad packs one layer of Llama-3-8B's shape from a checkpoint in the
// page cache (a file with holes), mapped anew each time, onto a device that costs
// nothing.
func BenchmarkLoad(b *testing.B) {
	for _, dtype := range []models.DType{models.BF16, models.F16, models.F32} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", dtype, workers), func(b *testing.B) {
				dir, mk := sparse(b, dtype)
				total, before := int64(0), used(b)
				for b.Loop() {
					c, err := checkpoint.Open(dir)
					require.NoError(b, err)
					stats, err := runtime.FromTensors(c, runtime.LoadOptions{Workers: workers}).Load(b.Context(), mk, nowhere{})
					require.NoError(b, err)
					require.NoError(b, c.Close())
					b.SetBytes(stats.Bytes)
					total += stats.Bytes
				}
				b.ReportMetric(float64(total)/float64(used(b)-before), "GB/cpu-s")
			})
		}
	}
}

// used is the processor time of this process in nanoseconds: on a busy machine
// only bytes per processor second say what the code costs.
func used(b *testing.B) int64 {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// sparse writes a checkpoint of zeros that takes no disk.
func sparse(b *testing.B, dtype models.DType) (dir string, mk *megakernel.Kernel) {
	dir = b.TempDir()
	config := `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
		"num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 8192,
		"max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000, "hidden_act": "silu", "bos_token_id": 0,
		"eos_token_id": 1, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}`
	require.NoError(b, os.WriteFile(filepath.Join(dir, checkpoint.ConfigFile), []byte(config), 0o600))
	c, err := models.Reading{}.ParseFile(filepath.Join(dir, checkpoint.ConfigFile))
	require.NoError(b, err)
	mk, err = megakernel.Build(c, megakernel.Options{SMs: 132})
	require.NoError(b, err)
	var list []checkpoint.Tensor
	for _, t := range synth.Tensors(c) {
		list = append(list, checkpoint.Tensor{Name: t.Name, DType: dtype, Shape: t.Shape,
			Data: make([]byte, t.Elems()*int64(dtype.Bytes()))})
	}
	f, err := os.Create(filepath.Join(dir, checkpoint.SingleFile))
	require.NoError(b, err)
	w := &holes{f: f}
	require.NoError(b, checkpoint.WriteSafetensors(w, list))
	require.NoError(b, f.Truncate(w.at))
	require.NoError(b, f.Close())
	return dir, mk
}

// holes writes what comes first, the header, and leaves holes for the rest.
type holes struct {
	f  *os.File
	at int64
}

func (h *holes) Write(p []byte) (int, error) {
	if h.at == 0 {
		if _, err := h.f.Write(p); err != nil {
			return 0, err
		}
	}
	h.at += int64(len(p))
	return len(p), nil
}
