package megakernel_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// handedOn is how a sync's end is read: by the thread that waited, before the barrier in
// which the others hear of it, to which a warp may come later; behind it no clock is read.
var handedOn = regexp.MustCompile(
	`const u64 (v\d+) = ptx::clock\(\);\n\s*trace_released\[(turn(?:_\d+)?)(?: \+ (\d+))?\] = \(u32\)(v\d+);\n\s*\}\n` +
		`\s*const u64 (v\d+) = ptx::clock\(\);\n\s*const u32 came(?:_\d+)? = \(u32\)(v\d+);\n\s*ptx::bar_sync<1, \d+>\(\);\n` +
		`\s*const u32 v\d+ = .*;\n\s*const u32 (v\d+) = (turn(?:_\d+)?) \+ (\d+);\n\s*if \(v\d+\) \{\n\s*const u32 v\d+ = trace_state\[1\];\n.*\n\s*\*\(uint4\*\)&trace_listed\[.*\] = make_uint4\(began\w*, came\w*, v\d+, (v\d+)\);`)

func TestTheEndOfASyncIsReadBeforeItsBarrier(t *testing.T) {
	for _, rows := range []int{1, 8} {
		mk, source := printed(t, rows, 100)
		syncs := 0
		for _, s := range mk.Traced {
			if s.Kind == pipeline.TraceSync {
				syncs++
			}
		}
		require.Greater(t, syncs, 3)
		found := handedOn.FindAllStringSubmatch(source, -1)
		require.Len(t, found, syncs, "%d rows", rows)
		words := map[string]bool{}
		for _, f := range found {
			require.Equal(t, []string{f[1], f[2], f[5], f[7]}, []string{f[4], f[8], f[6], f[10]})
			word, _ := strconv.Atoi(f[3]) // none of the first
			require.Equal(t, strconv.Itoa(word+1), f[9], "the word of the sync that is listed")
			words[f[3]] = true
		}
		require.Len(t, words, syncs, "each sync has a word of its own")
	}
}

// A trace that is off costs nothing: nothing of it is in the kernel.
func TestAKernelWithoutATraceHasNothingOfIt(t *testing.T) {
	for _, rows := range []int{1, 8} {
		for _, trace := range []int{0, 100} {
			_, source := printed(t, rows, trace)
			for _, of := range []string{"ptx::clock()", pipeline.BufferSpans, pipeline.BufferSpanHeads, "trace"} {
				require.Equal(t, trace > 0, strings.Contains(source, of), "%d rows, %d spans: %s", rows, trace, of)
			}
		}
	}
}

// printed is tiny's kernel with room for n spans, and its text.
func printed(t *testing.T, rows, trace int) (*megakernel.Kernel, string) {
	t.Helper()
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	target, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	mk, err := megakernel.Build(tiny, megakernel.Options{Tokens: rows, SMs: 8, Trace: trace})
	require.NoError(t, err)
	source, err := emit.Print(mk.IR, target, megakernel.EmitOptions())
	require.NoError(t, err)
	return mk, string(source.Text)
}

// A trace takes shared memory, and the ring what it leaves: at most a stage less.
func TestATraceHasRoomBesideAnyRing(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	fewer := 0
	for bytes := 8 << 10; bytes <= 20<<10; bytes += 1 << 9 {
		o := megakernel.Options{StageBytes: bytes}
		plain, err := megakernel.Build(c, o)
		require.NoError(t, err)
		o.Trace = 100
		traced, err := megakernel.Build(c, o)
		require.NoError(t, err, "stages of %d bytes", bytes)
		require.GreaterOrEqual(t, traced.Plan.Stages, plain.Plan.Stages-1)
		if traced.Plan.Stages < plain.Plan.Stages {
			fewer++
		}
	}
	require.Positive(t, fewer)
	o := megakernel.Options{StageBytes: 12928, Trace: 100, Stages: 15}
	_, err = megakernel.Build(c, o)
	require.ErrorContains(t, err, "at most 14 would fit")
}
