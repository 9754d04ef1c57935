package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Dir makes a directory that fill fills: under a passing name beside it, so that after an error, or a crash, there is
// none of this name. It must not be there yet, or be empty. A symbolic link stays one, and what it leads to is made.
// The files' content should have been synchronised by fill. The directories above it are made. After an error all is as
// it was. Errors of its own name path.
func Dir(path string, fill func(dir string) error) error {
	p, dir, err := besideDir(path)
	if err != nil {
		return err
	}
	if err = fill(dir); err == nil {
		err = p.replace(path, dir)
	}
	if err != nil {
		os.RemoveAll(dir)
		p.undo()
	}
	return err
}

// replace brings dir to its name.
func (p *passing) replace(path, dir string) error {
	err := os.Chmod(dir, 0o755)
	if err == nil {
		if err = os.Remove(p.target); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Rename(dir, p.target)
	}
	if err != nil {
		return named(path, err)
	}
	return nil
}

// CheckDir is what Dir would fail for before it calls fill. It leaves nothing.
func CheckDir(path string) error {
	p, dir, err := besideDir(path)
	if err != nil {
		return err
	}
	err = os.Remove(dir)
	p.undo()
	if err != nil {
		return named(path, err)
	}
	return nil
}

// besideDir makes a directory beside the one that is meant, which it refuses where that could not take its place.
func besideDir(path string) (p *passing, dir string, err error) {
	if path == "" {
		return nil, "", errors.New("the name of a directory to write is empty")
	}
	target, err := filepath.Abs(linked(filepath.Clean(path)))
	if err != nil {
		return nil, "", named(path, err)
	}
	if err := replaceable(path, target); err != nil {
		return nil, "", err
	}
	p = &passing{target: target}
	if err = p.above(); err == nil {
		dir, err = os.MkdirTemp(filepath.Dir(target), ".mkgen-*")
	}
	if err != nil {
		p.undo()
		return nil, "", named(path, err)
	}
	return p, dir, nil
}

// replaceable refuses a target that is there, unless it is an empty directory that another one can replace.
func replaceable(path, target string) error {
	refuse := func(what, want string) error {
		return fmt.Errorf("write %s: it is there and %s, want %s", path, what, want)
	}
	const within = "a new directory, such as one in it"
	entries, err := os.ReadDir(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return named(path, err)
	case len(entries) > 0:
		return refuse("has "+entries[0].Name()+" in it", "an empty directory or none")
	case Same(target, "."):
		return refuse("is the working directory", within)
	}
	// No directory can be moved into itself. Where a file system is mounted there, that is why.
	if err := os.Rename(target, filepath.Join(target, "x")); errors.Is(err, syscall.EXDEV) {
		return refuse("is a mount point", within)
	}
	return nil
}
