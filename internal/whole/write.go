// Package whole writes files whole or not at all.
package whole

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write writes data to a file that anyone may read, whose directory is made. What is
// there under its name is replaced if it is a regular file, else (a directory, a device)
// left alone: an error. After an error all is as it was, but for directories made.
func Write(path string, data []byte) error {
	f, err := beside(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Check is what Write would fail for before it writes: for what takes long to make.
func Check(path string) error {
	f, err := beside(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// beside makes the file's directory and a new file in it.
func beside(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("write %s: it is there and no regular file", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	return os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
}
