//go:build cuda

// Command smoke shows that the driver package works on a real GPU: it loads smoke.cu's cubin, launches it cooperatively
// on every SM with much dynamic shared memory, checks the sums, answers the kernel while it runs, then makes it fault
// and shows that the GPU can be opened again. It prints one JSON object and exits with 0 when all of that went well, 1
// when not, 2 for wrong flags.
//
//	smoke -cubin smoke.cubin [-device 0] [-shared 131072]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/mkgen/mkgen/engine/runtime/cuda"
)

// report is what the program prints.
type report struct {
	Facts     cuda.Facts `json:"gpu"`
	Driver    string     `json:"driver_release"`
	Registers int        `json:"registers"`
	Local     int        `json:"local_bytes"`
	Grid      int        `json:"grid"`
	Block     int        `json:"block"`
	Shared    int        `json:"dynamic_shared_bytes"`
	PerSM     int        `json:"blocks_per_sm"`
	Values    int        `json:"values_checked"`
	Answered  bool       `json:"answered_while_running"`
	// Micros is the time between the events around the launch, the wait for the host's answer included.
	Micros    float64 `json:"kernel_us"`
	TooLarge  string  `json:"refused_grid"`
	Fault     string  `json:"fault"`
	Recovered bool    `json:"recovered"`
	Passed    bool    `json:"passed"`
}

func main() {
	path := flag.String("cubin", "", "the cubin of smoke.cu")
	ordinal := flag.Int("device", 0, "which GPU")
	shared := flag.Int("shared", 128<<10, "dynamic shared memory per block, bytes")
	flag.Parse()
	if *path == "" || flag.NArg() > 0 || *shared < 4 || *shared%4 != 0 {
		fmt.Fprintln(os.Stderr, "smoke: want -cubin FILE, -shared a multiple of 4, and no other arguments")
		os.Exit(2)
	}
	if err := run(*path, *ordinal, *shared); err != nil {
		fmt.Fprintln(os.Stderr, "smoke:", err)
		os.Exit(1)
	}
}

// run does everything and prints the report.
func run(path string, ordinal, shared int) error {
	cubin, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var r report
	if err := once(cubin, ordinal, shared, &r); err != nil {
		return err
	}
	if r.Fault, err = fault(cubin, ordinal); err != nil {
		return err
	}
	var again report
	if err := once(cubin, ordinal, shared, &again); err != nil {
		return fmt.Errorf("after a fault: %w", err)
	}
	r.Recovered, r.Passed = true, true
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	return nil
}

// once opens the GPU, runs the kernel, checks it and closes the GPU.
func once(cubin []byte, ordinal, shared int, r *report) (err error) {
	dev, err := cuda.Open(ordinal)
	if err != nil {
		return err
	}
	defer func() {
		if closed := dev.Close(); err == nil {
			err = closed
		}
	}()
	if err := dev.Check(cuda.Needs{Arch: "sm_90a", Driver: 13000, Shared: shared}); err != nil {
		return err
	}
	r.Facts, r.Driver = dev.Facts(), cuda.DriverRelease()
	return launch(dev, cubin, shared, r)
}

// fault makes the kernel read address 16 and returns the error that waiting for it gave; it is an error when there was
// none.
func fault(cubin []byte, ordinal int) (string, error) {
	dev, err := cuda.Open(ordinal)
	if err != nil {
		return "", err
	}
	defer dev.Close() // reports the fault again
	module, err := dev.LoadModule(cubin)
	if err != nil {
		return "", err
	}
	kernel, err := module.Function("smoke")
	if err != nil {
		return "", err
	}
	stream, err := dev.NewStream()
	if err != nil {
		return "", err
	}
	if err := kernel.LaunchCooperative(stream, 1, block, 0, cuda.Pointer(16)); err != nil {
		return "", err
	}
	if err := stream.Sync(); err != nil {
		return err.Error(), nil
	}
	return "", fmt.Errorf("a kernel that reads address 16 reported no fault")
}
