// Package probe checks single layers of a kernel against float64, each from the kernel's own
// inputs: the residual vector before the layer, which a kernel with Options.Probe leaves behind,
// and the keys and values in its cache. An error does not have to show through the layers behind
// it, so that one head off by 2 % in one layer stands out by far. The rows of the whole cache
// are compared with those of an independent model by their projections.
package probe
