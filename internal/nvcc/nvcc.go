// Package nvcc finds CUDA's compiler, compiles one .cu file to a cubin with it, and reads what ptxas says about the
// result: registers, spills, stack, shared memory and barriers of every function.
//
// It needs no GPU and no driver, and no cgo. nvcc itself needs gcc on PATH.
package nvcc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ErrNotFound is what [Find] returns (wrapped, with every place it looked) when there is no nvcc.
var ErrNotFound = errors.New("no nvcc found")

// Compiler is one nvcc on this machine.
type Compiler struct {
	// Path is the executable.
	Path string
	// Version is what `nvcc --version` names, such as "13.0.88".
	Version string
}

// Options say how to compile.
type Options struct {
	// Arch is the real architecture, such as "sm_90a".
	Arch string
	// Base are the arguments for language, optimisation and architecture (emit.Target.NvccFlags); without any they are
	// -std=c++17 -O3 and the -gencode of Arch.
	Base []string
	// Flags are further arguments for nvcc, put before the source file.
	Flags []string
}

// Error is a compilation that nvcc refused or that could not be run.
type Error struct {
	// Nvcc is the compiler's version, Source the file, Arch what it was compiled for.
	Nvcc, Source, Arch string
	// Text is all that nvcc printed, without leading and trailing blanks.
	Text string
	// Err is how nvcc ended: its exit status, or the context's error.
	Err error
}

// Error is one line and after it nvcc's own text.
func (e *Error) Error() string {
	text := fmt.Sprintf("nvcc %s: %s for %s: %v", e.Nvcc, e.Source, e.Arch, e.Err)
	if e.Text != "" {
		text += "\n" + e.Text
	}
	return text
}

// Unwrap is how nvcc ended.
func (e *Error) Unwrap() error { return e.Err }

// Report is what a compilation came to.
type Report struct {
	// Arch is the architecture compiled for, Nvcc the compiler's version.
	Arch, Nvcc string
	// Functions are the kernels and the device functions that were not inlined, in ptxas's order.
	Functions []Function
	// Took is the wall-clock time of the whole of nvcc.
	Took time.Duration
	// CubinBytes is the size of the cubin.
	CubinBytes int64
	// Text is all that nvcc printed, warnings included.
	Text string
}

// Spills returns the bytes of spill stores and spill loads summed over every function.
func (r *Report) Spills() (stores, loads int) {
	for _, f := range r.Functions {
		stores += f.SpillStores
		loads += f.SpillLoads
	}
	return stores, loads
}

var archForm = regexp.MustCompile(`^sm_[0-9]{2,3}[af]?$`)

// Compile compiles the file src for opt.Arch and writes the cubin to out, which is replaced only when the compilation
// succeeds. The flags are opt.Base, -cubin -Xptxas -v and opt.Flags. A source that nvcc refuses is an [*Error] with
// nvcc's own text; a cancelled context ends nvcc with the programs it started and is reported as the context's error,
// in an [*Error] too. nvcc's temporary files lie in out's folder, so that a caller who removes it leaves nothing
// behind.
func (c *Compiler) Compile(ctx context.Context, src, out string, opt Options) (*Report, error) {
	if !archForm.MatchString(opt.Arch) {
		return nil, fmt.Errorf("nvcc: architecture %q: want one such as sm_90a", opt.Arch)
	}
	if _, err := os.Stat(src); err != nil {
		return nil, fmt.Errorf("nvcc: source: %w", err)
	}
	beside, err := os.CreateTemp(filepath.Dir(out), ".nvcc-*.cubin")
	if err != nil {
		return nil, fmt.Errorf("nvcc: output: %w", err)
	}
	defer os.Remove(beside.Name()) // gone already after the rename
	if err := beside.Close(); err != nil {
		return nil, fmt.Errorf("nvcc: output: %w", err)
	}

	start := time.Now()
	text, err := c.run(ctx, c.arguments(src, beside.Name(), opt), filepath.Dir(out))
	took := time.Since(start)
	if err != nil {
		return nil, &Error{Nvcc: c.Version, Source: src, Arch: opt.Arch, Text: strings.TrimSpace(text), Err: err}
	}
	functions, err := ParsePtxas(text)
	if err != nil {
		return nil, fmt.Errorf("nvcc %s: %s: %w", c.Version, src, err)
	}
	info, err := os.Stat(beside.Name())
	if err != nil {
		return nil, fmt.Errorf("nvcc: output: %w", err)
	}
	if err := publish(beside.Name(), out); err != nil {
		return nil, fmt.Errorf("nvcc: output: %w", err)
	}
	return &Report{Arch: opt.Arch, Nvcc: c.Version, Functions: functions, Took: took, CubinBytes: info.Size(), Text: text},
		nil
}

// PTX returns the PTX that the front end makes of the file src, with the flags of Compile. What nvcc refuses is an
// [*Error].
func (c *Compiler) PTX(ctx context.Context, src string, opt Options) (string, error) {
	out := src + ".ptx"
	args := c.arguments(src, out, opt)
	args[slices.Index(args, "-cubin")] = "-ptx"
	text, err := c.run(ctx, args, filepath.Dir(src))
	if err != nil {
		return "", &Error{Nvcc: c.Version, Source: src, Arch: opt.Arch, Text: strings.TrimSpace(text), Err: err}
	}
	ptx, err := os.ReadFile(out)
	return string(ptx), err
}

// arguments are nvcc's for one compilation.
func (c *Compiler) arguments(src, out string, opt Options) []string {
	base := opt.Base
	if len(base) == 0 {
		virtual := "compute_" + strings.TrimPrefix(opt.Arch, "sm_")
		base = []string{"-std=c++17", "-O3", "-gencode=arch=" + virtual + ",code=" + opt.Arch}
	}
	return slices.Concat(base, []string{"-cubin", "-Xptxas", "-v"}, opt.Flags, []string{"-o", out, src})
}

// run runs nvcc, with its temporary files in dir, and returns what it printed on both streams.
func (c *Compiler) run(ctx context.Context, args []string, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Path, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	endTogether(cmd)
	cmd.WaitDelay = 5 * time.Second // a child of nvcc that keeps the pipe open
	text, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return string(text), err
}

// publish gives the file the permissions of an ordinary new file and its final name.
func publish(beside, out string) error {
	if err := os.Chmod(beside, 0o644); err != nil {
		return err
	}
	return os.Rename(beside, out)
}
