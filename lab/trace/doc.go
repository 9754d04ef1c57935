// Package trace renders what the warps of one launch did, and when: as a table, as
// a page for a browser, as an SVG, and as events for a trace viewer. It takes a
// decoded Trace and knows nothing of how that was recorded.
//
// An SM's consumers have one track and its producer another. What a consumers'
// track says of the SM holds for all its consumer warps as far as they run
// together; waits are the recording warp's.
package trace
