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
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/randomize"
	"github.com/mkgen/mkgen/tests/gpu/choice"
)

func main() {
	c := choice.Flags()
	dir := flag.String("o", "out/kernels", "directory to write to")
	faults := flag.Bool("faults", false, "also the kernels with planted faults")
	random := flag.Bool("random", false, "also the kernel that makes random weights, as MODEL+random.cubin")
	flag.Parse()
	kinds := []megakernel.Fault{megakernel.NoFault}
	if *faults {
		kinds = append(kinds, megakernel.Faults()...)
	}
	for _, f := range kinds {
		if err := build(c, f, *dir, *random && f == megakernel.NoFault); err != nil {
			log.Fatal(err)
		}
	}
}

func build(c *choice.Choice, fault megakernel.Fault, dir string, random bool) error {
	mk, err := c.Build(fault)
	if err != nil {
		return err
	}
	if err := compile(mk.IR, c.Name(fault), dir); err != nil || !random {
		return err
	}
	r, err := randomize.New(mk)
	if err != nil {
		return err
	}
	return compile(r.IR, c.Name(fault)+"+random", dir)
}

// compile writes name.cu and name.cubin.
func compile(k *ir.Kernel, name, dir string) error {
	target, err := emit.TargetFor("sm_90a")
	if err != nil {
		return err
	}
	src, err := emit.Print(k, target, megakernel.EmitOptions())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	cu := filepath.Join(dir, name+".cu")
	if err := os.WriteFile(cu, src.Text, 0o644); err != nil {
		return err
	}
	compiler, err := nvcc.Find("")
	if err != nil {
		return err
	}
	report, err := compiler.Compile(context.Background(), cu, filepath.Join(dir, name+".cubin"), nvcc.Options{Arch: "sm_90a"})
	if err != nil {
		return err
	}
	stores, loads := report.Spills()
	fmt.Printf("%s: %d registers, %d + %d bytes spilled, cubin %d bytes, %v\n", name, report.Functions[0].Registers, stores, loads, report.CubinBytes, report.Took)
	return nil
}
