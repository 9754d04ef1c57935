// Command mkgen writes the CUDA kernel that runs a whole decode step of a
// dense transformer, with a Go package that launches it.
//
//	mkgen --model llama3-8b            the kernel and its host package, in out/llama3-8b
//	mkgen models                       what models there are
//	mkgen describe --model llama3-8b   what a model computes, and its tensors
//	mkgen explain --model llama3-8b    the plan in detail
//	mkgen ir --model llama3-8b         the program as text
//	mkgen compile --model llama3-8b    the cubin, with nvcc or NVRTC
//	mkgen verify --model llama3-8b     the program on the CPU, checked
//	mkgen run --model tiny "prompt"    text, on the CPU or a GPU
//	mkgen serve --model tiny           OpenAI's HTTP interface
//	mkgen quantize --checkpoint DIR    a checkpoint in 4 or 8 bits
//	mkgen bench --model llama3-8b      how fast it decodes on a GPU
//	mkgen sweep --model llama3-8b      the same over contexts and batches, as a heat map
//	mkgen calibrate                    what a GPU's times follow from, as a machine file
//	mkgen tune --model llama3-8b       its fastest options on a GPU, as a profile
//	mkgen trace --model llama3-8b      what every SM does in a step, and when
//	mkgen plot RECORD...               records of mkgen bench and sweep, drawn
//
// It exits with 0 when all went well, with 2 when it was called wrongly, with 1
// for everything else; an error is one line on stderr.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/spf13/cobra"
)

func main() { os.Exit(run(newRoot(verify.Check), os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the command with its arguments and its two streams; it returns the
// exit code. What goes to stdout goes there at the end, in one piece, but for
// what a command streams.
func run(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	out := held{to: stdout}
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(stderr)
	err := root.Execute()
	if _, werr := out.WriteTo(out.to); err == nil {
		err = werr
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "mkgen: %s\n", oneLine(err))
	return exitCode(err)
}

// held is output that is written at the end.
type held struct {
	bytes.Buffer
	to io.Writer
}

// streaming is where a command writes what is not to be held.
func streaming(w io.Writer) io.Writer {
	if h, ok := w.(*held); ok {
		return h.to
	}
	return w
}
