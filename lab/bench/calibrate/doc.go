// Package calibrate measures what predictions need to know of a GPU (package machine): the
// ceiling, what streams with few copies in flight, latencies of small requests, what an
// exchange among all SMs takes and how much of it a ring hides, and how fast consumers
// drain a ring. All of it with kernels of the DSL, from the parts that the megakernel is
// made of: its ring, its grid barrier, its matrix-vector product.
package calibrate
