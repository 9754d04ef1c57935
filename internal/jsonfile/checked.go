package jsonfile

import (
	"fmt"
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

// Read reads a file into v, a pointer, as Parse does. Errors name the file; one that is not there is fs.ErrNotExist.
func Read(path string, v any, want Kind) error {
	data, err := os.ReadFile(path)
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
