//go:build race

package ir_test

const slowdown = 20 // the race detector's, at most
