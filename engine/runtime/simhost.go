package runtime

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// simHost is the host beside a kernel on the executor: words that the kernel
// stored for it, and words that it wants to write at its next turn.
type simHost struct {
	patience time.Duration
	stuck    atomic.Bool // no warp can go on, and the kernel waits for the host
	left     atomic.Bool // the host has done all it can: a kernel that is stuck now is a fault
	claim    int         // the turn at which to claim so, whatever is true; 0: none
	turns    int         // of this launch
	late     bool        // pokes come when the kernel is stuck only

	mu    sync.Mutex
	words map[string][]uint32
	pokes []poke
	poked chan struct{} // has something when pokes has
}

type poke struct {
	name  string
	i     int
	value uint32
}

func newSimHost() *simHost {
	return &simHost{words: map[string][]uint32{}, poked: make(chan struct{}, 1)}
}

// load takes over what a buffer holds before a launch.
func (h *simHost) load(name string, raw []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.words[name][:0]
	for ; len(raw) >= 4; raw = raw[4:] {
		w = append(w, binary.LittleEndian.Uint32(raw))
	}
	h.words[name] = w
}

// Stored keeps what the kernel stored.
func (h *simHost) Stored(name string, i int64, value uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.words[name]; i < int64(len(w)) {
		w[i] = value
	}
}

// Turn hands the pokes over, and waits for one when the kernel is stuck.
func (h *simHost) Turn(stuck bool, set func(string, int64, uint32)) {
	if h.turns++; h.turns == h.claim {
		stuck = true
	}
	if stuck && h.patience > 0 && !h.left.Load() {
		h.stuck.Store(true)
		h.await(time.After(h.patience))
		h.stuck.Store(false)
	}
	if h.late && !stuck {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pokes {
		set(p.name, int64(p.i), p.value)
	}
	h.pokes = h.pokes[:0]
}

// await returns when there are pokes, or at the latest when late says so.
func (h *simHost) await(late <-chan time.Time) {
	for {
		h.mu.Lock()
		n := len(h.pokes)
		h.mu.Unlock()
		if n > 0 || h.left.Load() {
			return
		}
		select {
		case <-h.poked: // perhaps for pokes of an earlier turn
		case <-late:
			return
		}
	}
}

// hangs reports whether the kernel is stuck and nothing is on its way to it.
func (h *simHost) hangs() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stuck.Load() && len(h.pokes) == 0
}

// forget forgets what came too late.
func (h *simHost) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pokes = h.pokes[:0]
}

// end is the end of a launch.
func (h *simHost) end() {
	h.forget()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns, h.claim = 0, 0
	h.stuck.Store(false)
	h.left.Store(false)
	select {
	case <-h.poked:
	default:
	}
}

func (h *simHost) peek(name string, i int) (uint32, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.words[name]
	if i < 0 || i >= len(w) {
		return 0, fmt.Errorf("word %d of buffer %s, which has %d for the host to read", i, name, len(w))
	}
	return w[i], nil
}

func (h *simHost) poke(name string, i int, values []uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for j, value := range values {
		h.pokes = append(h.pokes, poke{name, i + j, value})
	}
	h.stuck.Store(false)
	select {
	case h.poked <- struct{}{}:
	default:
	}
}

// leave ends the waiting of a kernel that is stuck.
func (h *simHost) leave() {
	h.left.Store(true)
	select {
	case h.poked <- struct{}{}:
	default:
	}
}
