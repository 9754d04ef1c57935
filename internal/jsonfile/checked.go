package jsonfile

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Checked is a pointer to what a file holds.
type Checked[T any] interface {
	*T
	Check() error // what is wrong with it
}

// ParseChecked reads a T as Parse does. What its Check finds is an error, too.
func ParseChecked[T any, P Checked[T]](data []byte, want Kind) (P, error) {
	v := P(new(T))
	if err := Parse(data, v, want); err != nil {
		return nil, err
	}
	if err := v.Check(); err != nil {
		return nil, err
	}
	return v, nil
}

// MaxFileBytes is the most that ReadFile takes; files of results have less than a hundredth of it.
const MaxFileBytes = 64 << 20

// ReadFile returns what a file holds. More than MaxFileBytes are an error, and are not read.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err == nil && len(data) > MaxFileBytes {
		err = fmt.Errorf("%s: it has more than %d bytes, want at most that many", path, MaxFileBytes)
	}
	return data, errors.Join(err, f.Close())
}

// Read reads a file into v, a pointer, as Parse does. Errors name the file; one that is not there is fs.ErrNotExist.
func Read(path string, v any, want Kind) error {
	data, err := ReadFile(path)
	if err != nil {
		return err
	}
	if err := Parse(data, v, want); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// ReadChecked reads a file as Read does. What its Check finds is an error, too.
func ReadChecked[T any, P Checked[T]](path string, want Kind) (P, error) {
	v := P(new(T))
	if err := Read(path, v, want); err != nil {
		return nil, err
	}
	if err := v.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}
