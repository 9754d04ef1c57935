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

// Dir makes a directory that fill fills: under a passing name beside it, so that after an error, or a crash, there is
// none of this name. It must not be there yet, or be empty. The files' content should have been synchronised by fill.
// The directories above it are made, and stay. Errors of its own name path.
func Dir(path string, fill func(dir string) error) error {
	if err := CheckDir(path); err != nil {
		return err
	}
	path = filepath.Clean(path)
	above := filepath.Dir(path)
	if err := os.MkdirAll(above, 0o777); err != nil {
		return named(path, err)
	}
	passing, err := os.MkdirTemp(above, ".mkgen-*")
	if err != nil {
		return named(path, err)
	}
	defer os.RemoveAll(passing) // nothing is there once it is renamed
	if err := fill(passing); err != nil {
		return err
	}
	err = os.Chmod(passing, 0o755)
	if err == nil {
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Rename(passing, path)
	}
	if err != nil {
		return named(path, err)
	}
	return nil
}

// CheckDir refuses what Dir does before it calls fill: a directory that has something in it, and a file.
func CheckDir(path string) error {
	if path == "" {
		return errors.New("the name of a directory to write is empty")
	}
	entries, err := os.ReadDir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return named(path, err)
	case len(entries) > 0:
		return fmt.Errorf("write %s: it is there and has %s in it, want an empty directory or none", path, entries[0].Name())
	}
	return nil
}

// passing is a new file that is to become another.
type passing struct {
	target string
	file   *os.File
	made   []string // directories, the deepest last
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
	dir, _ := split(target)
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		p.made = append([]string{d}, p.made...)
	}
	if err = os.MkdirAll(dir, 0o777); err == nil {
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
