//go:build cuda

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/mkgen/mkgen/engine/randomize"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/internal/progress"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/synth"
)

// otherLimit is what the issue allows beside weights and KV cache, in bytes.
const otherLimit = 64 << 20

// load does everything that the flags ask for and compares what two ways of
// loading gave.
func load(f *flags) error {
	dev, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	fmt.Printf("%s, driver for CUDA %d\n", dev.Name(), dev.DriverVersion())
	var hashes []string
	if f.checkpoint != "" {
		hash, err := fromCheckpoint(f, dev)
		if err != nil {
			return fmt.Errorf("%s: %w", f.checkpoint, err)
		}
		hashes = append(hashes, hash)
	}
	if f.random || f.checkpoint == "" {
		hash, err := fromSeed(f, dev)
		if err != nil {
			return fmt.Errorf("random weights: %w", err)
		}
		hashes = append(hashes, hash)
	}
	if len(hashes) == 2 {
		fmt.Printf("checkpoint and random weights: equal = %v\n", hashes[0] == hashes[1])
	}
	return nil
}

func fromCheckpoint(f *flags, dev *cuda.Device) (string, error) {
	begin := time.Now()
	c, err := checkpoint.Open(f.checkpoint)
	if err != nil {
		return "", err
	}
	defer c.Close()
	opened := time.Since(begin)
	mk, err := f.BuildFor(c.Config(), megakernel.NoFault)
	if err != nil {
		return "", err
	}
	fmt.Printf("checkpoint: opened in %v, kernel built %v later\n", opened.Round(time.Millisecond),
		(time.Since(begin) - opened).Round(time.Millisecond))
	bar := progress.Start(os.Stderr, "loading weights")
	w := runtime.FromTensors(c, runtime.LoadOptions{Progress: bar.Set, Workers: f.workers, Check: f.check})
	return session(f, dev, mk, w, c, begin, bar)
}

func fromSeed(f *flags, dev *cuda.Device) (string, error) {
	begin := time.Now()
	mk, err := f.Build(megakernel.NoFault)
	if err != nil {
		return "", err
	}
	r, err := randomize.New(mk)
	if err != nil {
		return "", err
	}
	cubin, err := os.ReadFile(filepath.Join(f.kernels, f.Name(megakernel.NoFault)+"+random.cubin"))
	if err != nil {
		return "", err
	}
	fmt.Printf("random weights: both kernels built in %v\n", time.Since(begin).Round(time.Millisecond))
	w := synth.NewWeights(f.seed, mk.Config)
	return session(f, dev, mk, runtime.Random(f.seed, r, cubin), w, begin, progress.Start(os.Stderr, "random weights"))
}

// session loads w, runs one step, and compares the device's buffers with what the
// CPU packs of t. It returns the hash of what was compared.
func session(f *flags, dev *cuda.Device, mk *megakernel.Kernel, w runtime.Weights, t megakernel.Tensors,
	begin time.Time, bar *progress.Bar) (hash string, err error) {
	code, err := os.ReadFile(filepath.Join(f.kernels, f.Name(megakernel.NoFault)+".cubin"))
	if err != nil {
		return "", err
	}
	gpu, err := runtime.NewGPU(mk.IR, dev, code)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, gpu.Close()) }()
	free, _, err := dev.MemInfo()
	if err != nil {
		return "", err
	}
	memory := watch()
	s, err := runtime.OpenSequence(context.Background(), mk, gpu, w, runtime.Options{Pages: max(1, 1024/mk.KV.Page)})
	most := memory.stop()
	if err != nil {
		bar.End(-1)
		return "", err
	}
	l := s.Loaded()
	bar.End(l.Bytes)
	fmt.Printf("loaded: %d bytes in %v (check %v before it), %d workers, %.2f GB/s; launch of the last kernel %v\n",
		l.Bytes, l.Took.Round(time.Millisecond), l.Checked.Round(time.Millisecond), l.Workers, l.Rate()/1e9,
		gpu.Last.Round(time.Microsecond))
	fmt.Printf("host memory at most: %s\n", most)
	after, _, err := dev.MemInfo()
	if err != nil {
		return "", err
	}
	next, err := s.Step(1)
	if err != nil {
		return "", err
	}
	fmt.Printf("first token (%d) %v after the beginning, of that %v for the first launch on the device\n", next,
		time.Since(begin).Round(time.Millisecond), gpu.Last)
	if err := sizes(gpu.Sizes(), free-after); err != nil {
		return "", err
	}
	return compare(f, gpu, mk, t)
}

// sizes prints the buffers, the largest first, and refuses too much beside weights
// and KV cache.
func sizes(of map[string]int64, taken int64) error {
	var names []string
	var all, other int64
	for name, n := range of {
		names = append(names, name)
		all += n
		if name != "weights" && name != megakernel.BufferEmbed && name != "kv" {
			other += n
		}
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := names[i], names[j]
		return of[a] > of[b] || of[a] == of[b] && a < b
	})
	for _, name := range names {
		fmt.Printf("  %14d %s\n", of[name], name)
	}
	fmt.Printf("device memory: %d bytes, beside weights and KV %d; the driver has %d less free\n", all, other, taken)
	if other >= otherLimit {
		return fmt.Errorf("%d bytes beside weights and KV cache, want less than %d", other, otherLimit)
	}
	return nil
}

// compare holds blocks of the packed image, spread over all of it, gains and rows of
// the embedding against what the CPU makes of t.
func compare(f *flags, gpu *runtime.GPU, mk *megakernel.Kernel, t megakernel.Tensors) (string, error) {
	const block = 4 << 20
	blocks := mk.Plan.Blocks(block)
	stride := max(1, int((mk.Plan.PackedBytes+f.compare-1)/f.compare))
	sum, compared, p := sha256.New(), int64(0), mk.NewPacker(t)
	same := func(name string, offset int64, want []byte) error {
		got := make([]byte, len(want))
		if err := gpu.Read(name, offset, got); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			i := 0
			for got[i] == want[i] {
				i++
			}
			return fmt.Errorf("buffer %s: byte %d is %#02x, the CPU has %#02x", name, offset+int64(i), got[i], want[i])
		}
		compared += int64(len(got))
		sum.Write(got)
		return nil
	}
	for i := 0; i < len(blocks); i += stride {
		want := make([]byte, blocks[i].Bytes)
		if err := p.Pack(want, &blocks[i]); err != nil {
			return "", err
		}
		if err := same("weights", blocks[i].Offset, want); err != nil {
			return "", err
		}
	}
	gains, err := mk.Gains(t)
	if err != nil {
		return "", err
	}
	if err := same("gains", 0, gains); err != nil {
		return "", err
	}
	if c := &mk.Config; !c.TieEmbeddings {
		row := make([]byte, 2*c.Hidden)
		for r := 0; r < c.Vocab; r += max(1, c.Vocab/1024) {
			if err := p.Embeddings(row, r); err != nil {
				return "", err
			}
			if err := same(megakernel.BufferEmbed, int64(r)*int64(len(row)), row); err != nil {
				return "", err
			}
		}
	}
	hash := fmt.Sprintf("%x", sum.Sum(nil))
	fmt.Printf("equal to what the CPU packs: %d bytes (every %d. block of %d), sha256 %s\n", compared, stride, block, hash)
	return hash, nil
}
