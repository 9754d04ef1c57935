// Command kernels emits and compiles what the GPU checks run: a model's kernel
// as MODEL.cubin and, for the gate, the same with each planted fault as
// MODEL+FAULT.cubin.
//
//	go run ./tests/gpu/kernels -model llama3.2-1b -o out/kernels
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/randomize"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tests/gpu/choice"
)

func main() {
	c := choice.Flags()
	dir := flag.String("o", "out/kernels", "directory to write to")
	faults := flag.Bool("faults", false, "also the kernels with planted faults")
	random := flag.Bool("random", false, "also the kernel that makes random weights, as MODEL+random.cubin")
	hang := flag.Bool("hang", false, "also the kernel that hangs")
	source := flag.Bool("source", false, "write sources only")
	flag.Parse()
	kinds := []megakernel.Fault{megakernel.NoFault}
	if *faults {
		kinds = append(kinds, megakernel.Faults()...)
	}
	if *hang {
		kinds = append(kinds, megakernel.Hangs()...)
	}
	for _, f := range kinds {
		if err := build(c, f, *dir, *source, *random && f == megakernel.NoFault); err != nil {
			log.Fatal(err)
		}
	}
}

func build(c *choice.Choice, fault megakernel.Fault, dir string, source, random bool) error {
	mk, err := c.Build(fault)
	if err != nil {
		return err
	}
	if err := cubin(mk.IR, c.Name(fault), dir, source); err != nil || !random {
		return err
	}
	r, err := randomize.New(mk)
	if err != nil {
		return err
	}
	return cubin(r.IR, c.Name(fault)+"+random", dir, source)
}

// cubin writes name.cu and, unless only sources are wanted, name.cubin.
func cubin(k *ir.Kernel, name, dir string, source bool) error {
	src, err := compile.SourceOfKernel(name, k, "sm_90a")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".cu"), src.Text, 0o644); err != nil || source {
		return err
	}
	r, err := compile.Kernel(context.Background(), src, compile.Options{})
	if err != nil {
		return err
	}
	if err := r.WriteFile(filepath.Join(dir, name+".cubin")); err != nil {
		return err
	}
	fmt.Printf("%s: %d registers, %d + %d bytes spilled, cubin %d bytes, %v, from the cache: %v\n",
		name, r.Registers, r.SpillStores, r.SpillLoads, r.Bytes, r.Took, r.Cached)
	return nil
}
