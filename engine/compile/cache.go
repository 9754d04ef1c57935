package compile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/mkgen/mkgen/internal/nvcc"
)

// format is part of every key: entries of another form are never found.
const format = "mkgen cubin 2"

// record is an entry's .json. Sum is a hash over key, figures and cubin.
type record struct {
	Key     string          `json:"key"` // for readers, as the name of the kernel that was compiled first
	Name    string          `json:"name"`
	Figures json.RawMessage `json:"figures"`
	Sum     string          `json:"sum"`
}

// hash is SHA-256 over parts with their lengths, in hexadecimal.
func hash(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(p))) // a hash takes everything
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// key is the entry's name.
func (j *job) key() string {
	parts := [][]byte{[]byte(format), []byte(j.target.Arch), j.src.Text}
	for _, s := range j.with.identity(j.target, j.extra) {
		parts = append(parts, []byte(s))
	}
	return hash(parts...)
}

// folder is the cache's folder, made when it is not there.
func folder(dir string) (string, error) {
	if dir == "" {
		above, err := nvcc.CacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(above, "cubin")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// cached takes the kernel from the cache, or compiles and stores it. What is wrong with the cache is never an error,
// only a note.
func (j *job) cached(ctx context.Context, dir string) (*Result, error) {
	dir, err := folder(dir)
	if err != nil {
		return j.uncached(ctx, fmt.Sprintf("the cache is not used: %v", err))
	}
	key := j.key()
	r, damage := load(dir, key)
	if r != nil {
		if !j.heldEnough(r) {
			if err = j.hold(ctx, r); err == nil && r.Machine != nil {
				_, _ = store(dir, key, j.src.Name, r) // so that it is held once; else next time
			}
		}
		return r, err
	}
	lock := flock.New(filepath.Join(dir, key+".lock"))
	defer lock.Close()
	if _, err := lock.TryLockContext(ctx, 20*time.Millisecond); ctx.Err() != nil {
		return nil, ctx.Err()
		// a file system without locks: more processes than one may compile, and the last one's entry stays
	} else if err != nil {
		damage = errors.Join(damage, err)
	}
	if r, _ := load(dir, key); r != nil { // another one was faster
		return r, nil
	}
	sweep(dir, key)
	if r, err = j.compile(ctx); err != nil {
		return nil, err
	}
	if r.Path, err = store(dir, key, j.src.Name, r); err != nil {
		r.Note = fmt.Sprintf("compiled, but not kept in the cache: %v", err)
	} else if damage != nil {
		r.Note = fmt.Sprintf("compiled again: %v", damage)
	}
	return r, nil
}

// uncached compiles with a note.
func (j *job) uncached(ctx context.Context, note string) (*Result, error) {
	r, err := j.compile(ctx)
	if err != nil {
		return nil, err
	}
	r.Note = note
	return r, nil
}

// load reads an entry. An entry that is not there is neither a result nor an error; a damaged one is an error that says
// how.
func load(dir, key string) (*Result, error) {
	path := filepath.Join(dir, key)
	text, err := os.ReadFile(path + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cubin, err := os.ReadFile(path + ".cubin")
	if err != nil {
		return nil, fmt.Errorf("the cache's entry has no cubin: %w", err)
	}
	var rec record
	if err := json.Unmarshal(text, &rec); err != nil {
		return nil, fmt.Errorf("%s.json of the cache is damaged: %w", key, err)
	}
	if rec.Sum != hash([]byte(key), rec.Figures, cubin) {
		return nil, fmt.Errorf("%s of the cache is damaged: it does not have its hash", key)
	}
	r := &Result{Cubin: cubin, Cached: true, Path: path + ".cubin"}
	if err := json.Unmarshal(rec.Figures, r); err != nil {
		return nil, fmt.Errorf("%s.json of the cache is damaged: %w", key, err)
	}
	return r, nil
}

// sweep removes what a process that was killed while it stored this entry left beside it. The caller has the entry's
// lock.
func sweep(dir, key string) {
	// a folder with *, ? or [ in its name may hide some: they only take room
	left, _ := filepath.Glob(filepath.Join(dir, "."+key+".*-*"))
	for _, path := range left {
		os.Remove(path) // as above
	}
}

// store writes an entry, the cubin first: a .json without its cubin is not a state that a crash can leave. It returns
// the cubin's path.
func store(dir, key, name string, r *Result) (string, error) {
	figures, err := json.Marshal(r)
	if err != nil {
		panic("BUG: compile: " + err.Error())
	}
	text, err := json.Marshal(record{Key: key, Name: name, Figures: figures, Sum: hash([]byte(key), figures, r.Cubin)})
	if err != nil {
		panic("BUG: compile: " + err.Error())
	}
	path := filepath.Join(dir, key)
	if err := writeFile(path+".cubin", r.Cubin); err != nil {
		return "", err
	}
	return path + ".cubin", writeFile(path+".json", append(text, '\n'))
}

// writeFile writes a file whole or not at all: beside its place first, renamed when it is complete and on disk. The
// mode is 0644. Errors name the file itself.
func writeFile(path string, data []byte) error {
	err := writeBeside(path, data)
	var at *fs.PathError
	var link *os.LinkError
	if errors.As(err, &at) {
		err = at.Err
	} else if errors.As(err, &link) {
		err = link.Err
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func writeBeside(path string, data []byte) error {
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
