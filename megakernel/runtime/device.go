package runtime

// Device runs one kernel and owns its memory. Buffers are named as in the
// kernel; a device binds every global buffer of the kernel exactly once. Not
// safe for concurrent use.
type Device interface {
	// Alloc reserves bytes (positive) for the buffer called name, uninitialised.
	Alloc(name string, bytes int64) error
	// Write copies src to the buffer from byte offset on.
	Write(name string, offset int64, src []byte) error
	// Zero clears a whole buffer.
	Zero(name string) error
	// Read copies the buffer from byte offset on to dst.
	Read(name string, offset int64, dst []byte) error
	// Launch runs the kernel once with the scalars of the params block, by
	// name, and waits for it.
	Launch(scalars map[string]uint64) error
	// Close releases everything; a second Close does nothing.
	Close() error
}
