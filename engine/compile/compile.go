package compile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/emit/sass"
	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/megakernel"
	"strconv"
	"strings"
)

// Source is a kernel's text and what is known of it.
type Source struct {
	// Name is what the kernel is called in messages, such as the model's name.
	Name string
	// Arch is the architecture that the text was printed for, one of [emit.Targets]: "sm_90a".
	Arch string
	// Text is the CUDA C++, one file without #include.
	Text []byte
	// Lines are the Go positions of Text's lines, from line 1 at index 0, as emit.Print gives them; without them errors
	// name no Go line.
	Lines []ir.Pos
	// Kernel is the program that Text was printed of, and Instrs are its instructions by line, as emit.Print gives
	// them: what the machine code is held against. Without a program it is not.
	Kernel *ir.Kernel
	Instrs [][]*ir.Instr
}

// SourceOf prints the kernel of a model for an architecture ("sm_90a"), as mkgen writes it. It refuses what emit.Print
// refuses.
func SourceOf(mk *megakernel.Kernel, arch string) (Source, error) {
	return SourceOfKernel(mk.Config.Name, mk.IR, arch)
}

// SourceOfKernel is SourceOf for any kernel, with its params block by value; name is what messages call it.
func SourceOfKernel(name string, k *ir.Kernel, arch string) (Source, error) {
	target, err := emit.TargetFor(arch)
	if err != nil {
		return Source{}, fmt.Errorf("compile: %w", err)
	}
	printed, err := emit.Print(k, target, megakernel.EmitOptions())
	if err != nil {
		return Source{}, fmt.Errorf("compile: kernel of %s: %w", name, err)
	}
	return Source{Name: name, Arch: arch, Text: printed.Text, Lines: printed.Lines, Kernel: k, Instrs: printed.Instrs}, nil
}

// The compilers that Options.With may name.
const (
	Nvcc  = "nvcc"
	NVRTC = "nvrtc"
)

// Options say how to compile. The zero value takes nvcc when it is there, else NVRTC, and the cache.
type Options struct {
	// With is the only compiler to try, [Nvcc] or [NVRTC]; empty: either.
	With string
	// NvccPath is the nvcc to use; empty: it is looked for.
	NvccPath string
	// Flags are further arguments for the compiler, in its own spelling, such as "-lineinfo".
	Flags []string
	// PTX holds the PTX against the program instead of the machine code, as where there is no nvdisasm.
	PTX bool
	// NoCache neither reads nor writes the cache.
	NoCache bool
	// Dir is the cache's folder, made when it is not there; empty: `cubin` under mkgen's cache directory.
	Dir string
}

// Result is a compiled kernel. Registers, stack and spills are per thread.
type Result struct {
	// Cubin is the machine code, an ELF file.
	Cubin []byte `json:"-"`
	// Compiler is what made it, such as "nvcc 13.0.88"; Arch what it runs on; Function the kernel's name in it.
	Compiler string `json:"compiler"`
	Arch     string `json:"arch"`
	Function string `json:"function"`
	// Registers are 32 bits wide.
	Registers int `json:"registers"`
	// SpillStores and SpillLoads are bytes, summed over the kernel and device functions that were not inlined;
	// SpillBytes is their sum.
	SpillStores int `json:"spill_stores"`
	SpillLoads  int `json:"spill_loads"`
	SpillBytes  int `json:"spill_bytes"`
	// Stack is the kernel's stack frame in bytes; Barriers the named barriers it uses; Shared its static shared memory
	// in bytes.
	Stack    int `json:"stack"`
	Barriers int `json:"barriers"`
	Shared   int `json:"shared"`
	// Bytes is the length of Cubin.
	Bytes int `json:"bytes"`
	// Machine says how the machine code, or without nvdisasm its PTX, was held against the program (package emit/sass);
	// nil where it was not.
	// Unchecked says why not.
	Machine   *sass.Report `json:"machine,omitempty"`
	Unchecked string       `json:"unchecked,omitempty"`
	// Took is how long the compiler took when it made the cubin, wall clock.
	Took time.Duration `json:"took_ns"`

	// Cached says that the cubin came from the cache: made by an earlier call, or by another process while this one
	// waited for it.
	Cached bool `json:"-"`
	// Elapsed is how long this call took.
	Elapsed time.Duration `json:"-"`
	// Path is the cubin's file in the cache; empty where the cache was not to be used or could not be.
	Path string `json:"-"`
	// Note says what was wrong with the cache, in one line: a damaged entry that was replaced, a folder that cannot be
	// written. It is empty when nothing was; the cubin is right in any case.
	Note string `json:"-"`
}

// WriteFile writes the cubin to a file, whole or not at all. Its folder is made; what is there under its name is
// replaced if it is a regular file, behind a link too, else (a folder, a device) left alone: an error.
func (r *Result) WriteFile(path string) error { return atomicfile.Write(path, r.Cubin) }

// IsCubin says whether a file is a cubin, this program's or another's, by its first 20 bytes or more: it is a
// little-endian ELF file of the machine that stands for CUDA, 190.
func IsCubin(head []byte) bool {
	return len(head) >= 20 && bytes.HasPrefix(head, []byte("\x7fELF\x02\x01")) &&
		binary.LittleEndian.Uint16(head[18:]) == 190
}

// ErrNoCompiler is what [Kernel] returns (wrapped, with every place it looked) when there is neither nvcc nor NVRTC.
var ErrNoCompiler = errors.New("no CUDA compiler")

// Kernel compiles a kernel or takes it from the cache. A text that the compiler refuses is an [*Error], with the Go
// lines it came from; a missing or too old compiler is an error that says what was looked for and where. When ctx ends
// the compiler is stopped, nothing half-written remains and the context's error is returned (wrapped). It may be called
// by any number of goroutines and processes.
func Kernel(ctx context.Context, src Source, opt Options) (*Result, error) {
	start := time.Now()
	target, err := emit.TargetFor(src.Arch)
	if err != nil {
		return nil, fmt.Errorf("compile: kernel of %s: %w", src.Name, err)
	}
	if len(src.Text) == 0 {
		return nil, fmt.Errorf("compile: kernel of %s: the text is empty", src.Name)
	}
	c, err := choose(opt)
	if err != nil {
		return nil, fmt.Errorf("compile: kernel of %s: %w", src.Name, err)
	}
	// Lines of the text in the cubin change no instruction of it; the machine code is held against the program by them.
	j := job{src: src, target: target, with: c, extra: append([]string{"-lineinfo"}, opt.Flags...), ptx: opt.PTX}
	var r *Result
	if opt.NoCache {
		r, err = j.compile(ctx)
	} else {
		r, err = j.cached(ctx, opt.Dir)
	}
	var refused *Error
	switch {
	case err == nil:
		r.Elapsed = time.Since(start)
		return r, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("compile: kernel of %s: %w", src.Name, ctx.Err())
	case errors.As(err, &refused):
		return nil, refused
	}
	return nil, fmt.Errorf("compile: kernel of %s: %s: %w", src.Name, c.name(), err)
}

// job is one call's work.
type job struct {
	src    Source
	target emit.Target
	with   compiler
	extra  []string
	ptx    bool // hold the PTX
}

// compile runs the compiler.
func (j *job) compile(ctx context.Context) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	start := time.Now()
	cubin, log, err := j.with.compile(ctx, j.src.Text, j.target, j.extra)
	took := time.Since(start)
	var refused *refusal
	if errors.As(err, &refused) {
		return nil, refused.explain(j)
	}
	if err != nil {
		return nil, err
	}
	functions, err := nvcc.ParsePtxas(log)
	if err != nil {
		return nil, err
	}
	r := &Result{Cubin: cubin, Compiler: j.with.name(), Arch: j.target.Arch, Bytes: len(cubin), Took: took}
	for _, f := range functions {
		r.SpillStores += f.SpillStores
		r.SpillLoads += f.SpillLoads
		if f.Entry && r.Function == "" {
			r.Function, r.Registers, r.Stack, r.Barriers, r.Shared = f.Name, f.Registers, f.Stack, f.Barriers, f.Shared
		}
	}
	r.SpillBytes = r.SpillStores + r.SpillLoads
	return r, j.hold(ctx, r)
}

// Driver is the CUDA version that a driver must support at least to run the
// result, 1000 × major: within a major version drivers run what any compiler of it
// made (CUDA's minor version compatibility). 0 when Compiler does not say.
func (r *Result) Driver() int {
	_, version, _ := strings.Cut(r.Compiler, " ")
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	if err != nil {
		return 0
	}
	return 1000 * major
}
