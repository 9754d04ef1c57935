package trace

// Summary is what a trace comes to. Times are in Unit. A run is one phase, or one
// sync, in one layer of one step, on all SMs. Figures are means over the runs
// that count, and over their SMs where nothing else is said.
//
// Runs count that are whole: of the steps but the first (its caches are cold) if the
// trace has more than two whole steps, else of all, and with nothing in them behind
// Until.
type Summary struct {
	Model, Device, Unit string

	SMs       int     // with a consumers' track
	Producers int     // of them with a producer's track; the producer's parts of the others are 0
	Layers    int     // of the model
	Steps     int     // whole steps that count
	Seen      int     // steps of which there is anything
	Cold      int     // the step left out for its cold caches, -1 if none
	Dropped   int     // spans that did not fit into the buffers
	Until     float64 // where the first track that dropped spans ends; +Inf if none did
	Apart     float64 // as the trace's

	Phases []PhaseSummary // in order of execution
	Syncs  []SyncSummary  // in order of execution
	Tasks  []TaskSummary  // in order of execution

	// Layer is a layer: from an SM's begin of its first phase to the end of the last,
	// the sync behind it included. What lies between phases is work.
	Layer     Parts
	LayerRuns int

	// Step is a whole step: from the begin of the first span of an SM's consumers to
	// the end of the last. What lies outside of phases, waits aside, is work.
	Step Parts
}

// Shares is what shares of the whole time are taken of: the step, or where no step
// is whole the layer.
func (s *Summary) Shares() Parts {
	if s.Steps > 0 {
		return s.Step
	}
	return s.Layer
}

// PhaseSummary is one phase. An SM's duration of a run is from the begin of the phase
// to its end, or to the release from the sync behind it where there is one.
type PhaseSummary struct {
	Name    string
	InLayer bool // runs once a layer, not once a step
	Runs    int

	Parts          // of an SM's duration; Parts.Time is its mean
	Median float64 // over the SMs of a run, mean over the runs
	Max    float64 // the slowest SM of a run, mean over the runs
}

// SyncSummary is one sync. An SM arrives when its span begins and is released
// when that ends. Clocks of SMs that differ by d make these figures wrong by up to d.
type SyncSummary struct {
	Name  string
	After string // the phase before, or around it; "" if none
	Runs  int

	Wait  float64 // of an SM, from its arrival to its release
	Skew  float64 // last arrival − mean arrival: what the SMs lose to uneven work
	Range float64 // last arrival − first arrival
	// first release − last arrival: what the barrier, or the count, itself costs; below 0 where clocks contradict each
	// other, or on the executor, where a warp notes when it is its turn
	Latency float64
	Spread  float64 // last release − first release

	LateSM int // the SM that arrived last most often, the lowest of equals; -1 if always all arrived at once
	Late   int // in how many runs; one in which several are last counts for each

	early []float64 // of all SMs and runs: last arrival − arrival
}

// TaskSummary is one task, or one wait for words, inside of a phase on one SM.
type TaskSummary struct {
	Phase, Name string
	Count       float64 // a run of the phase, on an SM
	Time        float64 // of one, waits in it included
	Waits       float64 // of one, the waits and syncs in it
}
