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
	r := &record{GPU: dev.Name(), Driver: cuda.DriverRelease(), Commit: revision.String()}
	for _, t := range tests() {
		row, err := t.run(dev, messages)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		promise := "PTX promises none"
		if row.Promised == "" {
			promise = "PTX allows some"
		}
		fmt.Printf("%-26s %12d messages, %d words wrong (%s), %.2f s\n", row.Test, row.Messages, row.Wrong, promise, row.Seconds)
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
	rounds := max(1, int64(messages)/int64(channels))
	start := time.Now()
	if err := runtime.Launch(gpu, map[string]uint64{"rounds": uint64(rounds), "loads": uint64(4 * rounds)}); err != nil {
		return nil, err
	}
	out := &row{Test: t.name, What: t.what, Promised: t.promised, Messages: rounds * int64(channels), Seconds: time.Since(start).Seconds()}
	bad := make([]byte, 4*ctas*channelWarps*32)
	if err := gpu.Read("bad", 0, bad); err != nil {
		return nil, err
	}
	for i := 0; i < len(bad); i += 4 {
		out.Wrong += int64(binary.LittleEndian.Uint32(bad[i:]))
	}
	return out, nil
}
