package cuda

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrClosed is wrapped by every use of a device after its Close, or of memory, a stream, an event or a module after its
// release.
var ErrClosed = errors.New("used after it was closed")

// Facts are what the driver says of one GPU.
type Facts struct {
	// Ordinal is the GPU's number, from 0, among those the process sees; Name is the product's.
	Ordinal int    `json:"ordinal"`
	Name    string `json:"name"`
	// Driver is the newest CUDA version the driver supports, as 1000 × major + 10 × minor: 13000 for CUDA 13.0.
	Driver int `json:"driver_cuda"`
	// ComputeMajor and ComputeMinor are the compute capability, 9 and 0 for Hopper.
	ComputeMajor int `json:"compute_major"`
	ComputeMinor int `json:"compute_minor"`
	// SMs is the number of multiprocessors.
	SMs int `json:"sms"`
	// SharedOptin is the most shared memory in bytes, static and dynamic together, that one block may ask for;
	// SharedPerSM is what a multiprocessor has.
	SharedOptin int `json:"shared_optin_bytes"`
	SharedPerSM int `json:"shared_per_sm_bytes"`
	// L2 and Memory are sizes in bytes; Memory is all of it, free or not.
	L2     int64 `json:"l2_bytes"`
	Memory int64 `json:"memory_bytes"`
	// ClockKHz is the highest clock of the multiprocessors, 0 where the driver does not say.
	ClockKHz int `json:"clock_khz"`
	// Cooperative says that grids can be launched with all blocks resident at once.
	Cooperative bool `json:"cooperative"`
}

// Needs are what a kernel asks of a GPU. The zero value of a field asks nothing.
type Needs struct {
	// Arch is what the kernel was compiled for, such as "sm_90a".
	Arch string
	// Driver is the oldest CUDA version wanted of the driver, as in [Facts].
	Driver int
	// SMs is the number of multiprocessors, as a persistent kernel has one block on each.
	SMs int
	// Shared is the shared memory per block in bytes, static and dynamic together.
	Shared int
}

// Check returns nil when the GPU meets the needs, else one error that names every need not met: what was found, what is
// needed. An Arch that is not of the form sm_90 or sm_90a is an error too.
func (f Facts) Check(n Needs) error {
	var short []string
	if n.Arch != "" {
		runs, err := f.runs(n.Arch)
		if err != nil {
			return err
		}
		if !runs {
			short = append(short, fmt.Sprintf("compute capability %d.%d does not run code for %s", f.ComputeMajor,
				f.ComputeMinor, n.Arch))
		}
	}
	if f.Driver < n.Driver {
		short = append(short, fmt.Sprintf("its driver supports CUDA %s, needed is %s", version(f.Driver), version(n.Driver)))
	}
	if f.SMs < n.SMs {
		short = append(short, fmt.Sprintf("%d SMs, needed are %d", f.SMs, n.SMs))
	}
	if f.SharedOptin < n.Shared {
		short = append(short, fmt.Sprintf("%d bytes of shared memory per block, needed are %d", f.SharedOptin, n.Shared))
	}
	if !f.Cooperative {
		short = append(short, "no cooperative launch, which is needed")
	}
	if len(short) == 0 {
		return nil
	}
	return fmt.Errorf("cuda: GPU %d (%s) does not fit: %s", f.Ordinal, f.Name, strings.Join(short, "; "))
}

// runs says whether a cubin for the architecture runs here: same major, and a minor not below it; exactly equal for an
// architecture with the suffix a.
func (f Facts) runs(arch string) (bool, error) {
	digits, ok := strings.CutPrefix(arch, "sm_")
	plain := strings.TrimRight(digits, "af")
	number, err := strconv.Atoi(plain)
	if !ok || err != nil || number < 10 || len(digits)-len(plain) > 1 {
		return false, fmt.Errorf("cuda: architecture %q: want one such as sm_90a", arch)
	}
	major, minor := number/10, number%10
	if strings.HasSuffix(digits, "a") {
		return f.ComputeMajor == major && f.ComputeMinor == minor, nil
	}
	return f.ComputeMajor == major && f.ComputeMinor >= minor, nil
}

// version writes 13000 as "13.0".
func version(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// resident refuses a grid of which not every block can be on the GPU at once: a barrier over the grid would wait for
// ever. perSM is how many blocks fit on one multiprocessor.
func resident(kernel string, perSM, sms, grid, block, shared int) error {
	if perSM*sms >= grid {
		return nil
	}
	return fmt.Errorf("cuda: launch %s: %d blocks of %d threads with %d bytes of dynamic shared memory cannot all be resident: "+
		"%d per SM on %d SMs makes %d", kernel, grid, block, shared, perSM, sms, perSM*sms)
}
