package dsl

import (
	"path"
	"runtime"
	"strconv"
	"strings"

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

// here finds the line of the template that called into this package, and the
// nearest caller of that template in another file. Every instruction asks, a stack costs what
// is unwound of it, and the answer mostly lies near its top: the whole is for where it does not.
func (k *Kernel) here() ir.Pos {
	var pcs [96]uintptr
	if pos := k.place(pcs[:runtime.Callers(2, pcs[:nearFrames])]); pos.Caller != "" {
		return pos
	}
	return k.place(pcs[:runtime.Callers(2, pcs[:])])
}

// nearFrames is how many frames here looks at before it unwinds the whole stack.
const nearFrames = 12

// place is the innermost template on a stack, and its nearest caller in another file.
func (k *Kernel) place(pcs []uintptr) (pos ir.Pos) {
	var file string
	for _, pc := range pcs {
		f, ok := k.frames[pc]
		if !ok {
			f = resolve(pc)
			k.frames[pc] = f
		}
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

// template is the function that called into this package, as "tasks/held.go, GEMV.Hold": unlike a line it stays where
// it is when other code is edited.
func (k *Kernel) template() string {
	var pcs [96]uintptr
	for _, pc := range pcs[:runtime.Callers(2, pcs[:])] {
		if f := resolve(pc); f.file != "" && !k.helpers[f.fn] {
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

// resolve looks a program counter up. runtime.Callers gives one for every
// frame, inlined ones included.
func resolve(pc uintptr) frame {
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
