//go:build cuda

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/internal/revision"
)

// run runs every test on the first GPU.
func run(messages float64, path string) error {
	dev, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	r := &record{Date: time.Now().UTC().Format(time.DateOnly), GPU: dev.Name(), Driver: cuda.DriverRelease(),
		Commit: revision.String()}
	for _, t := range tests() {
		row, err := t.run(dev, messages)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		promise := "PTX promises none"
		if row.Promised == "" {
			promise = "PTX allows some"
		}
		fmt.Printf("%-26s %12d messages, %d words wrong (%s), %.2f s beside %.0f GB/s\n", row.Test, row.Messages, row.Wrong,
			promise, row.Seconds, row.LoadGBs)
		r.Tests = append(r.Tests, *row)
	}
	if path != "" {
		if err := jsonfile.Write(path, r); err != nil {
			return err
		}
	}
	return r.failed()
}

func (t *test) run(dev *cuda.Device, messages float64) (*row, error) {
	ctas := dev.SMs() &^ 1
	k, err := t.kernel(ctas)
	if err != nil {
		return nil, err
	}
	src, err := compile.SourceOfKernel("litmus", k, "sm_90a")
	if err != nil {
		return nil, err
	}
	code, err := compile.Kernel(context.Background(), src, compile.Options{})
	if err != nil {
		return nil, err
	}
	gpu, err := runtime.NewGPU(k, dev, code.Cubin)
	if err != nil {
		return nil, err
	}
	defer gpu.Close()
	for _, b := range k.Globals() {
		if err := gpu.Alloc(b.Name, b.Bytes()); err != nil {
			return nil, err
		}
		if err := gpu.Zero(b.Name); err != nil {
			return nil, err
		}
	}
	channels := ctas * channelWarps / 2
	if !t.bulk {
		channels *= 32
	}
	rounds := max(1, (int64(messages)+int64(channels)-1)/int64(channels))
	most := min(16*rounds, 1<<32-1) // of a round's time; the load ends with the channels
	start := time.Now()
	if err := runtime.Launch(gpu, map[string]uint64{"rounds": uint64(rounds), "loads": uint64(most)}); err != nil {
		return nil, err
	}
	out := &row{Test: t.name, What: t.what, Promised: t.promised, Messages: rounds * int64(channels),
		Seconds: time.Since(start).Seconds()}
	if out.Wrong, err = total(gpu, "bad", ctas*channelWarps*32); err != nil {
		return nil, err
	}
	times, err := total(gpu, "streamed", ctas*loadWarps*32)
	if err != nil {
		return nil, err
	}
	if times >= most*int64(ctas*loadWarps*32) {
		return nil, fmt.Errorf("the load ended before the channels: it went on %d times a thread", most)
	}
	out.LoadGBs = float64(times*loadAhead*16) / out.Seconds / 1e9
	return out, nil
}

// total is the sum of n words of a buffer.
func total(gpu *runtime.GPU, name string, n int) (sum int64, err error) {
	words := make([]byte, 4*n)
	if err := gpu.Read(name, 0, words); err != nil {
		return 0, err
	}
	for i := 0; i < len(words); i += 4 {
		sum += int64(binary.LittleEndian.Uint32(words[i:]))
	}
	return sum, nil
}
