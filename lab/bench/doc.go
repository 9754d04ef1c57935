// Package bench measures how fast a kernel decodes, by one method: on the same
// device, in the same process and right before each case the streaming ceiling
// (package ceiling), then warm-up, then rounds of tokens at a fixed context; per
// token the device's and the host's clock, the median over the rounds with its
// spread, and percentiles of single tokens. The figure of merit is the share: the
// bytes a token must read, weights and valid KV once, over device time and ceiling.
//
// A Record of it is written only beside a gate (package gate) that was passed by
// the same kernel with the same weights.
package bench
