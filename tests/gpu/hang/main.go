//go:build cuda

// Command hang shows on a GPU that a kernel that hangs is given up: it runs the
// kernel that tests/gpu/kernels -hang planted a lost arrival in, prints the
// error, and then lets the same process, session and buffers run the right
// kernel, which must choose the same tokens as before.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tests/gpu/choice"
)

func main() {
	c := choice.Flags()
	dir := flag.String("kernels", "out/kernels", "what tests/gpu/kernels wrote")
	timeout := flag.Duration("hang-timeout", 300*time.Millisecond, "give a launch up after this long without a step")
	rounds := flag.Int("rounds", 3, "hangs, each followed by a right run")
	fault := flag.String("fault", string(megakernel.FaultLostArrival),
		"what hangs: lost-arrival, or lost-release with -watchdog all")
	flag.Parse()
	if err := run(c, *dir, megakernel.Fault(*fault), *timeout, *rounds); err != nil {
		log.Fatal(err)
	}
}

func run(ch *choice.Choice, dir string, fault megakernel.Fault, timeout time.Duration, rounds int) error {
	mk, err := ch.Build(megakernel.NoFault)
	if err != nil {
		return err
	}
	read := func(f megakernel.Fault) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, ch.Name(f)+".cubin"))
	}
	right, err := read(megakernel.NoFault)
	if err != nil {
		return err
	}
	hanging, err := read(fault)
	if err != nil {
		return err
	}
	dev, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	gpu, err := runtime.NewGPU(mk.IR, dev, right)
	if err != nil {
		return err
	}
	defer gpu.Close()
	s, err := runtime.NewSequence(mk, gpu, synth.NewWeights(1, mk.Config), 8, nil, 0xffffff00)
	if err != nil {
		return err
	}
	s.HangTimeout = timeout
	want, err := s.Generate([]int{1, 2, 3}, 24)
	if err != nil {
		return err
	}
	for i := range rounds {
		if err := round(s, gpu, hanging, timeout, want); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	fmt.Printf("%s: %d hangs given up, the same %d tokens after each\n", ch.Name(megakernel.NoFault), rounds, len(want))
	return nil
}

// round hangs once and then runs the right kernel.
func round(s *runtime.Sequence, gpu *runtime.GPU, hanging []byte, timeout time.Duration, want []int) error {
	if err := s.Rewind(0); err != nil {
		return err
	}
	restore, err := gpu.Swap(hanging)
	if err != nil {
		return err
	}
	start := time.Now()
	_, err = s.Generate([]int{1, 2, 3}, 24)
	took := time.Since(start)
	restore()
	var hang *runtime.HangError
	if !errors.As(err, &hang) {
		return fmt.Errorf("found %v, want a hang", err)
	}
	fmt.Printf("left %v after it was told to:\n%v\n", (took - timeout).Round(100*time.Microsecond), err)
	got, err := s.Generate([]int{1, 2, 3}, 24)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("after a hang %v, want %v", got, want)
	}
	return nil
}
