// Package machine is what a prediction of a kernel's time needs to know of a GPU:
// figures that mkgen calibrate measures, and their file. Times in files are in µs,
// bandwidths in GB/s (10⁹ bytes); methods return seconds and bytes a second.
package machine
