package nvcc

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Function is what `ptxas -v` says of one function.
type Function struct {
	// Name is the function's name in PTX (mangled, unless it is extern "C").
	Name string
	// Entry says that it is a kernel; otherwise it is a device function that was not inlined, of which ptxas gives only
	// the stack frame and the spills.
	Entry bool
	// Registers is the number of 32-bit registers per thread, Barriers the number of named barriers used.
	Registers, Barriers int
	// Stack is the stack frame, SpillStores and SpillLoads the spill traffic, all in bytes per thread.
	Stack, SpillStores, SpillLoads int
	// Shared is the static shared memory in bytes; dynamic shared memory is not known here.
	Shared int
	// CompileTime is what ptxas spent on it; 0 where ptxas does not say (before CUDA 12).
	CompileTime time.Duration
}

var (
	entryLine = regexp.MustCompile(`Compiling entry function '([^']+)' for '`)
	propsLine = regexp.MustCompile(`Function properties for (\S+)`)
	stackLine = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	usedLine  = regexp.MustCompile(`Used (\d+) registers`)
	barriers  = regexp.MustCompile(`used (\d+) barriers`)
	smem      = regexp.MustCompile(`(\d+) bytes smem`)
	timeLine  = regexp.MustCompile(`Compile time = ([0-9.]+) ms`)
)

// ParsePtxas reads the output of `nvcc -Xptxas -v` for one architecture. Lines of other kinds (warnings) are passed
// over. It is an error if there is no kernel, or a kernel without its spill or register line: then spills would go
// unseen.
func ParsePtxas(text string) ([]Function, error) {
	p := ptxasReader{at: map[string]int{}, spills: map[string]bool{}, used: map[string]bool{}}
	for line := range strings.Lines(text) {
		p.line(line)
	}
	if p.entry == "" {
		return nil, errors.New("ptxas reported no kernel: is there a __global__ in the source, and -Xptxas -v among the flags?")
	}
	for _, f := range p.functions {
		if !p.spills[f.Name] {
			return nil, fmt.Errorf("ptxas reported no spill figures for %s", f.Name)
		}
		if f.Entry && !p.used[f.Name] {
			return nil, fmt.Errorf("ptxas reported no register count for %s", f.Name)
		}
	}
	return p.functions, nil
}

// ptxasReader is the state between lines: which kernel is being compiled and whose properties come next.
type ptxasReader struct {
	functions    []Function
	at           map[string]int // index in functions by name
	spills, used map[string]bool
	entry, props string
}

func (p *ptxasReader) line(line string) {
	if m := entryLine.FindStringSubmatch(line); m != nil {
		p.entry = m[1]
		p.function(m[1]).Entry = true
		return
	}
	if m := propsLine.FindStringSubmatch(line); m != nil {
		p.props = m[1]
		p.function(m[1])
		return
	}
	if m := stackLine.FindStringSubmatch(line); m != nil && p.props != "" {
		f := p.function(p.props)
		f.Stack, f.SpillStores, f.SpillLoads = number(m[1]), number(m[2]), number(m[3])
		p.spills[p.props] = true
		return
	}
	if p.entry == "" {
		return
	}
	f := p.function(p.entry)
	if m := usedLine.FindStringSubmatch(line); m != nil {
		f.Registers = number(m[1])
		f.Barriers = first(barriers, line)
		f.Shared = first(smem, line)
		p.used[p.entry] = true
	}
	if m := timeLine.FindStringSubmatch(line); m != nil {
		if ms, err := strconv.ParseFloat(m[1], 64); err == nil {
			f.CompileTime = time.Duration(ms * float64(time.Millisecond))
		}
	}
}

// function returns the record of a name, made when it is new.
func (p *ptxasReader) function(name string) *Function {
	i, ok := p.at[name]
	if !ok {
		i = len(p.functions)
		p.at[name] = i
		p.functions = append(p.functions, Function{Name: name})
	}
	return &p.functions[i]
}

// first returns the number that the expression captures in the line, 0 where it does not match.
func first(form *regexp.Regexp, line string) int {
	if m := form.FindStringSubmatch(line); m != nil {
		return number(m[1])
	}
	return 0
}

// number reads digits that a regular expression has matched.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		panic("BUG: nvcc: not a number: " + digits)
	}
	return n
}
