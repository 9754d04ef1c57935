//go:build cuda

package runtime

import "github.com/mkgen/mkgen/engine/runtime/cuda"

// aheadBytes is how much WriteAhead has under way at most.
const aheadBytes = 4 << 20

// ahead is pinned memory from which copies are made in the stream of the launches.
type ahead struct {
	host    *cuda.Host
	used    int
	started int // used when the last launch began: those copies are done when it has ended
}

// WriteAhead is Write that does not wait: the bytes are on the device when the next
// launch begins, since its stream copies them. src may be used again at once.
func (g *GPU) WriteAhead(name string, offset int64, src []byte) error {
	if raw, err := g.span(name, offset, len(src)); raw != nil || err != nil {
		copy(raw, src)
		return err
	}
	m, err := g.buffer(name)
	if err != nil {
		return err
	}
	if g.ahead.host == nil {
		if g.ahead.host, err = g.dev.AllocHost(aheadBytes); err != nil {
			return err
		}
	}
	for len(src) > 0 {
		if g.ahead.used == aheadBytes {
			if err := g.stream.Sync(); err != nil {
				return err
			}
			g.ahead.used = 0
		}
		n := copy(g.ahead.host.Bytes()[g.ahead.used:], src)
		if err := g.stream.CopyIn(m, offset, g.ahead.host, int64(g.ahead.used), int64(n)); err != nil {
			return err
		}
		src, offset = src[n:], offset+int64(n)
		g.ahead.used += (n + 15) / 16 * 16
	}
	return nil
}

// begun notes that a launch begins behind the copies so far.
func (a *ahead) begun() { a.started = a.used }

// ended frees the memory when nothing was written since the launch began.
func (a *ahead) ended() {
	if a.used == a.started {
		a.used, a.started = 0, 0
	}
}
