package checkpoint

import (
	"fmt"
	"os"
	"runtime/debug"
	"unsafe"
)

// read runs f, which reads t's file, while Close waits. A page that cannot be
// delivered (the file was truncated after Open, its device failed) raises SIGBUS;
// here that is an error, and anywhere else it stays the crash that it should be.
func (c *Checkpoint) read(t *tensor, f func() error) (err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return ErrClosed
	}
	return t.file.guard(t.name, f)
}

// guard runs f and turns a fault inside the mapping into an error. SetPanicOnFault
// concerns this goroutine only.
func (f *file) guard(tensor string, run func() error) (err error) {
	defer f.caught(tensor, &err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return run()
}

// caught is deferred by guard: it recovers from faults in f's mapping, and from
// nothing else.
func (f *file) caught(tensor string, err *error) {
	r := recover()
	if r == nil {
		return
	}
	fault, ok := r.(interface{ Addr() uintptr })
	if !ok {
		panic(r)
	}
	offset := f.offset(fault.Addr())
	if offset < 0 {
		panic(r)
	}
	*err = f.lost(tensor, offset)
}

// offset is where in f an address is, -1 outside its mapping.
func (f *file) offset(addr uintptr) int64 {
	offset := addr - uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
	if offset >= uintptr(len(f.data)) {
		return -1
	}
	return int64(offset)
}

// lost is the error for a page at offset that cannot be read.
func (f *file) lost(tensor string, offset int64) error {
	return &Problem{File: f.name, Tensor: tensor, Found: f.nowHolds(offset),
		Want: bytesOf(len(f.data)) + ", as when it was opened", Why: "a checkpoint must not change while it is read"}
}

// nowHolds describes f after a fault at offset.
func (f *file) nowHolds(offset int64) string {
	if info, err := os.Stat(f.path); err == nil && info.Size() < int64(len(f.data)) {
		return bytesOf(info.Size())
	}
	return fmt.Sprintf("no readable page at byte %d", offset)
}
