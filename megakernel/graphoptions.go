package megakernel

import (
	"slices"
)

// Launching is how a step is launched.
type Launching string

// The ways.
const (
	// LaunchSingle, the default, is one kernel that runs as many steps as asked; its
	// phases are parted by grid barriers.
	LaunchSingle Launching = "single"
	// LaunchGraph is a kernel for each phase and a graph of their launches, run once a
	// step: the alternative that the single kernel is to be compared with.
	LaunchGraph Launching = "graph"
)

// Launchings lists the ways.
func Launchings() []Launching { return []Launching{LaunchSingle, LaunchGraph} }

// Dependents is when a kernel of a graph lets the next one start beside it, to begin
// with what does not depend on this one: barriers, the plan, and weights and cached KV as
// far as its ring holds them.
type Dependents string

// The moments.
const (
	// DependentsStart is at once: as many kernels are under way as an SM has room for.
	DependentsStart Dependents = "start"
	// DependentsWaited is when the kernel before has ended: two are under way at most.
	DependentsWaited Dependents = "waited"
	// DependentsStreamed is when an SM's last copy is under way, so that the next kernel's
	// copies are behind this one's.
	DependentsStreamed Dependents = "streamed"
	// DependentsEnded is when this kernel has ended: no programmatic dependent launch.
	DependentsEnded Dependents = "ended"
)

// AllDependents lists the moments.
func AllDependents() []Dependents {
	return []Dependents{DependentsStart, DependentsWaited, DependentsStreamed, DependentsEnded}
}

// What an SM of sm_90 has for the CTAs on it.
const (
	sharedPerSM   = 233472 // bytes of shared memory
	sharedPerCTA  = 1024   // of them the system's, for each CTA
	threadsPerSM  = 2048
	sharedNoRing  = 1280 // left for a kernel without a ring beside those that have one
	maxResident   = 4
	maxGraphSteps = 64
)

// DefaultResident is two kernels side by side: one works while the next one's ring fills.
const DefaultResident = 2

// graph is whether a step is a graph of kernels.
func (o *Options) graph() bool { return o.Launch == LaunchGraph }

// completeLaunch fills in what was left open of a graph, and refuses what it cannot have.
func (o *Options) completeLaunch() error {
	if o.Launch == "" {
		o.Launch = LaunchSingle
	}
	if !slices.Contains(Launchings(), o.Launch) {
		return refuse("Launch", "found %q, want single or graph", string(o.Launch))
	}
	if !o.graph() {
		switch {
		case o.Resident != 0:
			return refuse("Resident", "%d kernels side by side, but a step is one; that is for a graph of them", o.Resident)
		case o.GraphSteps != 0:
			return refuse("GraphSteps", "%d steps a launch of a graph, but a step is one kernel; that is for a graph of them",
				o.GraphSteps)
		case o.Dependents != "":
			return refuse("Dependents", "%q, but a step is one kernel; that is for a graph of them", string(o.Dependents))
		}
		return nil
	}
	if o.Draws {
		return refuse("Draws", "draws of tokens in a graph of kernels, where the host draws; want launch single")
	}
	if o.Resident == 0 {
		o.Resident = DefaultResident
	}
	if o.Dependents == "" {
		o.Dependents = DependentsStart
	}
	if o.GraphSteps == 0 {
		o.GraphSteps = 1
	}
	switch {
	case o.Resident < 1 || o.Resident > maxResident:
		return refuse("Resident", "%d kernels side by side on an SM, want 1 to %d", o.Resident, maxResident)
	case o.Resident*32*(o.Consumers+1) > threadsPerSM:
		return refuse("Resident", "%d kernels of %d threads side by side, an SM has room for %d threads", o.Resident,
			32*(o.Consumers+1), threadsPerSM)
	case o.GraphSteps < 1 || o.GraphSteps > maxGraphSteps:
		return refuse("GraphSteps", "%d steps a launch of a graph, want 1 to %d", o.GraphSteps, maxGraphSteps)
	case !slices.Contains(AllDependents(), o.Dependents):
		return refuse("Dependents", "found %q, want start, waited, streamed or ended", string(o.Dependents))
	case o.Tokens > 1:
		return refuse("Launch", "a graph of kernels with %d query rows a step, want one", o.Tokens)
	case o.Queries != SyncBarrier:
		return refuse("Queries", "%q in a graph of kernels, where a kernel's end is the sync; want barrier",
			string(o.Queries))
	case o.Merge == MergeWords:
		return refuse("Merge", "%q in a graph of kernels, which have no barrier to take tags from; want phase, last or input",
			string(o.Merge))
	case o.Watchdog == WatchAll:
		return refuse("Watchdog", "all waits of a graph of kernels, which have none; want grid or none")
	case o.Trace > 0:
		return refuse("Trace", "a trace of a graph of kernels, want none")
	case slices.Contains(Hangs(), o.Fault):
		return refuse("Fault", "fault %q, which a graph of kernels cannot have: there is no sync to hang at", string(o.Fault))
	}
	return nil
}

// sharedLimit is the shared memory that a kernel of a graph may use, in bytes: an SM's
// over the kernels side by side.
func (o *Options) sharedLimit() int {
	return min(o.SharedLimit, (sharedPerSM-sharedNoRing)/o.Resident/16*16-sharedPerCTA)
}
