package megakernel

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mkgen/mkgen/emit"
)

// File is one generated file.
type File = emit.File

// LayoutFile is the machine-readable layout among the generated files. That it
// names Generator and lists a directory's files marks the directory as ours.
const (
	LayoutFile = "layout.json"
	Generator  = "mkgen"
)

// WriteDir makes dir a directory of exactly these files, all or nothing: they
// are written into a new directory beside it, which then takes its name.
// Directories above dir are made as needed. Of what exists only an empty
// directory or one of an earlier WriteDir (see LayoutFile) with no other file in
// it, and none that was edited since, is replaced, its permissions kept; anything else is refused. On an error, and
// when ctx ends before the last step, nothing is left behind and what was there still is.
func WriteDir(ctx context.Context, dir string, files []File) error {
	w := dirWriter{create: func(path string) (io.WriteCloser, error) {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	}}
	return w.write(ctx, dir, files)
}

// dirWriter is WriteDir with the creation of a file left open, for tests.
type dirWriter struct {
	create func(path string) (io.WriteCloser, error)
}

func (w *dirWriter) write(ctx context.Context, name string, files []File) error {
	dir, exists, err := destination(name, files)
	if err == nil {
		err = w.replace(ctx, dir, exists, files)
	}
	var (
		at   *fs.PathError
		link *os.LinkError
	)
	switch { // the place is a passing one: name what was asked for
	case errors.As(err, &at):
		return fmt.Errorf("cannot write %s: %w", name, at.Err)
	case errors.As(err, &link):
		return fmt.Errorf("cannot write %s: %w", name, link.Err)
	}
	return err
}

func (w *dirWriter) replace(ctx context.Context, dir string, exists bool, files []File) (err error) {
	made, err := makeParents(filepath.Dir(dir))
	defer func() {
		if err != nil {
			removeEmpty(made)
		}
	}()
	if err != nil {
		return err
	}
	temp, err := makeTemp(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.file(filepath.Join(temp, f.Name), f.Data); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if exists {
		if err := probe(dir); err != nil {
			return err
		}
		if err := keepMode(temp, dir); err != nil {
			return err
		}
	}
	return takeName(temp, dir, exists)
}

func (w *dirWriter) file(path string, data []byte) error {
	f, err := w.create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// destination is the absolute path behind dir, symbolic links followed, and
// whether a directory that may be replaced is there.
func destination(dir string, files []File) (path string, exists bool, err error) {
	if dir == "" {
		return "", false, errors.New("the output directory's name is empty")
	}
	if path, err = filepath.Abs(dir); err != nil {
		return "", false, err
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, false, nil
	}
	if err != nil {
		return "", false, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			if errors.Is(err, fs.ErrPermission) {
				return "", false, err
			}
			return "", false, fmt.Errorf("%s is a symbolic link that leads nowhere", dir)
		}
		if info, err = os.Stat(path); err != nil {
			return "", false, err
		}
	}
	if !info.IsDir() {
		return "", false, fmt.Errorf("%s is a file, want a directory or nothing there", dir)
	}
	if here, err := os.Getwd(); err == nil && sameDir(here, path) {
		return "", false, fmt.Errorf("%s is the current directory, want a directory for the generated files alone", dir)
	}
	return path, true, replaceable(path, dir, files)
}

func sameDir(a, b string) bool {
	ai, aerr := os.Stat(a)
	bi, berr := os.Stat(b)
	return aerr == nil && berr == nil && os.SameFile(ai, bi)
}

// maxMarker bounds how much of a foreign layout.json is read.
const maxMarker = 16 << 20

// replaceable refuses a directory that holds anything but what WriteDir wrote.
// It is called dir in messages.
func replaceable(path, dir string, files []File) error {
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) == 0 {
		return err
	}
	var marker struct {
		Generator string            `json:"generator"`
		Files     []string          `json:"files"`
		SHA256    map[string]string `json:"sha256"`
	}
	layout := filepath.Join(path, LayoutFile)
	// Opening what is no file, a pipe say, might wait for ever.
	if info, err := os.Stat(layout); err == nil && info.Mode().IsRegular() && info.Size() <= maxMarker {
		text, err := os.ReadFile(layout)
		if err != nil || json.Unmarshal(text, &marker) != nil {
			marker.Generator = ""
		}
	}
	if marker.Generator != Generator {
		return fmt.Errorf("%s is not empty and was not written by %s (no %s of its own in it): choose another directory",
			dir, Generator, LayoutFile)
	}
	for _, e := range entries {
		ours := slices.Contains(marker.Files, e.Name()) ||
			slices.ContainsFunc(files, func(f File) bool { return f.Name == e.Name() })
		if !ours || e.IsDir() {
			return fmt.Errorf("%s holds %q, which %s did not write: move it away or choose another directory", dir, e.Name(),
				Generator)
		}
		if edited(filepath.Join(path, e.Name()), marker.SHA256[e.Name()]) {
			return fmt.Errorf("%s holds %q, which was edited since %s wrote it: move it away or choose another directory", dir,
				e.Name(), Generator)
		}
	}
	return nil
}

// edited reports whether a file has another hash than was noted when it was written; one
// without a note, or that cannot be read, has not.
func edited(path, noted string) bool {
	if noted == "" {
		return false
	}
	data, err := os.ReadFile(path)
	return err == nil && hashOf(data) != noted
}

func hashOf(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// makeParents makes dir and what is missing above it, and lists what it made,
// the deepest last.
func makeParents(dir string) (made []string, err error) {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, d)
	}
	for _, d := range slices.Backward(missing) {
		if err := os.Mkdir(d, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return made, err
		} else if err == nil {
			made = append(made, d)
		}
	}
	return made, nil
}

// removeEmpty takes back makeParents as far as nobody else has used it.
func removeEmpty(made []string) {
	for _, d := range slices.Backward(made) {
		if os.Remove(d) != nil {
			return
		}
	}
}

// makeTemp makes a new directory beside dir, with the permissions that dir
// would have. Its name does not contain dir's, which may be as long as one can be.
func makeTemp(dir string) (string, error) {
	for n := 0; ; n++ {
		temp := filepath.Join(filepath.Dir(dir), fmt.Sprintf(".%s-%d-%d", Generator, os.Getpid(), n))
		err := os.Mkdir(temp, 0o777)
		if err == nil || !errors.Is(err, fs.ErrExist) || n == 100 {
			return temp, err
		}
	}
}

// probe fails where files in dir cannot be made and removed: dir could then be
// moved aside, but not be removed.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, "."+Generator+"-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// keepMode gives temp the permissions of dir, which it replaces: what was closed
// to others stays so.
func keepMode(temp, dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return os.Chmod(temp, info.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky))
}

// takeName gives temp the name dir; a directory there is moved aside first and
// back when that fails.
func takeName(temp, dir string, exists bool) error {
	if !exists {
		return os.Rename(temp, dir)
	}
	old := temp + ".old"
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	if err := os.Rename(temp, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("%s is written, but the one before remains: %w", dir, err)
	}
	return nil
}
