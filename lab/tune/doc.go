// Package tune searches the options of a kernel that change nothing but its speed:
// stage size, depth of the ring, copies in flight, consumer warps, parts of the KV cache,
// and where partial states are merged.
//
// The search is a coordinate descent. Dimension by dimension every candidate is measured
// beside the incumbent, whose time is taken again each time, so that a GPU that grows
// warmer slows both; the best one that is better by more than the noise (Trial.judge)
// becomes the incumbent, until a whole round changes nothing or the time is over. What
// was measured is kept in a Profile, which is written after every trial: a search is a
// function of its trials, so a second run walks the same way without measuring again, and
// goes on where the first one ended.
package tune
