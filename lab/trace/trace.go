package trace

import (
	"math"

	"github.com/mkgen/mkgen/pipeline"
)

// Trace is what the warps of a launch did, and when.
type Trace struct {
	Model  string  // "llama3-8b"
	Device string  // "NVIDIA H200", or "executor"
	Unit   string  // Nanoseconds or Steps
	Sites  []Site  // what spans are of; Span.Site is an index into it
	Layers int     // layers of the model, 0 or more
	Stages int     // of an SM's ring; 0: not known
	Tracks []Track // sorted by SM, then Role (Consumers before Producer)
	Apart  float64 // how far the clocks of SMs stood apart before Align put them together, 0 if it did not
}

// The units of times.
const (
	Nanoseconds = "ns"
	Steps       = "steps" // of the executor's scheduler: times are an order, not a speed
)

// The roles that have tracks.
const (
	Consumers = "consumers"
	Producer  = "producer"
)

// Kind is what a span's time went into.
type Kind string

// The kinds, from the outermost to the innermost. Waits are leaves, and so are syncs but for what is
// done meanwhile.
const (
	Phase Kind = "phase" // one phase of a layer or of the step: qkv, attention, merge, o, gate_up, down, lm_head ...
	// from the SM's arrival at a grid barrier, or at a count of arrivals, to its release, whatever it does meanwhile; in
	// the phase or behind it
	Sync Kind = "sync"
	// consumers: for a chunk (ring empty), or for words of other SMs; producer: for a free stage (ring full), or for
	// copies in flight
	Wait Kind = "wait"
	Task Kind = "task" // a part of a phase: staging the input vector, an attention item, a merge ...
)

// Names of the waits that figures are made of. Sites of one name count together;
// waits of other names count as other waits. The detail of all of them is the number of
// the chunk that they are for.
const (
	ChunkWait = pipeline.ChunkWait // consumers; its End is when draining a chunk begins
	StageWait = pipeline.StageWait // producer
	// producer, of the same chunk behind it: as many copies are under way as may be. At its End the chunk's copy is issued
	FlightWait = pipeline.FlightWait
)

// Site is a place in the kernel that spans are recorded at.
type Site struct {
	Kind  Kind
	Name  string // "qkv", "sync after qkv", ChunkWait, "input vector"
	Role  string // Consumers or Producer
	Phase string // the phase the site lies in, "" if none
}

// Track is what one role of one SM did. Spans are ordered by End, an inner one
// before the outer one that ends with it, and nest properly: wait within task
// within phase.
type Track struct {
	SM      int
	Role    string
	Spans   []Span
	Dropped int // spans that did not fit into the buffer: the last of the launch
}

// Span is one stay at a site. Times are from the launch's begin, in Trace.Unit.
type Span struct {
	Begin, End float64
	Site       int    // index into Trace.Sites
	Step       int    // of the launch, from 0
	Layer      int    // 0 to Layers−1; -1 before the layers and Layers behind them, both of the step itself
	Detail     uint32 // what the site makes of it: a chunk's number, an item's
}

// kind is the kind of a span's site.
func (t *Trace) kind(s *Span) Kind { return t.Sites[s.Site].Kind }

// Dropped is how many spans did not fit into the buffers of all tracks.
func (t *Trace) Dropped() (n int) {
	for i := range t.Tracks {
		n += t.Tracks[i].Dropped
	}
	return n
}

// Whole is the time up to which every track has all its spans: where the first of
// those that dropped any ends, +Inf when none did.
func (t *Trace) Whole() float64 {
	until := math.Inf(1)
	for i := range t.Tracks {
		if t.Tracks[i].Dropped > 0 {
			until = min(until, t.Tracks[i].end())
		}
	}
	return until
}

// end is where a track's last span ends, 0 without any.
func (t *Track) end() float64 {
	if len(t.Spans) == 0 {
		return 0
	}
	return t.Spans[len(t.Spans)-1].End
}

// role is the tracks of one role, in order of SM.
func (t *Trace) role(role string) (tracks []*Track) {
	for i := range t.Tracks {
		if t.Tracks[i].Role == role {
			tracks = append(tracks, &t.Tracks[i])
		}
	}
	return tracks
}

// of is the track of a role of an SM, nil if there is none.
func (t *Trace) of(sm int, role string) *Track {
	for i := range t.Tracks {
		if t.Tracks[i].SM == sm && t.Tracks[i].Role == role {
			return &t.Tracks[i]
		}
	}
	return nil
}
