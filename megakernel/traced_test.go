package megakernel_test

import (
	"regexp"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// behindBarrier is how the clock is read that a warp must not read before it has passed the
// barrier in the line above: it depends on a load from shared memory.
var behindBarrier = regexp.MustCompile(`bar_sync<1, \d+>\(\);\n\s*u32 passed(?:_\d+)? = 0;\n\s*if \(trace_clock\[0\] != 4294967295u\) \{\n[^}]*ptx::clock\(\)[^}]*passed(?:_\d+)? = `)

func TestTheEndOfAHandOffIsReadBehindItsBarrier(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	target, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	for _, rows := range []int{1, 8} {
		mk, err := megakernel.Build(tiny, megakernel.Options{Tokens: rows, SMs: 8, Trace: 100})
		require.NoError(t, err)
		handoffs := 0
		for _, s := range mk.Traced {
			if s.Kind == pipeline.TraceHandoff {
				handoffs++
			}
		}
		require.Greater(t, handoffs, 3)
		source, err := emit.Print(mk.IR, target, megakernel.EmitOptions())
		require.NoError(t, err)
		require.Len(t, behindBarrier.FindAllString(string(source.Text), -1), handoffs, "%d rows", rows)
	}
}
