//go:build !race

package ir_test

const slowdown = 1
