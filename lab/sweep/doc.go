// Package sweep measures a model over a grid of contexts and batches: at each point the
// share of the streaming ceiling, and of single steps the median, the 99th percentile and
// the longest, by the method of package bench.
//
// Batch 1 is decoded by the kernel of one query row, a larger one by a kernel of several
// rows, all sequences at the same context. A point that cannot be measured stays in the
// record with the reason. The record is written after every point, and a later run takes
// over what it holds.
package sweep
