package dsl

import (
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/mkgen/mkgen/dsl/ir"
)

const self = "github.com/mkgen/mkgen/dsl."

// frame is a resolved program counter; file is empty for frames that are not
// a template's or its caller's.
type frame struct {
	file  string
	short string // package folder/file.go:line
	fn    string
}

// nearFrames is how many return addresses tell one stack from another.
const nearFrames = 32

// resolved keeps the innermost frames of every stack that here met, and every program counter's frame. They are of the
// program's code, which is why all kernels share them: a kernel of thousands of instructions has few different stacks,
// and the next has mostly the same.
var resolved = struct {
	sync.RWMutex
	near   map[[nearFrames]uintptr][]frame
	frames map[uintptr]frame
}{near: map[[nearFrames]uintptr][]frame{}, frames: map[uintptr]frame{}}

// here finds the line of the template that called into this package, and the
// nearest caller of that template in another file. Every instruction asks, and unwinding
// a stack takes longer than all else that an instruction needs.
func (k *Kernel) here() ir.Pos {
	var stack [nearFrames]uintptr
	callers(&stack)
	resolved.RLock()
	near := resolved.near[stack]
	resolved.RUnlock()
	if pos := k.place(near); pos.Caller != "" {
		return pos
	}
	var pcs [96]uintptr
	all := resolve(pcs[:runtime.Callers(2, pcs[:])])
	if near == nil && stack[0] != 0 {
		resolved.Lock()
		resolved.near[stack] = all[:min(len(all), nearFrames-1)] // the first return address is in here
		resolved.Unlock()
	}
	return k.place(all)
}

// place is the innermost template of frames, and its nearest caller in another file.
func (k *Kernel) place(frames []frame) (pos ir.Pos) {
	var file string
	for i := range frames {
		f := &frames[i]
		switch {
		case f.file == "" || k.helpers[f.fn]:
		case pos.Line == "":
			pos.Line, file = f.short, f.file
		case f.file != file:
			pos.Caller = f.short
			return pos
		}
	}
	return pos
}

// template is the function that called into this package, as "product/held.go, GEMV.Hold": unlike a line it stays where
// it is when other code is edited.
func (k *Kernel) template() string {
	var pcs [96]uintptr
	for _, f := range resolve(pcs[:runtime.Callers(2, pcs[:])]) {
		if f.file != "" && !k.helpers[f.fn] {
			file, _, _ := strings.Cut(f.short, ":")
			return file + ", " + function(f.fn)
		}
	}
	return ""
}

// function is a function's name without its package, "GEMV.Hold" of "example.com/tasks.(*GEMV).Hold.func1.2".
func function(name string) string {
	_, name, _ = strings.Cut(name[strings.LastIndex(name, "/")+1:], ".")
	var kept []string
	for part := range strings.SplitSeq(name, ".") {
		part = strings.Trim(part, "(*)")
		if numbered := strings.TrimLeft(strings.TrimPrefix(part, "func"), "0123456789"); numbered != "" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ".")
}

// Helper says that the calling function only helps templates: what it emits is
// said to come from its caller's line, as with testing.T.Helper.
func (k *Kernel) Helper() {
	pc, _, _, ok := runtime.Caller(1)
	if ok {
		k.helpers[runtime.FuncForPC(pc).Name()] = true
	}
}

// resolve looks program counters up. runtime.Callers gives one for every
// frame, inlined ones included.
func resolve(pcs []uintptr) []frame {
	resolved.Lock()
	defer resolved.Unlock()
	out := make([]frame, len(pcs))
	for i, pc := range pcs {
		f, ok := resolved.frames[pc]
		if !ok {
			f = lookUp(pc)
			resolved.frames[pc] = f
		}
		out[i] = f
	}
	return out
}

func lookUp(pc uintptr) frame {
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	if f.Function == "" {
		return frame{}
	}
	for _, p := range []string{self, "runtime.", "testing."} { // this package, and what runs programs and tests
		if strings.HasPrefix(f.Function, p) {
			return frame{}
		}
	}
	dir, base := path.Split(f.File)
	return frame{fn: f.Function, file: f.File, short: path.Join(path.Base(dir), base) + ":" + strconv.Itoa(f.Line)}
}
