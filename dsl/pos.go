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
	var pcs [48]uintptr
	n := runtime.Callers(2, pcs[:])
	frames := runtime.CallersFrames(pcs[:n])
	var pos ir.Pos
	var file string
	for {
		f, more := frames.Next()
		switch {
		case strings.HasPrefix(f.Function, self), f.Function == "", strings.HasPrefix(f.Function, "runtime."):
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

// short is "package folder/file.go:line".
func short(f runtime.Frame) string {
	dir, base := path.Split(f.File)
	return path.Join(path.Base(dir), base) + ":" + strconv.Itoa(f.Line)
}
