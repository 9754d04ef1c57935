//go:build cuda

// Command engine runs the cases of tests/enginecases on a GPU, the soak among
// them, and prints what each came to. The kernel is a cubin that
// tests/gpu/kernels wrote with the same flags.
//
//	go run ./tests/gpu/kernels -model tiny -sms 8 -o out/kernels
//	scripts/build-cuda build -o out/engine ./tests/gpu/engine
//	out/engine -model tiny -sms 8 -kernels out/kernels -tokens 10000
//
// With -rows, for both, several requests share a step.
// It ends with 1 when a case fails, and when device memory is missing in the end.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tests/enginecases"
	"github.com/mkgen/mkgen/tests/gpu/choice"
)

func main() {
	c := choice.Flags()
	dir := flag.String("kernels", "out/kernels", "what tests/gpu/kernels wrote")
	tokens := flag.Int("tokens", 10000, "tokens of the soak")
	only := flag.String("run", "", "only the cases whose names contain this")
	flag.Parse()
	if err := run(c, *dir, *tokens, *only); err != nil {
		log.Fatal(err)
	}
}

func run(c *choice.Choice, dir string, tokens int, only string) error {
	mk, err := c.Build(megakernel.NoFault)
	if err != nil {
		return err
	}
	cubin, err := os.ReadFile(filepath.Join(dir, c.Name(megakernel.NoFault)+".cubin"))
	if err != nil {
		return err
	}
	text, err := enginecases.Bytes()
	if err != nil {
		return err
	}
	gpu, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer gpu.Close()
	fmt.Printf("%s on %s\n", c.Name(megakernel.NoFault), gpu.Facts().Name)
	b := &enginecases.Bench{Kernel: mk, Text: text, Soak: tokens,
		Device: func() (runtime.Device, error) { return runtime.NewGPU(mk.IR, gpu, cubin) }}
	var failed, free int64
	for i, k := range b.Cases() {
		if !strings.Contains(k.Name, only) {
			continue
		}
		t := &judge{}
		took := t.run(k, b)
		verdict := "ok"
		if t.failed {
			verdict, failed = "FAILED", failed+1
		}
		fmt.Printf("%-6s %s (%.2f s)\n", verdict, k.Name, took.Seconds())
		now, _, err := gpu.MemInfo()
		if err != nil {
			return err
		}
		if i == 0 { // the first case has loaded whatever the driver loads once
			free = now
		} else if now != free { // the driver takes a piece for itself now and then; a leak repeats itself
			before := now
			(&judge{}).run(k, b)
			if now, _, err = gpu.MemInfo(); err != nil {
				return err
			}
			if now != before {
				failed++
				fmt.Printf("FAILED %d and then %d bytes of device memory are missing\n", free-before, before-now)
			}
			free = now
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d failures", failed)
	}
	fmt.Println("all passed, no byte of device memory missing")
	return nil
}

// judge is the T of a case.
type judge struct {
	failed  bool
	cleanup []func()
}

// run runs a case and its cleanups, each on a goroutine that FailNow may end.
func (j *judge) run(c enginecases.Case, b *enginecases.Bench) time.Duration {
	start := time.Now()
	j.protect(func() { c.Run(j, b) })
	for len(j.cleanup) > 0 {
		last := len(j.cleanup) - 1
		f := j.cleanup[last]
		j.cleanup = j.cleanup[:last]
		j.protect(f)
	}
	return time.Since(start)
}

func (j *judge) protect(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				j.Errorf("panic: %v", r)
			}
		}()
		f()
	}()
	<-done
}

func (j *judge) Errorf(format string, args ...any) {
	j.failed = true
	fmt.Printf(format+"\n", args...)
}

func (j *judge) FailNow() {
	j.failed = true
	goruntime.Goexit()
}

func (j *judge) Helper() {}

func (j *judge) Logf(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) }

func (j *judge) Cleanup(f func()) { j.cleanup = append(j.cleanup, f) }
