//go:build unix

// Package cputime is how much of a processor and of memory benchmarks take.
package cputime

import (
	"runtime"
	"syscall"
	"testing"
)

// Used is the processor time of this process in nanoseconds: on a busy machine elapsed time says nothing of the code.
func Used(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// Meter measures what a benchmark's tokens take, from NewMeter to Report.
type Meter struct {
	b      *testing.B
	used   int64
	before runtime.MemStats
}

// NewMeter begins to measure.
func NewMeter(b *testing.B) *Meter {
	m := &Meter{b: b, used: Used(b)}
	runtime.ReadMemStats(&m.before)
	return m
}

// Report reports processor time, allocations and bytes of each of n tokens.
func (m *Meter) Report(n int) {
	used := Used(m.b)
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	each := func(x float64, unit string) { m.b.ReportMetric(x/float64(n), unit+"/token") }
	each(float64(used-m.used)/1000, "cpu-µs")
	each(float64(after.Mallocs-m.before.Mallocs), "allocs")
	each(float64(after.TotalAlloc-m.before.TotalAlloc), "B")
}
