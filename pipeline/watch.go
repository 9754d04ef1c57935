package pipeline

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/mkgen/mkgen/dsl"
)

// Watch makes the waits of a kernel end when the host gives the launch up, and
// each warp leave a record of what it waited for. A kernel whose waits go on
// after that computes nothing that counts: it only has to come to its end, which
// it does since every other wait ends at once, too, and every loop is bounded by
// what was fixed before. A nil *Watch is a kernel whose waits cannot end so.
type Watch struct {
	// Abort has AbortWords words that the host writes: to end waits, and, if that
	// was not enough, to end those for copies in flight.
	Abort dsl.Buf[dsl.U32]
	// Records has RecordWords words a warp of the grid, zero when a launch begins.
	Records dsl.Buf[dsl.U32]
	// Notes is shared memory, NoteWords words a warp: what it waited for when it
	// gave up first. It is on chip and small since every wait may write it, and
	// some stand where registers are scarce; Publish makes the record of it.
	Notes dsl.Buf[dsl.U32]
	// Sites lists the waits of the kernel built so far; a record names one.
	Sites []Site

	layer dsl.Val[dsl.U32]
}

// The words of Watch's buffers. A record is the site's number plus 1 (0: none),
// the layer, the site's detail, and the time (nanoseconds, low word) when the wait
// was given up.
const (
	AbortWords  = 2
	RecordWords = NoteWords
	NoteWords   = dsl.NoteWords
)

// The order of a record's words. It is the note's.
const (
	recordSite = iota
	recordLayer
	recordDetail
	recordTime
)

// Site is a wait of the program.
type Site struct {
	// What is waited for, with %d for the record's detail.
	What string
	dsl.Place
}

// NewWatch watches the waits of k.
func NewWatch(k *dsl.Kernel, abort, records, notes dsl.Buf[dsl.U32]) *Watch {
	return &Watch{Abort: abort, Records: records, Notes: notes, layer: k.U32(0)}
}

// Init clears the notes; all threads of the CTA run it, and a barrier must follow.
func (w *Watch) Init(k *dsl.Kernel) {
	if w == nil {
		return
	}
	k.If(k.Tid().LtC(k.Warps()*NoteWords), func() { w.Notes.Store(k.Tid(), k.U32(0)) })
}

// Layer says in which layer the waits that follow stand.
func (w *Watch) Layer(layer dsl.Val[dsl.U32]) {
	if w != nil {
		w.layer = layer
	}
}

// Doing notes what a warp whose waits are not given up is doing, as long as warp 0
// has given up none: it shows in the record where that warp stood.
func (w *Watch) Doing(k *dsl.Kernel, what string) {
	k.Helper()
	if w == nil {
		return
	}
	n := w.at(k, k.U32(0), what)
	k.Note("watchdog: should the launch be given up, this warp's record says: %s", what)
	k.If(k.Lane().EqC(0), func() {
		k.If(w.Notes.Load(dsl.At(0)).EqC(0), func() {
			for i, v := range []dsl.Val[dsl.U32]{k.U32(n.Site), n.Tag, n.Detail, k.U32(0)} {
				w.Notes.Store(w.note(k).AddC(i), v)
			}
		})
	})
}

// Publish makes the warp's record of its note, at the end of its role, if warp 0
// has given a wait up.
func (w *Watch) Publish(k *dsl.Kernel) {
	if w == nil {
		return
	}
	k.If(k.Lane().EqC(0), func() { // who wrote the note
		note := w.note(k)
		site := w.Notes.Load(note)
		k.If(w.Notes.Load(dsl.At(0)).NeC(0).And(site.NeC(0)), func() {
			record := k.CTA().MulC(k.Warps()).Add(k.Warp()).MulC(RecordWords)
			w.Records.Store(record, site)
			for i := 1; i < NoteWords; i++ {
				w.Records.Store(record.AddC(i), w.Notes.Load(note.AddC(i)))
			}
		})
	})
}

func (w *Watch) note(k *dsl.Kernel) dsl.Val[dsl.U32] { return k.Warp().MulC(NoteWords) }

// MBar waits for a phase of mbarrier i, or until the launch is given up.
func (w *Watch) MBar(k *dsl.Kernel, m dsl.MBars, i dsl.Index, parity, detail dsl.Val[dsl.U32], what string) {
	k.Helper()
	if w == nil {
		m.Wait(i, parity)
		return
	}
	m.WaitOrNote(i, parity, w.Abort, dsl.At(0), w.at(k, detail, what))
}

// landed is MBar for a copy in flight. It will land, so the first wish to give up
// does not end the wait: thereby the ring's full barriers stay in step with the
// copies, and no copy outlives the CTA, whatever consumers have given up.
func (w *Watch) landed(k *dsl.Kernel, m dsl.MBars, i dsl.Index, parity, stage dsl.Val[dsl.U32]) {
	k.Helper()
	w.patient(k, m, i, parity, stage, "waits for the copy into stage %d to land")
}

// patient is MBar for what will come although the launch is given up: the first wish to does not end it.
func (w *Watch) patient(k *dsl.Kernel, m dsl.MBars, i dsl.Index, parity, detail dsl.Val[dsl.U32], what string) {
	k.Helper()
	if w == nil {
		m.Wait(i, parity)
		return
	}
	m.WaitOrNote(i, parity, w.Abort, dsl.At(1), w.at(k, detail, what))
}

// Until polls word i of b, or until the launch is given up.
func (w *Watch) Until(k *dsl.Kernel, b dsl.Buf[dsl.U32], i dsl.Index, c dsl.Cond, want dsl.Val[dsl.U32], what string,
	opts ...dsl.MemOpt) {
	k.Helper()
	if w == nil {
		dsl.WaitUntil(b, i, c, want, opts...)
		return
	}
	dsl.WaitUntilOrNote(b, i, c, want, w.Abort, dsl.At(0), w.at(k, want, what), opts...)
}

// Tagged is first, or word i of b once its tag is tag, or until the launch is given up.
func (w *Watch) Tagged(k *dsl.Kernel, b dsl.Buf[dsl.B128], i dsl.Val[dsl.U32], first dsl.Val[dsl.B128],
	tag dsl.Val[dsl.U32], what string) dsl.Val[dsl.B128] {
	k.Helper()
	relaxed := dsl.Relaxed(dsl.GPUScope)
	if w == nil {
		return dsl.WaitTag(b, i, first, tag, relaxed)
	}
	return dsl.WaitTagOrNote(b, i, first, tag, w.Abort, dsl.At(0), w.at(k, i, what), relaxed)
}

// at makes a site of the place at hand.
func (w *Watch) at(k *dsl.Kernel, detail dsl.Val[dsl.U32], what string) dsl.Note {
	k.Helper()
	site := Site{What: what, Place: k.Place()}
	if n := len(w.Sites); n == 0 || !reflect.DeepEqual(w.Sites[n-1], site) { // else one of several waits of one line
		w.Sites = append(w.Sites, site)
	}
	return dsl.Note{To: w.Notes, Site: len(w.Sites), Tag: w.layer, Detail: detail}
}

// Stuck is a decoded record.
type Stuck struct {
	SM, Warp int
	Layer    int
	Site     Site
	Detail   uint32
	Time     uint32 // nanoseconds, wrapping
}

// Waits says what it waited for, or did.
func (s Stuck) Waits() string {
	if strings.Contains(s.Site.What, "%d") {
		return fmt.Sprintf(s.Site.What, s.Detail)
	}
	return s.Site.What
}

// Decode reads the records that a given-up launch of warps warps a CTA left. A
// record of no site is skipped.
func Decode(records []uint32, warps int, sites []Site) []Stuck {
	var out []Stuck
	for i := 0; i+RecordWords <= len(records); i += RecordWords {
		r := records[i:]
		n := int(r[recordSite])
		if n < 1 || n > len(sites) {
			continue
		}
		warp := i / RecordWords
		out = append(out, Stuck{SM: warp / warps, Warp: warp % warps, Layer: int(r[recordLayer]),
			Site: sites[n-1], Detail: r[recordDetail], Time: r[recordTime]})
	}
	return out
}
