package dsl

import (
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

const self = "github.com/mkgen/mkgen/dsl."

// here finds the line of the template that called into this package, and the
// nearest caller of that template in another file.
func here() ir.Pos {
	var pcs [96]uintptr
	n := runtime.Callers(2, pcs[:])
	frames := runtime.CallersFrames(pcs[:n])
	var pos ir.Pos
	var file string
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, self), outside(f.Function):
		case pos.Line == "":
			pos.Line, file = short(f), f.File
		case f.File != file:
			pos.Caller = short(f)
			return pos
		}
		if !more {
			return pos
		}
	}
}

// outside tells the frames that are nobody's source: what runs programs and tests.
func outside(function string) bool {
	return function == "" || strings.HasPrefix(function, "runtime.") || strings.HasPrefix(function, "testing.")
}

// short is "package folder/file.go:line".
func short(f runtime.Frame) string {
	dir, base := path.Split(f.File)
	return path.Join(path.Base(dir), base) + ":" + strconv.Itoa(f.Line)
}
