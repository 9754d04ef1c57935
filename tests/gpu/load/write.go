package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
)

// shardElems is how many elements a shard holds at least, but for the last.
const shardElems = 100 << 20

// write writes a sharded checkpoint of random weights.
func write(f *flags) error {
	begin := time.Now()
	mk, err := f.Build(megakernel.NoFault)
	if err != nil {
		return err
	}
	dtype := map[string]models.DType{"bf16": models.BF16, "f32": models.F32}[f.dtype]
	if dtype == models.DTypeUnstated {
		return fmt.Errorf("dtype %q, want bf16 or f32", f.dtype)
	}
	if err := os.MkdirAll(f.write, 0o755); err != nil {
		return err
	}
	config, err := configFile(mk)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.write, checkpoint.ConfigFile), config, 0o644); err != nil {
		return err
	}
	shards := cut(synth.Tensors(mk.Config))
	where := map[string]string{}
	errs := make([]error, len(shards))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, tensors := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		for _, t := range tensors {
			where[t.Name] = name
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = writeShard(filepath.Join(f.write, name), tensors, f.seed, dtype)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	index, err := json.MarshalIndent(map[string]any{"metadata": map[string]any{}, "weight_map": where}, "", "  ")
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d shards of seed %d in %s, in %v\n", mk.Config.Name, len(shards), f.seed, f.dtype,
		time.Since(begin).Round(time.Millisecond))
	return os.WriteFile(filepath.Join(f.write, checkpoint.IndexFile), index, 0o644)
}

// configFile is config.json, made of what layout.json says of the model.
func configFile(mk *megakernel.Kernel) ([]byte, error) {
	files, err := mk.Files("sm_90a")
	if err != nil {
		return nil, err
	}
	var layout struct {
		Model map[string]any `json:"model"`
	}
	for _, f := range files {
		if f.Name == megakernel.LayoutFile {
			if err := json.Unmarshal(f.Data, &layout); err != nil {
				return nil, err
			}
		}
	}
	m := layout.Model
	delete(m, "name")
	m["model_type"], m["bos_token_id"], m["eos_token_id"] = "llama", mk.Config.BOS, mk.Config.EOS
	return json.MarshalIndent(m, "", "  ")
}

func cut(tensors []synth.Tensor) (shards [][]synth.Tensor) {
	elems := int64(shardElems)
	for _, t := range tensors {
		if elems >= shardElems {
			shards, elems = append(shards, nil), 0
		}
		shards[len(shards)-1] = append(shards[len(shards)-1], t)
		elems += t.Elems()
	}
	return shards
}

func writeShard(path string, tensors []synth.Tensor, seed uint64, dtype models.DType) error {
	var list []checkpoint.Tensor
	for _, t := range tensors {
		bits := make([]half.BF16, t.Elems())
		if err := synth.Fill(bits, seed, t, 0); err != nil {
			return err
		}
		data := make([]byte, 0, len(bits)*dtype.Bytes())
		for _, v := range bits {
			if dtype == models.F32 {
				data = binary.LittleEndian.AppendUint16(data, 0) // a bf16 is the upper half of a float32
			}
			data = v.Append(data)
		}
		list = append(list, checkpoint.Tensor{Name: t.Name, DType: dtype, Shape: t.Shape, Data: data})
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := checkpoint.WriteSafetensors(file, list); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
