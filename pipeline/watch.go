package pipeline

import (
	"fmt"
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
// the layer, the site's detail, the time (nanoseconds, low word) when the wait was
// given up, and the step's position.
const (
	AbortWords  = 2
	RecordWords = 8
	NoteWords   = 4
)

// The order of a record's words. The first four are the note.
const (
	recordSite = iota
	recordLayer
	recordDetail
	recordTime
	recordPos
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
	k.If(k.Tid().LtC(k.Warps()*NoteWords), func() { w.Notes.Store(k.Tid(), k.U32(0)) })
}

// Layer says in which layer the waits that follow stand.
func (w *Watch) Layer(layer dsl.Val[dsl.U32]) {
	if w != nil {
		w.layer = layer
	}
}

// Publish makes the warp's record of its note, in the step at pos.
func (w *Watch) Publish(k *dsl.Kernel, pos dsl.Val[dsl.U32]) {
	k.If(k.Lane().EqC(0), func() { // who wrote the note
		record := w.record(k)
		for i := range NoteWords {
			w.Records.Store(record.AddC(i), w.Notes.Load(w.note(k).AddC(i)))
		}
		w.Records.Store(record.AddC(recordPos), pos)
	})
}

func (w *Watch) note(k *dsl.Kernel) dsl.Val[dsl.U32] { return k.Warp().MulC(NoteWords) }

func (w *Watch) record(k *dsl.Kernel) dsl.Val[dsl.U32] {
	return k.CTA().MulC(k.Warps()).Add(k.Warp()).MulC(RecordWords)
}

// MBar waits for a phase of mbarrier i and returns whether it was given up.
func (w *Watch) MBar(k *dsl.Kernel, m dsl.MBars, i dsl.Index, parity, detail dsl.Val[dsl.U32], what string) dsl.Pred {
	k.Helper()
	if w == nil {
		m.Wait(i, parity)
		return k.Bool(false)
	}
	return w.noted(k, m.WaitOr(i, parity, w.Abort, dsl.At(0)), detail, what)
}

// landed is MBar for a copy in flight: the first wish to give up does not end it.
func (w *Watch) landed(k *dsl.Kernel, m dsl.MBars, i dsl.Index, parity, detail dsl.Val[dsl.U32], what string) {
	k.Helper()
	w.noted(k, m.WaitOr(i, parity, w.Abort, dsl.At(1)), detail, what)
}

// Until polls word i of b and returns whether that was given up.
func (w *Watch) Until(k *dsl.Kernel, b dsl.Buf[dsl.U32], i dsl.Index, c dsl.Cond, want dsl.Val[dsl.U32], what string, opts ...dsl.MemOpt) dsl.Pred {
	k.Helper()
	if w == nil {
		dsl.WaitUntil(b, i, c, want, opts...)
		return k.Bool(false)
	}
	return w.noted(k, dsl.WaitUntilOr(b, i, c, want, w.Abort, dsl.At(0), opts...), want, what)
}

// noted notes the first wait that the warp gives up. A note belongs to one warp,
// whose lane 0 alone reads and writes it until the warp has come to Publish.
func (w *Watch) noted(k *dsl.Kernel, left dsl.Pred, detail dsl.Val[dsl.U32], what string) dsl.Pred {
	k.Helper()
	w.Sites = append(w.Sites, Site{What: what, Place: k.Place()})
	site := len(w.Sites)
	k.If(left.And(k.Lane().EqC(0)), func() {
		note := w.note(k)
		k.If(w.Notes.Load(note).EqC(0), func() {
			for i, v := range []dsl.Val[dsl.U32]{k.U32(site), w.layer, detail, dsl.Cast[dsl.U32](k.GlobalTimer())} {
				w.Notes.Store(note.AddC(i), v)
			}
		})
	})
	return left
}

// Stuck is a decoded record.
type Stuck struct {
	SM, Warp   int
	Pos, Layer int
	Site       Site
	Detail     uint32
	Time       uint32 // nanoseconds, wrapping
}

// Waits is what it waited for.
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
		out = append(out, Stuck{SM: warp / warps, Warp: warp % warps, Pos: int(r[recordPos]), Layer: int(r[recordLayer]),
			Site: sites[n-1], Detail: r[recordDetail], Time: r[recordTime]})
	}
	return out
}
