package interp

import (
	"fmt"
	"slices"
	"sort"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Memory is the global memory of a kernel's launches: buffers bound by name.
// It persists between runs; the end of a run orders everything before the next
// run, as a kernel boundary does, unless that is Dependent (Options). It is not safe for concurrent runs.
type Memory struct {
	bufs  map[string]*binding
	prior *unsettled // what a dependent launch must wait for; nil: nothing
	steps int64      // of all launches that have ended: where the next one's globaltimer begins
}

type binding struct {
	data  []byte
	valid []uint64 // one bit a byte; nil: every byte is initialised
}

// NewMemory is a memory without buffers.
func NewMemory() *Memory { return &Memory{bufs: map[string]*binding{}} }

// Bind gives the global buffer called name its storage, which runs read and
// write in place. All of it counts as initialised. Binding a name again
// replaces it.
func (m *Memory) Bind(name string, data []byte) { m.bufs[name] = &binding{data: data} }

// Clone is a memory of the same contents that shares nothing with this one.
func (m *Memory) Clone() *Memory {
	c := NewMemory()
	for name, b := range m.bufs {
		c.bufs[name] = &binding{slices.Clone(b.data), slices.Clone(b.valid)}
	}
	c.steps = m.steps
	return c
}

// Share binds a buffer that is bound in another memory: both then have the same storage, and
// know the same bytes as initialised. It reports whether from has it.
func (m *Memory) Share(name string, from *Memory) bool {
	b, ok := from.bufs[name]
	if ok {
		m.bufs[name] = b
	}
	return ok
}

// MarkUninit makes every byte of a bound buffer uninitialised: reading one
// before it is written is an error. It reports whether name is bound.
func (m *Memory) MarkUninit(name string) bool {
	b, ok := m.bufs[name]
	if ok {
		b.valid = make([]uint64, (len(b.data)+63)/64)
	}
	return ok
}

// MarkInit makes bytes offset … offset+n−1 of a bound buffer initialised, as
// after the host has written them. It reports whether name is bound.
func (m *Memory) MarkInit(name string, offset, n int64) bool {
	b, ok := m.bufs[name]
	if !ok || b.valid == nil {
		return ok
	}
	for i := offset; i < offset+n; {
		if i&63 == 0 && i+64 <= offset+n {
			b.valid[i>>6] = ^uint64(0)
			i += 64
			continue
		}
		b.valid[i>>6] |= 1 << (i & 63)
		i++
	}
	return true
}

// Bytes is the storage of a bound buffer, nil when there is none.
func (m *Memory) Bytes(name string) []byte {
	if b, ok := m.bufs[name]; ok {
		return b.data
	}
	return nil
}

// Names lists the bound buffers in alphabetical order.
func (m *Memory) Names() []string {
	var ns []string
	for n := range m.bufs {
		ns = append(ns, n)
	}
	sort.Strings(ns)
	return ns
}

// region is one root buffer during a run: a global buffer, or one CTA's copy of
// a shared one.
type region struct {
	info   *rootInfo
	cta    int32 // −1 for global memory
	data   []byte
	valid  []uint64 // one bit a byte; nil: all initialised
	shadow []cell   // one a granule; nil: not tracked
	locs   []*loc   // one a granule; nil: no strong access
	sets   []accSet
	free   []int32
}

func (rg *region) isValid(off, n int64) bool {
	if b := off & 63; b+n <= 64 && n < 64 { // as all but copies are
		return rg.valid[off>>6]>>b&(1<<n-1) == 1<<n-1
	}
	for n > 0 {
		k := min(n, 64-off&63)
		if ^rg.valid[off>>6]>>(off&63)<<(64-k) != 0 {
			return false
		}
		off, n = off+k, n-k
	}
	return true
}

func (rg *region) setValid(off, n int64) {
	for n > 0 {
		k := min(n, 64-off&63)
		mask := ^uint64(0)
		if k < 64 {
			mask = 1<<k - 1
		}
		rg.valid[off>>6] |= mask << (off & 63)
		off, n = off+k, n-k
	}
}

// newRegion makes the run-time state of a root buffer.
func newRegion(info *rootInfo, cta int32, data []byte, races, overlaps bool) *region {
	rg := &region{info: info, cta: cta, data: data}
	grans := (len(data) + 1<<info.gran - 1) >> info.gran
	if races && (cta >= 0 || info.written || overlaps && !info.buf.ReadOnly) {
		rg.shadow = make([]cell, grans)
	}
	if info.strong {
		rg.locs = make([]*loc, grans)
	}
	return rg
}

// bindGlobals makes a region of every global root buffer.
func (m *machine) bindGlobals(mem *Memory) error {
	for i := range m.p.roots {
		info := &m.p.roots[i]
		if info.buf.Space != ir.Global {
			continue
		}
		b, ok := mem.bufs[info.buf.Name]
		if !ok && info.buf.Map != nil {
			b, ok = &binding{data: make([]byte, info.size)}, true // a run needs the description only
		}
		if !ok {
			return fmt.Errorf("kernel %s: global buffer %s is not bound; bound are %v", m.p.kernel.Name, info.buf, mem.Names())
		}
		if info.size != 0 && int64(len(b.data)) != info.size {
			return fmt.Errorf("kernel %s: global buffer %s is bound to %d bytes, want %d", m.p.kernel.Name, info.buf,
				len(b.data), info.size)
		}
		rg := newRegion(info, -1, b.data, m.o.races(), m.p.overlaps)
		rg.valid = b.valid
		m.global[i] = rg
	}
	return nil
}
