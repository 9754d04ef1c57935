package verify

import (
	"cmp"
	"time"

	"github.com/mkgen/mkgen/internal/revision"
)

// Record is what is kept of a report: the schedules that kernels ran under, and what came of them.
type Record struct {
	What    string         `json:"what"`
	Date    string         `json:"date"`
	Commit  string         `json:"commit"` // that the program was built from
	Command string         `json:"command"`
	Kernels []RecordKernel `json:"kernels"`
}

// RecordKernel is the small kernel, or the one with the real number of SMs.
type RecordKernel struct {
	Kernel       string   `json:"kernel"`
	Policies     []string `json:"policies"` // each once; of PCT with its depth
	Schedules    int      `json:"schedules"`
	Seeds        string   `json:"seeds"`
	Launches     int      `json:"launches"`     // of all schedules
	Instructions int64    `json:"instructions"` // of a warp, in all launches
	Verdict      string   `json:"verdict"`      // "no fault", or what was found
}

// Record is what is kept of the report, which command asked for.
func (r *Report) Record(command string) *Record {
	small := *r
	small.Wide = nil
	out := &Record{What: "schedules of a model's kernel, shrunk, on the executor",
		Date: time.Now().UTC().Format(time.DateOnly), Commit: revision.String(), Command: command,
		Kernels: []RecordKernel{small.recordKernel(r.Model + ", shrunk")}}
	if r.Wide != nil {
		out.Kernels = append(out.Kernels, r.Wide.recordKernel(r.Model+", with the real number of SMs"))
	}
	return out
}

func (r *Report) recordKernel(name string) RecordKernel {
	return RecordKernel{Kernel: name, Policies: policiesOf(r.Seeds), Schedules: len(r.Seeds), Seeds: seedsText(r.Seeds),
		Launches: r.Ran, Instructions: r.Instructions, Verdict: cmp.Or(r.failures(), "no fault")}
}
