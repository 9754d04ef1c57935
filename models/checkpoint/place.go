package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/edsrzf/mmap-go"
	"github.com/mkgen/mkgen/models"
)

// place is where a checkpoint's files lie: in a directory, whose weights are mapped, or at the root of a file system,
// whose weights are read into memory.
type place struct {
	dir  string
	fsys fs.FS // nil for a directory
	how  models.Reading
}

func (p place) open(name string) (fs.File, error) {
	if p.fsys != nil {
		return p.fsys.Open(name)
	}
	return os.Open(filepath.Join(p.dir, name))
}

func (p place) stat(name string) (fs.FileInfo, error) {
	if p.fsys != nil {
		return fs.Stat(p.fsys, name)
	}
	return os.Stat(filepath.Join(p.dir, name))
}

// config reads config.json.
func (p place) config() (models.Config, error) {
	if p.fsys == nil {
		return p.how.ParseFile(filepath.Join(p.dir, ConfigFile))
	}
	f, err := p.fsys.Open(ConfigFile)
	if err != nil {
		return models.Config{}, err
	}
	c, err := p.how.Parse(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return models.Config{}, fmt.Errorf("%s: %w", ConfigFile, err)
	}
	return c, nil
}

// text reads a file of JSON; one that is not there is an error that is fs.ErrNotExist.
func (p place) text(name string) ([]byte, error) {
	f, err := p.open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxHeaderBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(text) > MaxHeaderBytes {
		return nil, &Problem{File: name, Found: "more than " + bytesOf(MaxHeaderBytes), Want: "at most that many"}
	}
	return text, nil
}

// weights opens one safetensors file.
func (p place) weights(name string) (*file, error) {
	info, err := p.stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &Problem{File: name, Found: "a file of mode " + info.Mode().String(), Want: "a regular file"}
	}
	if p.fsys == nil {
		return mapFile(name, filepath.Join(p.dir, name))
	}
	data, err := fs.ReadFile(p.fsys, name)
	if err != nil {
		return nil, err
	}
	return &file{name: name, data: data}, nil
}

func mapFile(name, path string) (f *file, err error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	info, err := opened.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < prefixBytes || int64(int(info.Size())) != info.Size() {
		return nil, &Problem{File: name, Found: bytesOf(info.Size()),
			Want: "a safetensors file of 8 bytes or more, which fits the address space"}
	}
	data, err := mmap.MapRegion(opened, int(info.Size()), mmap.RDONLY, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %s: %w", name, bytesOf(info.Size()), err)
	}
	return &file{name: name, path: path, data: data, mapped: true}, nil
}
