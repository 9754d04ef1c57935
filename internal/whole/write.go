// Package whole writes files whole or not at all.
package whole

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Write writes data to a file that anyone may read, whose directory is made. What is
// there under its name is replaced if it is a regular file, else (a directory, a device)
// left alone: an error. A symbolic link stays one, and what it leads to is written. After
// an error all is as it was, but for directories made. Errors name path.
func Write(path string, data []byte) error {
	target, f, err := beside(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), target)
	}
	if err != nil {
		os.Remove(f.Name())
		return named(path, err)
	}
	return nil
}

// Check is what Write would fail for before it writes: for what takes long to make.
func Check(path string) error {
	_, f, err := beside(path)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return named(path, err)
	}
	return nil
}

// beside finds the file that is meant, makes its directory and a new file in it. Its name
// does not contain the other's, which may be as long as one can be.
func beside(path string) (target string, f *os.File, err error) {
	if target, err = follow(path); err != nil {
		return "", nil, err
	}
	dir, _ := split(target)
	if err = os.MkdirAll(dir, 0o777); err == nil {
		f, err = os.CreateTemp(dir, ".mkgen-*")
	}
	if err != nil {
		return "", nil, named(path, err)
	}
	return target, f, nil
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
