// Command oprows checks every row of the op table on a GPU against the executor.
//
//	go run ./tests/gpu/oprows -o out/oprows                    # writes op_rows.cu and op_rows.cubin
//	scripts/build-cuda build -o out/ ./tests/gpu/oprows        # where Go is
//	out/oprows -cubin out/oprows/op_rows.cubin                 # where the GPU is
//
// The last prints a line per op and ends with status 1 when any word differs
// beyond the table's tolerance.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/tests/kernels"
)

func main() {
	log.SetFlags(0)
	dir := flag.String("o", "", "write the kernel and its cubin to this directory")
	cubin := flag.String("cubin", "", "run this cubin on the GPU")
	rounds := flag.Int("rounds", 20, "launches; every one must give the same bytes")
	flag.Parse()
	rows, err := kernels.NewOpRows()
	if err == nil && *dir != "" {
		err = compile(rows, *dir)
	}
	if err == nil && *cubin != "" {
		err = check(rows, *cubin, *rounds)
	}
	if err != nil {
		log.Fatal("oprows: ", err)
	}
}

// compile emits the kernel and makes its cubin.
func compile(rows *kernels.OpRows, dir string) error {
	target, err := emit.TargetFor("sm_90a")
	if err != nil {
		return err
	}
	src, err := emit.Print(rows.IR, target, emit.Options{})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	cu := filepath.Join(dir, "op_rows.cu")
	if err := os.WriteFile(cu, src.Text, 0o644); err != nil {
		return err
	}
	compiler, err := nvcc.Find("")
	if err != nil {
		return err
	}
	_, err = compiler.Compile(context.Background(), cu, filepath.Join(dir, "op_rows.cubin"), nvcc.Options{Arch: target.Arch})
	return err
}

// check runs the rows on the executor and on the GPU and compares.
func check(rows *kernels.OpRows, cubin string, rounds int) error {
	program, err := interp.Load(rows.IR)
	if err != nil {
		return err
	}
	mem := interp.NewMemory()
	for _, in := range rows.Inputs {
		mem.Bind(in.Name, append([]byte(nil), in.Data...))
	}
	if _, err := program.Run(mem, interp.Options{Params: rows.Params}); err != nil {
		return err
	}
	got, err := onGPU(rows, cubin, rounds)
	if err != nil {
		return err
	}
	bad, err := rows.Compare(got, mem.Bytes("out"))
	if err != nil {
		return err
	}
	report(os.Stdout, rows, bad)
	if len(bad) > 0 {
		return fmt.Errorf("%d words differ beyond their tolerance", len(bad))
	}
	return nil
}

// report prints, by op, how many words were compared and the first differences.
func report(w io.Writer, rows *kernels.OpRows, bad []kernels.Mismatch) {
	words, wrong := map[ir.Op]int{}, map[ir.Op][]kernels.Mismatch{}
	for _, s := range rows.Spans {
		words[s.Op] += s.Words
	}
	for _, m := range bad {
		wrong[m.Span.Op] = append(wrong[m.Span.Op], m)
	}
	for _, op := range ir.AllOps() {
		fmt.Fprintf(w, "%-20s %6d words, %d differ\n", op, words[op], len(wrong[op]))
		for i, m := range wrong[op] {
			if i == 5 {
				fmt.Fprintln(w, "    …")
				break
			}
			fmt.Fprintf(w, "    %s\n", m)
		}
	}
}
