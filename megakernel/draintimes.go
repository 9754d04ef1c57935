package megakernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/pipeline"
)

// drainFactors are how many times as long consumers take for a chunk of a format as for as many bytes of bf16: with one
// row a step, with up to 8 and with up to 16. Each is fitted to one whole step of llama3-8b at 1024 tokens on an H200
// (see TestPredictionsOfFormatsFollowTheirRuns), and says less of its phases: a budget of e4m3b128 has 1.25 times in
// gate_up (docs/budget.md). 0 is what was not measured: drainFactor says what is taken for it.
//
// Those of 4 bits are of 30 November, with several rows of ablations, times what i4g128 takes since of what it took
// in these; mxfp4 had 576 bytes a block there, and has 544. One row of 8 bits is of 29 and 30 November, several
// rows are of 30 November, but for 8 of e4m3b128, of 25 November, before its kernels had more registers.
var drainFactors = map[pipeline.Format][3]float64{
	pipeline.FormatE4M3:     {1.82, 2.89, 3.05},
	pipeline.FormatE4M3B128: {1.73, 3.19, 3.77},
	pipeline.FormatI8:       {1.47, 2.84, 3.30},
	drainI8Groups:           {1.54, 0, 0},
	pipeline.FormatI4:       {1.80, 3.44, 4.88},
	pipeline.FormatI4G32:    {1.71, 3.28, 4.78},
	pipeline.FormatI4G64:    {1.57, 3.09, 4.54},
	pipeline.FormatI4G128:   {1.51, 3.13, 4.34},
	drainZeros:              {1.73, 3.20, 4.36},
	pipeline.FormatMXFP4:    {2.95, 4.61, 5.68},
	pipeline.FormatNVFP4:    {2.90, 4.86, 6.31},
}

// The formats of checkpoints alone that were measured: 8 bits with groups, and zero points.
const (
	drainI8Groups pipeline.Format = "i8g128"
	drainZeros    pipeline.Format = "i4g128-zeros"
)

// drainFactor returns the factor of a format, not bf16, with the rows of a column of drainFactors, and the formats that
// it is of: the format alone where it was measured. Else it is a neighbour's:
//
//   - Scales of binary16 count as those of bf16. Kernels of i4g128-f16 took what those of i4g128 did, within 0.4 %.
//   - Zero points multiply the factor of a format without them, as they did that of i4g128.
//   - Integers of 8 bits with other groups count as i8g128, and as i8 where that was not measured either.
func drainFactor(f pipeline.Format, column int) (times float64, of []string) {
	times = drainFactors[f][column]
	i4 := drainFactors[pipeline.FormatI4G128]
	switch {
	case times > 0:
		return times, []string{string(f)}
	case f.Zeros():
		times, of = drainFactor(f.Base(), column)
		return times * drainFactors[drainZeros][column] / i4[column], append(of, string(drainZeros))
	case f.F16Scales():
		return drainFactor(f.Base(), column)
	case f == drainI8Groups:
		return drainFactor(pipeline.FormatI8, column)
	case f.Bits() == 8 && f.Integers() && f != pipeline.FormatI8:
		return drainFactor(drainI8Groups, column)
	}
	panic("BUG: no drain factor of " + string(f))
}

// drainTimes is how many times as long consumers take for a chunk of a format as for one of bf16, and the formats that
// were measured for that.
func (mk *Kernel) drainTimes(f pipeline.Format) (times float64, of []string) {
	if f == pipeline.FormatBF16 {
		return 1, nil
	}
	column := 0
	switch rows := mk.Options.Tokens; {
	case rows > 8:
		column = 2
	case rows > 1:
		column = 1
	}
	return drainFactor(f, column)
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
		times, of := mk.drainTimes(f)
		says := fmt.Sprintf("a chunk of %s %.1f times as long as one of bf16", f, times)
		if !slices.Equal(of, []string{string(f)}) {
			says += fmt.Sprintf(", not measured but by %s", joined(of))
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
