// Command compilecu compiles .cu files with nvcc and holds them to what an emitted kernel promises: one kernel, no
// #include, no spills (or few), a bounded compile time, strong loads of 128 bits in one. It prints a line per file and
// exits with 1 when one of them fails, 2 for wrong flags.
//
//	compilecu [-arch sm_90a] [-nvcc PATH] [-max-seconds 90] [-max-spills 0] FILE.cu...
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/mkgen/mkgen/internal/nvcc"
)

// limits are what a file is held to.
type limits struct {
	arch   string
	max    time.Duration
	spills int // bytes stored and loaded
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings passed in; it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("compilecu", flag.ContinueOnError)
	flags.SetOutput(stderr)
	arch := flags.String("arch", "sm_90a", "architecture to compile for")
	path := flags.String("nvcc", "", "the nvcc to use; otherwise it is looked for")
	seconds := flags.Float64("max-seconds", 90, "the longest that one compilation may take")
	spills := flags.Int("max-spills", 0, "the most bytes of spills, stored and loaded together")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(stderr, "compilecu: want at least one .cu file")
		return 2
	}
	compiler, err := nvcc.Find(*path)
	if err != nil {
		fmt.Fprintln(stderr, "compilecu:", err)
		return 1
	}
	code := 0
	for _, src := range flags.Args() {
		line, err := compile(compiler, src, limits{*arch, time.Duration(*seconds * float64(time.Second)), *spills})
		if err != nil {
			fmt.Fprintln(stderr, "compilecu:", err)
			code = 1
			continue
		}
		fmt.Fprintln(stdout, line)
	}
	return code
}

var (
	globals  = regexp.MustCompile(`(?m)^[^/\n]*\b__global__\b`)
	includes = regexp.MustCompile(`(?m)^\s*#\s*include\b.*$`)
)

// compile compiles one file and returns its line, or an error that says which promise it breaks.
func compile(compiler *nvcc.Compiler, src string, l limits) (string, error) {
	text, err := os.ReadFile(src)
	if err != nil {
		return "", err
	}
	if include := includes.Find(text); include != nil {
		return "", fmt.Errorf("%s: has %q, want no #include", src, include)
	}
	if n := len(globals.FindAll(text, -1)); n != 1 {
		return "", fmt.Errorf("%s: has %d __global__ functions, want 1", src, n)
	}
	dir, err := os.MkdirTemp("", "compilecu")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), l.max)
	defer cancel()
	cubin := filepath.Join(dir, "out.cubin")
	report, err := compiler.Compile(ctx, src, cubin, nvcc.Options{Arch: l.arch})
	if errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("%s: not compiled within %v", src, l.max)
	}
	if err != nil {
		return "", err
	}
	stores, loads := report.Spills()
	if stores+loads > l.spills {
		return "", fmt.Errorf("%s: spills: %d bytes stored, %d loaded, want %d", src, stores, loads, l.spills)
	}
	whole, err := loadsAreWhole(ctx, compiler, src, cubin)
	if err != nil {
		return "", err
	}
	loaded := fmt.Sprintf("%d strong loads of 128 bits", whole)
	if whole == 1 {
		loaded = "1 strong load of 128 bits"
	}
	spilled := "0 spills"
	if stores+loads > 0 {
		spilled = fmt.Sprintf("%d + %d bytes spilled", stores, loads)
	}
	kernel := report.Functions[0]
	return fmt.Sprintf("%s: %s for %s by nvcc %s: %d registers, %s, %d bytes stack, %d barriers, %d bytes static shared, %s, %d bytes cubin, %.1f s",
		filepath.Base(src), kernel.Name, l.arch, report.Nvcc, kernel.Registers, spilled, kernel.Stack, kernel.Barriers,
		kernel.Shared, loaded, report.CubinBytes, report.Took.Seconds()), nil
}
