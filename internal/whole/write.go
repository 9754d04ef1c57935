// Package whole writes files whole or not at all.
package whole

import (
	"errors"
	"os"
	"path/filepath"
)

// Write writes data to a file that anyone may read, whose directory is made. What is
// there under its name is replaced; after an error it is as it was, and nothing is left
// beside it.
func Write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
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
