// Package randomize makes random weights on the device: a kernel, built in the
// DSL for one megakernel, that computes the values of package models/synth
// straight into the buffers weights and embed as the megakernel wants them; gains and biases are the host's.
// Nothing is packed on the host and nothing large is copied: a model of 16 GB takes
// milliseconds. The values are synth's bit for bit, so that a reference made from
// the same seed by another program has the same weights.
//
// The kernel does not depend on the seed: New builds it once a model and plan, and
// Tables gives the seed's keys.
package randomize
