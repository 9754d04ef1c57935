package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// mostLinks is how many links may lead from one to the next, as on Linux.
const mostLinks = 40

// follow is the file that path means: what its links lead to, which need not be there. It
// refuses what is no regular file, and what this program's own output goes to: replaced,
// that would be lost.
func follow(path string) (string, error) {
	refuse := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("write %s: %w", path, fmt.Errorf(format, args...))
	}
	_, name := split(path)
	switch {
	case path == "":
		return "", errors.New("the name of a file to write is empty")
	case name == "" || name == "." || name == "..":
		return refuse("it names a directory, want a file")
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return refuse("it is there and no regular file")
	case err == nil && isOutput(info):
		return refuse("standard output or error goes there, want another file")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", named(path, err)
	}
	target := linked(path)
	if _, name := split(target); name == "" || name == "." || name == ".." {
		return refuse("it leads to %s, want a file", target)
	}
	if there, err := os.Stat(target); info != nil && (err != nil || !os.SameFile(info, there)) {
		return refuse("its link does not say which file it leads to") // one that is open and was removed
	}
	return target, nil
}

// linked is what path leads to, by as many links as there are.
func linked(path string) string {
	for range mostLinks {
		to, err := os.Readlink(path)
		if err != nil { // no link, or nothing there
			break
		}
		if dir, _ := split(path); !filepath.IsAbs(to) {
			to = dir + string(filepath.Separator) + to // not cleaned: dir/.. is not its parent if dir is a link
		}
		path = to
	}
	return path
}

// split is a path's directory, not cleaned, and what is behind its last separator.
func split(path string) (dir, name string) {
	dir, name = filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	return dir, name
}

// isOutput says whether it is where what this program prints goes.
func isOutput(info fs.FileInfo) bool {
	for _, f := range []*os.File{os.Stdout, os.Stderr} {
		if of, err := f.Stat(); err == nil && os.SameFile(info, of) {
			return true
		}
	}
	return false
}

// Same says whether two names are of one file, which need not be there: the same name, or
// links to it, or names of one that is there.
func Same(a, b string) bool {
	ai, aerr := os.Stat(a)
	bi, berr := os.Stat(b)
	if aerr == nil && berr == nil {
		return os.SameFile(ai, bi)
	}
	return aerr != nil && berr != nil && place(a) == place(b)
}

// place is the one name of a file that is not there: absolute, links followed as far as
// there are some.
func place(path string) string {
	if target, err := follow(path); err == nil {
		path = target
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for dir, rest := path, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
	}
}
