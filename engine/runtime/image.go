package runtime

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gofrs/flock"
	"github.com/mkgen/mkgen/megakernel"
)

// Image says where packed weights are kept, so that the next load only reads and copies them. What goes wrong with it
// is never an error of a load: a damaged or truncated file is packed again.
type Image struct {
	Dir    string // made where it is not there
	Source string // a hash of what the tensors come from; one that changes with them
	// Free is how many bytes of the disk an image must leave free; 0 is a twentieth of the disk, 1 GiB at least.
	Free int64
	// Note, if not nil, is told in a line what was not right with an image, or why none is kept.
	Note func(text string)
}

// imageVersion is part of every key. It changes with the bytes that a packer makes of the same tensors.
const imageVersion = "mkgen image 1"

// A file is the jobs' bytes one behind the other, a CRC-32C of each, and the SHA-256 of the key and those.
const imageTail = sha256.Size

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is an image that is not what was written.
var errDamaged = errors.New("it is damaged")

// key is the name of the image of a load: what source, model, formats and layout say. Kernels that differ in SMs, rows
// or how they stream have one image.
func (g *Image) key(l *load) string {
	all := []any{imageVersion, g.Source, l.mk.Config}
	for _, m := range slices.Concat(l.mk.Plan.Layer, l.mk.Plan.Final) {
		all = append(all, m.Name, m.Format, m.Rows, m.K, m.Start, m.TileBytes(), m.Across())
	}
	for _, j := range l.jobs {
		all = append(all, j.buffer, j.offset, j.bytes)
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic("BUG: runtime: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// note tells the user.
func (g *Image) note(format string, args ...any) {
	if g.Note != nil {
		g.Note("image cache: " + fmt.Sprintf(format, args...))
	}
}

// imageFile is an image that is read or written.
type imageFile struct {
	of   *Image
	key  string
	path string // of the whole file
	file *os.File
	lock *flock.Flock // while it is written
	at   []int64      // where each job's bytes are, and where the sums are
	sums []byte

	mu     sync.Mutex
	failed error // of the first write that failed: nothing is kept then
}

// open returns the image of a load, nil where there is none, or one that is not whole.
func (g *Image) open(l *load) *imageFile {
	f := g.place(l)
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		g.note("%v", err)
		return nil
	}
	f.file = file
	tail := make([]byte, len(f.sums)+imageTail)
	info, err := file.Stat()
	if err == nil && info.Size() != f.end()+int64(len(tail)) {
		err = fmt.Errorf("%w: found %d bytes, want %d", errDamaged, info.Size(), f.end()+int64(len(tail)))
	}
	if err == nil {
		_, err = file.ReadAt(tail, f.end())
	}
	copy(f.sums, tail)
	if err == nil && !bytes.Equal(tail[len(f.sums):], f.seal()) {
		err = errDamaged
	}
	if err == nil {
		err = f.spotCheck(l)
	}
	if err != nil {
		f.drop(err)
		return nil
	}
	return f
}

// place lays an image out.
func (g *Image) place(l *load) *imageFile {
	key := g.key(l)
	f := &imageFile{of: g, key: key, path: filepath.Join(g.Dir, key+".image"), sums: make([]byte, 4*len(l.jobs))}
	at := int64(0)
	for _, j := range l.jobs {
		f.at = append(f.at, at)
		at += j.bytes
	}
	f.at = append(f.at, at)
	return f
}

func (f *imageFile) end() int64 { return f.at[len(f.at)-1] }

// seal is the hash at the end of the file.
func (f *imageFile) seal() []byte {
	sum := sha256.Sum256(append([]byte(f.key), f.sums...))
	return sum[:]
}

// drop closes and removes an image that is not right.
func (f *imageFile) drop(why error) {
	f.of.note("%s: %v; the weights are packed again", f.path, why)
	f.file.Close()
	os.Remove(f.path) // what cannot be removed is replaced, or found wrong again
}

// spotCheck packs the first, the middle and the last job again: an image of other weights, or of another packer, though
// its key and its sums are right, must not be run.
func (f *imageFile) spotCheck(l *load) error {
	packer := l.mk.NewPacker(l.t)
	for _, i := range []int{0, len(l.jobs) / 2, len(l.jobs) - 1} {
		n := l.jobs[i].bytes
		want, got := make([]byte, n), make([]byte, n)
		if err := f.read(i, got); err != nil {
			return err
		}
		if err := l.jobs[i].pack(packer, want); err != nil {
			return err
		}
		if !bytes.Equal(want, got) {
			return errors.New("it holds other weights")
		}
	}
	return nil
}

// read fills dst with a job's bytes.
func (f *imageFile) read(i int, dst []byte) error {
	if _, err := f.file.ReadAt(dst, f.at[i]); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if crc32.Checksum(dst, castagnoli) != binary.LittleEndian.Uint32(f.sums[4*i:]) {
		return fmt.Errorf("%w at byte %d", errDamaged, f.at[i])
	}
	return nil
}

// create begins an image beside its place; nil where there is no room, where another process makes it, and where the
// directory cannot be written.
func (g *Image) create(l *load) *imageFile {
	f := g.place(l)
	if err := os.MkdirAll(g.Dir, 0o755); err != nil {
		g.note("%v", err)
		return nil
	}
	need := f.end() + int64(len(f.sums)) + imageTail
	if free, want, known := room(g.Dir, g.Free); known && free-need < want {
		g.note("no image is kept: it takes %s, the disk has %s free, and %s are to stay so", megakernel.FormatBytes(need),
			megakernel.FormatBytes(free), megakernel.FormatBytes(want))
		return nil
	}
	f.lock = flock.New(f.path + ".lock")
	// an error: a file system without locks, where the last image stays
	if ours, err := f.lock.TryLock(); err == nil && !ours {
		f.lock.Close()
		return nil
	}
	left, _ := filepath.Glob(filepath.Join(g.Dir, "."+f.key+"-*")) // of processes that were killed
	for _, path := range left {
		os.Remove(path)
	}
	var err error
	if f.file, err = os.CreateTemp(g.Dir, "."+f.key+"-*"); err != nil {
		g.note("%v", err)
		f.unlock()
		return nil
	}
	return f
}

func (f *imageFile) unlock() {
	f.lock.Close()
	os.Remove(f.lock.Path())
}

// write keeps a job's bytes. Safe for concurrent use.
func (f *imageFile) write(i int, data []byte) {
	_, err := f.file.WriteAt(data, f.at[i])
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = errors.Join(f.failed, err)
	binary.LittleEndian.PutUint32(f.sums[4*i:], crc32.Checksum(data, castagnoli))
}

// finish brings the image to its place, or forgets it after an error.
func (f *imageFile) finish(loaded error) {
	defer f.unlock()
	err := errors.Join(f.failed, loaded)
	if err == nil {
		_, err = f.file.WriteAt(append(bytes.Clone(f.sums), f.seal()...), f.end())
	}
	if err == nil {
		err = errors.Join(f.file.Chmod(0o644), f.file.Sync())
	}
	err = errors.Join(err, f.file.Close())
	if err == nil {
		err = os.Rename(f.file.Name(), f.path)
	}
	if err == nil {
		return
	}
	os.Remove(f.file.Name())
	if loaded == nil {
		f.of.note("no image is kept: %v", err)
	}
}
