package runtime

import (
	"bytes"
	"slices"
	"unsafe"
)

// mirror is a buffer of words that the host fills, and what the device has of it.
type mirror struct {
	name      string
	want, has []uint32
	// used is how many words changed looks at: those behind are as the device has them. A launch finds the host's caches
	// cold, and page tables are long.
	used int
}

func newMirror(name string, n int) mirror {
	return mirror{name: name, want: make([]uint32, n), has: make([]uint32, n), used: n}
}

// encode lets f write the words that the device is to have.
func (m *mirror) encode(f func(dst []uint32)) { f(m.want) }

// all writes the whole buffer.
func (m *mirror) all(dev Device) error {
	copy(m.has, m.want)
	return dev.Write(m.name, 0, words(m.has))
}

// mirrorBlock is how many words changed compares at a time: page tables of long sequences have thousands.
const mirrorBlock = 256

// changed writes from the first word that the device has otherwise to the last.
func (m *mirror) changed(dev Device) error {
	from, to := 0, m.used
	for from+mirrorBlock <= to && m.same(from, from+mirrorBlock) {
		from += mirrorBlock
	}
	for to-mirrorBlock >= from && m.same(to-mirrorBlock, to) {
		to -= mirrorBlock
	}
	for from < to && m.want[from] == m.has[from] {
		from++
	}
	for to > from && m.want[to-1] == m.has[to-1] {
		to--
	}
	if from == to {
		return nil
	}
	copy(m.has[from:to], m.want[from:to])
	return writeAhead(dev, m.name, 4*int64(from), words(m.has[from:to]))
}

// same reports whether the device has words from to end as they are wanted.
func (m *mirror) same(from, end int) bool {
	return bytes.Equal(words(m.want[from:end]), words(m.has[from:end]))
}

// writeAhead writes what the next launch finds.
func writeAhead(dev Device, name string, offset int64, raw []byte) error {
	if d, ok := dev.(aheadWriter); ok {
		return d.WriteAhead(name, offset, raw)
	}
	return dev.Write(name, offset, raw)
}

// aheadWriter is a device that copies while the host goes on: what is written so is
// there when the next launch begins.
type aheadWriter interface {
	WriteAhead(name string, offset int64, src []byte) error
}

// aheadKeeper is an aheadWriter that copies from memory of its own without another copy: memory that it gives must not
// change from WriteAhead on until the next launch has begun. It is the device's, and goes with it.
type aheadKeeper interface {
	Keep(bytes int) ([]byte, error)
}

// keep is memory of n words for what is written ahead, the device's own where it has such.
func keep(dev Device, n int) ([]uint32, error) {
	d, ok := dev.(aheadKeeper)
	if !ok || !littleEndian || n == 0 {
		return make([]uint32, n), nil
	}
	raw, err := d.Keep(4 * n)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(raw))), n), nil
}

// aheadReader is a device that copies while the host goes on: to what a buffer holds before the next launch begins.
type aheadReader interface {
	// ReadAhead begins to read n bytes; wait returns them, from any goroutine. They stay until it is called again.
	ReadAhead(name string, offset int64, n int) (wait func() ([]byte, error), err error)
}

// readAhead begins to read n bytes of what the last launch has left; memory has room for them, where the device
// needs that.
func readAhead(dev Device, name string, offset int64, n int, memory *[]byte) (wait func() ([]byte, error), err error) {
	if d, ok := dev.(aheadReader); ok {
		return d.ReadAhead(name, offset, n)
	}
	*memory = slices.Grow((*memory)[:0], n)[:n]
	raw := *memory
	err = dev.Read(name, offset, raw)
	return func() ([]byte, error) { return raw, nil }, err
}
