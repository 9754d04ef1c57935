// Command oprows runs every row of the op table on the executor, and on a GPU,
// and compares.
//
//	go run ./tests/gpu/oprows -cu out/oprows.cu      # writes the kernel
//	oprows -cubin out/oprows.cubin -record FILE      # with the build tag cuda: runs and compares
package main

import (
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/tests/kernels"
)

func main() {
	cu := flag.String("cu", "", "file to write the emitted kernel to")
	cubin := flag.String("cubin", "", "compiled kernel to run on the GPU")
	record := flag.String("record", "", "file to write the record to")
	flag.Parse()
	rows, err := kernels.NewOpRows()
	if err == nil && *cu != "" {
		err = write(rows, *cu)
	}
	if err == nil && *cubin != "" {
		err = compare(rows, *cubin, *record)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func write(rows *kernels.OpRows, path string) error {
	target, err := emit.TargetFor("sm_90a")
	if err != nil {
		return err
	}
	src, err := emit.Print(rows.IR, target, emit.Options{ParamsByValue: true})
	if err != nil {
		return err
	}
	return os.WriteFile(path, src.Text, 0o644)
}

// simulate runs the kernel on the executor and returns "out".
func simulate(rows *kernels.OpRows) ([]byte, error) {
	p, err := interp.Load(rows.IR)
	if err != nil {
		return nil, err
	}
	mem := interp.NewMemory()
	for _, in := range rows.Inputs {
		mem.Bind(in.Name, append([]byte(nil), in.Data...))
	}
	if _, err := p.Run(mem, interp.Options{Params: rows.Params}); err != nil {
		return nil, fmt.Errorf("on the executor: %w", err)
	}
	return mem.Bytes("out"), nil
}
