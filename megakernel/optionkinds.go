package megakernel

// Sync is how what a phase writes reaches the next one.
type Sync string

// The syncs.
const (
	// SyncBarrier is a grid barrier: all SMs wait for all, and what each wrote before is
	// visible to all behind it.
	SyncBarrier Sync = "barrier"
	// SyncWords passes data in LL packets: who needs some waits for them.
	SyncWords Sync = "words"
	// SyncCounted passes data in LL packets, too, but who needs some waits until all
	// SMs have arrived before looking for them. The count orders no memory, so that nobody
	// waits for stores to be visible: the words say whether they are.
	SyncCounted Sync = "counted"
)

// Syncs lists the ways of queries.
func Syncs() []Sync { return []Sync{SyncBarrier, SyncWords} }

// Merging is where partial states of attention are merged.
type Merging string

// The places.
const (
	// MergePhase merges in a phase of its own, all SMs together, behind a barrier.
	MergePhase Merging = "phase"
	// MergeWords merges in all SMs that have a state of a head, each a share of its
	// output, as soon as the others' states are there: no sync between, words that
	// carry a tag instead.
	MergeWords Merging = "words"
)

// Mergings lists the places.
func Mergings() []Merging { return []Merging{MergePhase, MergeWords} }

// Watchdog names waits that end when the host gives the launch up, so that a hang
// is an error and the GPU stays usable.
type Watchdog string

// The watchdogs.
const (
	// WatchGrid, the default, watches the waits for other SMs. Those inside of an SM,
	// at the ring and between the roles, end when these do.
	WatchGrid Watchdog = "grid"
	// WatchAll watches every wait, also against mistakes inside of an SM, such as a
	// stage that is not released; a step takes somewhat longer.
	WatchAll Watchdog = "all"
	// WatchNone watches none: what hangs hangs for good.
	WatchNone Watchdog = "none"
)

// Watchdogs lists the watchdogs.
func Watchdogs() []Watchdog { return []Watchdog{WatchGrid, WatchAll, WatchNone} }
