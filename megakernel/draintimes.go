package megakernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/pipeline"
)

// drainFactors are how many times as long consumers take for a chunk of a format as for as many bytes of bf16: with one
// row a step, with up to 8 and with up to 16; 0 where nothing was measured, which counts as 1. Each is fitted to one
// whole step of llama3-8b on an H200 (see TestPredictionsOfFormatsFollowTheirRuns), and says less of its phases: a
// budget of e4m3b128 has 1.25 times in gate_up (docs/budget.md).
var drainFactors = map[pipeline.Format][3]float64{
	pipeline.FormatE4M3:     {1.82, 3.03, 0},
	pipeline.FormatE4M3B128: {1.74, 3.19, 0},
	pipeline.FormatI8:       {1.56, 3.04, 0},
	pipeline.FormatI4G128:   {1.60, 3.42, 4.82},
	pipeline.FormatI4G32:    {2.36, 0, 0},
	pipeline.FormatMXFP4:    {2.82, 0, 6.41},
	pipeline.FormatNVFP4:    {2.96, 0, 8.09},
}

// drainTimes is how many times as long consumers take for a chunk of a format as for one of bf16, and whether that was
// measured.
func (mk *Kernel) drainTimes(f pipeline.Format) (times float64, measured bool) {
	if f == pipeline.FormatBF16 {
		return 1, mk.Options.Tokens == 1
	}
	i := 0
	switch rows := mk.Options.Tokens; {
	case rows > 8:
		i = 2
	case rows > 1:
		i = 1
	}
	if times = drainFactors[f][i]; times == 0 {
		return 1, false
	}
	return times, true
}

// phaseDrainTimes is drainTimes of a phase's matrix, 1 without one.
func (mk *Kernel) phaseDrainTimes(f *Phase) float64 {
	m, _ := mk.phaseMatrix(f)
	if m == nil {
		return 1
	}
	times, _ := mk.drainTimes(m.Format)
	return times
}

// drainAssumed says what a prediction takes for the arithmetic of formats that are not bf16.
func (mk *Kernel) drainAssumed() string {
	var all []string
	for _, f := range mk.Options.formats() {
		if f == pipeline.FormatBF16 {
			continue
		}
		says := fmt.Sprintf("a chunk of %s as long as one of bf16, which was not measured", f)
		if times, measured := mk.drainTimes(f); measured {
			says = fmt.Sprintf("a chunk of %s %.1f times as long as one of bf16", f, times)
		}
		if !slices.Contains(all, says) {
			all = append(all, says)
		}
	}
	if all == nil {
		return ""
	}
	return " Consumers take for " + strings.Join(all, ", for ") + "."
}
