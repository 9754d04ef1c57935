package emit_test

import (
	"regexp"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/stretchr/testify/require"
)

// What the ends of a span are to a trace: read by all, of use to one thread after others have met.
func clockedWait(k *dsl.Kernel) {
	flag, times := dsl.Global[dsl.U32](k, "flag", 1), dsl.Global[dsl.B128](k, "times", 0)
	kept, n := dsl.NewVar(k.U32(0), "kept"), dsl.Scalar[dsl.U32](k, "n", "")
	last := k.Lane().EqC(0).And(k.Warp().EqC(3))
	k.For(k.U32(0), n, func(i dsl.Val[dsl.U32]) {
		begin := dsl.Cast[dsl.U32](k.Clock())
		k.If(k.Tid().EqC(0), func() { dsl.WaitUntil(flag, dsl.At(0), dsl.GE, i, dsl.Acquire(dsl.GPUScope)) })
		end := dsl.Cast[dsl.U32](k.Clock())
		k.Barrier()
		k.If(last.And(kept.Get().Ne(end)), func() { times.Store(i, dsl.Join(kept.Get(), end, i, n)) })
		kept.Set(begin)
	}, dsl.Unroll(1))
}

// Both halves are read: a read of the low one alone is CS2R.32, or S2UR into a uniform register, and that
// one ptxas has moved behind a poll and a barrier.
func TestAClockIsReadWhole(t *testing.T) {
	sass := machineCode(t, nvcctest.Need(t), []byte(print(t, kernel(t, "clocked", clockedWait))))
	reads := regexp.MustCompile(`\S+ U?R\d+, SR_CLOCKLO`).FindAll(sass, -1)
	require.NotEmpty(t, reads)
	for _, r := range reads {
		require.Regexp(t, `^CS2R R`, string(r))
	}
}
