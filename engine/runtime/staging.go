package runtime

import "sync"

// Stager is a Device to which large copies run beside other work. Stage makes
// memory of n bytes (at least 1) to copy from. It may be called from several
// goroutines at a time, and so may the methods of different Stagings.
type Stager interface {
	Stage(n int) (Staging, error)
}

// Staging is memory of the host that a device copies from. Its methods are not
// safe for concurrent use.
type Staging interface {
	// Bytes is the memory. It must not be touched between Write and Wait.
	Bytes() []byte
	// Write begins a copy of the first n bytes to the buffer called name, from byte offset on.
	Write(name string, offset int64, n int) error
	// Wait returns when the copies begun are done, or at once when there are none.
	Wait() error
	// Free waits and gives the memory back; a second Free does nothing.
	Free() error
}

// stager is dev, or for devices that copy while the caller waits a Stager that
// does so for one goroutine at a time.
func stager(dev Device) Stager {
	if s, ok := dev.(Stager); ok {
		return s
	}
	return &plainStager{dev: dev}
}

type plainStager struct {
	mu  sync.Mutex // held during Write
	dev Device
}

func (s *plainStager) Stage(n int) (Staging, error) { return &plainStaging{s, make([]byte, n)}, nil }

type plainStaging struct {
	s     *plainStager
	bytes []byte
}

func (p *plainStaging) Bytes() []byte { return p.bytes }

func (p *plainStaging) Write(name string, offset int64, n int) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.s.dev.Write(name, offset, p.bytes[:n])
}

func (p *plainStaging) Wait() error { return nil }
func (p *plainStaging) Free() error { return nil }
