package gate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
)

// inKernel are the faults that are planted by building another kernel.
var inKernel = map[string]megakernel.Fault{
	KVTokenDropped: megakernel.FaultDropToken, RopeOffByOne: megakernel.FaultRope,
	MergeWeightWrong: megakernel.FaultMergeShare,
	AttentionChanged: megakernel.FaultAttention, BiasDropped: megakernel.FaultBias, QKNormSkipped: megakernel.FaultQKNorm,
	PlusOneDropped:  megakernel.FaultPlusOne,
	RopeBaseSwapped: megakernel.FaultRopeBase, LogitCapLeftOut: megakernel.FaultLogitCap,
	PostNormSkipped: megakernel.FaultPostNorm,
	GrowthLeftOut:   megakernel.FaultGrowth, BytesExchanged: megakernel.FaultInputBytes,
	WindowWider: megakernel.FaultWindow, TokenScaleOfNeighbour: megakernel.FaultTokenScale}

// Builds are the options of the kernels that a judgement builds beside the one that it judges; probe says that local
// checks are made, too.
func Builds(mk *megakernel.Kernel, probe bool) (all []megakernel.Options) {
	with := func(fault megakernel.Fault, probe bool) {
		o := mk.Options
		o.Fault, o.Probe = fault, probe
		all = append(all, o)
	}
	for _, name := range faults(mk) {
		if fault, ok := inKernel[name]; ok &&
			!(name == AttentionChanged && (mk.Slopes() != nil || mk.HasMask() || mk.Options.Selection)) {
			with(fault, false)
		}
	}
	if probe {
		for _, fault := range []megakernel.Fault{megakernel.NoFault, megakernel.FaultValueScale, megakernel.FaultKeyScale,
			megakernel.FaultFirstPage} {
			with(fault, true)
		}
	}
	return all
}

// faulty judges the kernel with one fault planted.
func (s *Subject) faulty(ctx context.Context, ref *Reference, rules Rules, name string) (r Result, err error) {
	run := func() (Result, error) { return s.pass(ctx, ref, rules, nil) }
	switch name {
	case NormGainSkipped:
		return skipGain(s.Kernel, s.Weights, s.Write, run)
	case PagesSwapped:
		return s.withSwappedPages(ctx, ref, rules)
	}
	if slopes := s.Kernel.Slopes(); name == AttentionChanged && slopes != nil {
		return otherSlope(slopes, s.Write, run)
	}
	if slices.Contains(formatFaults(s.Kernel), name) {
		return spoilWeights(s.Kernel, s.Weights, s.Write, name, run)
	}
	return plantInKernel(ctx, s.Plant, name, run)
}

// plantInKernel runs a kernel that was built with the fault of that name.
func plantInKernel(ctx context.Context, plant func(context.Context, megakernel.Fault) (func(), error), name string,
	run func() (Result, error)) (Result, error) {
	fault, ok := inKernel[name]
	if !ok {
		panic("BUG: no way to plant " + name)
	}
	restore, err := plant(ctx, fault)
	if err != nil {
		return Result{}, fmt.Errorf("planting it: %w", err)
	}
	defer restore()
	return run()
}

// skipGain replaces the gains of the middle layer's first norm by what makes a factor of 1 while run
// runs.
func skipGain(mk *megakernel.Kernel, w megakernel.Tensors, write func(buffer string, offset int64, src []byte) error,
	run func() (Result, error)) (r Result, err error) {
	gains, err := mk.Gains(w)
	if err != nil {
		return r, err
	}
	c := &mk.Config
	row := c.Hidden * 2
	at := mk.GainRow(c.Layers/2, mk.NormRoles()[0]) * row
	one := uint16(0x3f80)
	if mk.PlusOne() {
		one = 0
	}
	ones := make([]byte, 0, row)
	for range c.Hidden {
		ones = binary.LittleEndian.AppendUint16(ones, one)
	}
	if err := write("gains", int64(at), ones); err != nil {
		return r, err
	}
	r, err = run()
	return r, errors.Join(err, write("gains", int64(at), gains[at:at+row]))
}

// otherSlope makes the slope of the last query head half as large again while run runs.
func otherSlope(slopes []float32, write func(buffer string, offset int64, src []byte) error,
	run func() (Result, error)) (r Result, err error) {
	last := len(slopes) - 1
	set := func(x float32) error {
		return write(megakernel.BufferSlopes, int64(4*last), binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)))
	}
	if err := set(1.5 * slopes[last]); err != nil {
		return r, err
	}
	r, err = run()
	return r, errors.Join(err, set(slopes[last]))
}

// withSwappedPages swaps the first and the third page of the table when the
// third is half full. Two full pages would be no fault: keys carry their
// positions, so attention does not depend on the order of tokens.
func (s *Subject) withSwappedPages(ctx context.Context, ref *Reference, rules Rules) (r Result, err error) {
	swapped := slices.Clone(s.Table)
	swapped[0], swapped[2] = swapped[2], swapped[0]
	page := s.Kernel.KV.Page
	set := func(table []uint32) func() error { return func() error { return s.Session.SetTable(table) } }
	r, err = s.pass(ctx, ref, rules, []hook{{0, set(s.Table)}, {2*page + page/2, set(swapped)}})
	return r, errors.Join(err, s.Session.SetTable(s.Table))
}

// ShuffledTable is a page table of n pages in which no page follows its
// neighbour in order, so that a kernel that ignores the table is noticed.
func ShuffledTable(pages int) []uint32 {
	table := make([]uint32, pages)
	for i := range table { // in steps of 7 where that visits all pages and is not a step of 1, else backwards
		p := pages - 1 - i
		if pages%7 != 0 && 6%pages != 0 {
			p = (i*7 + 3) % pages
		}
		table[i] = uint32(p)
	}
	return table
}
