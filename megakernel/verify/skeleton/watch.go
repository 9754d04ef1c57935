package skeleton

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/interp"
)

// watch checks the accesses of one launch; it is an interp.Watcher.
type watch struct {
	d       *device
	launch  Launch
	first   int // position of the first step
	steps   int
	streams []stream // by SM
	rings   []ring   // by SM
	shares  [][]share
	cache   *cache
	lines   map[string]interp.Side // where each buffer was copied or stored last
}

func newWatch(d *device, first, steps int) *watch {
	w := &watch{d: d, first: first, steps: steps, launch: Launch{Context: first, Steps: steps},
		shares: sharesOf(d.mk), streams: make([]stream, d.mk.Options.SMs), rings: make([]ring, d.mk.Options.SMs),
		cache: newCache(d, first, steps), lines: map[string]interp.Side{}}
	for sm := range w.streams {
		w.streams[sm].settle(w.shares[sm], steps)
	}
	return w
}

// Copied checks a bulk copy.
func (w *watch) Copied(a interp.Access, dst string, to int64) error {
	w.lines["copy "+a.Buffer] = sideOf("copies", a)
	switch a.Buffer {
	case bufferWeights:
		w.launch.WeightCopies++
		w.launch.WeightBytes += a.Bytes
		if err := w.rings[a.CTA].fill(w.d.mk.Plan, dst, to, a.Bytes, 0); err != nil {
			return fmt.Errorf("SM %d, copy %d of its weights: %w", a.CTA, w.streams[a.CTA].copies, err)
		}
		return w.weights(a)
	case bufferKV:
		w.launch.KVCopies++
		w.launch.KVBytes += a.Bytes
		return w.cached(a, dst, to)
	}
	return fmt.Errorf("a bulk copy of buffer %s, of which none is known", a.Buffer)
}

// Stored checks a store.
func (w *watch) Stored(a interp.Access, _, upper uint64) error {
	if a.Buffer == bufferKV {
		w.lines["store kv"] = sideOf("stores", a)
		w.launch.KVStored += a.Bytes
		return w.cache.stored(a)
	}
	if w.d.carries[a.Buffer] {
		return w.d.packets.store(a, uint32(upper>>32))
	}
	return nil
}

// Tagged checks a wait for an LL packet.
func (w *watch) Tagged(a interp.Access, tag uint32) error {
	w.launch.Packets++
	return w.d.packets.got(a, tag)
}

// end says what is missing after the launch; nil if nothing is.
func (w *watch) end() error {
	for sm := range w.streams {
		if s := &w.streams[sm]; s.step < w.steps {
			return w.missing("copy weights", "SM %d ends with %s", sm, s.where(w.shares[sm]))
		}
	}
	if text := w.cache.unread(); text != "" {
		return w.missing("copy kv", "%s", text)
	}
	if text := w.cache.unwritten(); text != "" {
		return w.missing("store kv", "%s", text)
	}
	return nil
}

// missing is about what no instruction did; it names the one that did such things.
func (w *watch) missing(what, format string, args ...any) error {
	e := &missingError{text: fmt.Sprintf(format, args...)}
	if side, ok := w.lines[what]; ok {
		e.sides = []interp.Side{side}
	}
	return e
}

// missingError says what was not done, and by which line it should have been.
type missingError struct {
	text  string
	sides []interp.Side
}

func (e *missingError) Error() string { return e.text }

func sideOf(what string, a interp.Access) interp.Side {
	return interp.Side{What: what, Thread: fmt.Sprintf("cta %d warp %d lane %d", a.CTA, a.Warp, a.Lane), Op: a.Op,
		Region: a.Region, Pos: a.Pos}
}
