// Package atomicfile writes files whole or not at all.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Write writes data to a file that anyone may read, whose directory is made. What is
// there under its name is replaced if it is a regular file, else (a directory, a device)
// left alone: an error. A symbolic link stays one, and what it leads to is written. After
// an error all is as it was. Errors name path.
func Write(path string, data []byte) error {
	p, err := beside(path)
	if err != nil {
		return err
	}
	_, err = p.file.Write(data)
	if err = errors.Join(err, p.file.Chmod(0o644), p.file.Sync(), p.file.Close()); err == nil {
		err = os.Rename(p.file.Name(), p.target)
	}
	if err != nil {
		os.Remove(p.file.Name())
		p.undo()
		return named(path, err)
	}
	return nil
}

// Check is what Write would fail for before it writes: for what takes long to make. It
// leaves nothing.
func Check(path string) error {
	p, err := beside(path)
	if err != nil {
		return err
	}
	err = errors.Join(p.file.Close(), os.Remove(p.file.Name()))
	p.undo()
	if err != nil {
		return named(path, err)
	}
	return nil
}

// passing is a new file, or directory, that is to become another.
type passing struct {
	target string
	file   *os.File
	made   []string // directories, the deepest last
}

// above makes the directory that target is to be in.
func (p *passing) above() error {
	dir, _ := split(p.target)
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		p.made = append([]string{d}, p.made...)
	}
	return os.MkdirAll(dir, 0o777)
}

// undo removes the directories that were made, as far as nobody else has used them.
func (p *passing) undo() {
	for _, dir := range slices.Backward(p.made) {
		if os.Remove(dir) != nil {
			return
		}
	}
}

// beside finds the file that is meant, makes its directory and a new file in it. Its name
// does not contain the other's, which may be as long as one can be.
func beside(path string) (*passing, error) {
	target, err := follow(path)
	if err != nil {
		return nil, err
	}
	p := &passing{target: target}
	if err = p.above(); err == nil {
		dir, _ := split(target)
		p.file, err = os.CreateTemp(dir, ".mkgen-*")
	}
	if err != nil {
		p.undo()
		return nil, named(path, err)
	}
	return p, nil
}

// named says what was asked for instead of a passing name beside it.
func named(path string, err error) error {
	var (
		at   *fs.PathError
		link *os.LinkError
	)
	switch {
	case errors.As(err, &at):
		err = at.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return fmt.Errorf("write %s: %w", path, err)
}
