package emit

import (
	"fmt"
	"strings"
)

// Target is an architecture to emit for, as data.
type Target struct {
	Arch         string   // "sm_90a"
	Virtual      string   // "compute_90a"
	SharedPerCTA int      // bytes of shared memory a CTA may use at most
	MaxThreads   int      // threads a CTA may have at most
	MaxCluster   int      // CTAs a cluster may have at most, portably
	NamedBars    int      // barriers a CTA has, barrier 0 included
	Std          string   // C++ standard the source is written in
	Features     []string // what the emitted PTX relies on, for readers
}

// Targets lists the architectures that can be emitted for.
func Targets() []Target {
	return []Target{{
		Arch: "sm_90a", Virtual: "compute_90a", SharedPerCTA: 227 << 10, MaxThreads: 1024, MaxCluster: 8, NamedBars: 16,
		Std: "c++17", Features: []string{"cp.async.bulk", "mbarrier", "ldmatrix", "mma.sync m16n8k16", "b128 atomic loads"},
	}}
}

// TargetFor is the target of an architecture's name; the error lists those there are.
func TargetFor(arch string) (Target, error) {
	var names []string
	for _, t := range Targets() {
		if t.Arch == arch {
			return t, nil
		}
		names = append(names, t.Arch)
	}
	return Target{}, fmt.Errorf("architecture %q is unknown, want one of: %s", arch, strings.Join(names, ", "))
}

// NvccFlags are the arguments with which nvcc compiles an emitted file for t.
func (t Target) NvccFlags() []string {
	return []string{"-std=" + t.Std, "-O3", "-gencode=arch=" + t.Virtual + ",code=" + t.Arch}
}
