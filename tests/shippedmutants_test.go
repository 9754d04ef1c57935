package tests

import (
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// The producer's fence for tokens that other SMs have stored stands behind the wait for the
// step, which makes them known. Before it, it covers them only by chance: where a ring has gone round
// since. A kernel of one layer whose ring holds all of a step's chunks shows it.
func TestAFenceBeforeTheStepIsKnownIsReported(t *testing.T) {
	s := newShort(t)
	k, moved := mutate.Clone(s.ir), 0
	eachBlock(k.Body, func(b *ir.Block) {
		fence := slices.IndexFunc(b.Stmts, func(s ir.Stmt) bool {
			in, ok := s.(*ir.Instr)
			return ok && in.Op == ir.OpFenceProxy && in.Attr.Imm == ir.FenceGlobal
		})
		wait := slices.IndexFunc(b.Stmts, func(s ir.Stmt) bool {
			in, ok := s.(*ir.Instr)
			return ok && in.Op == ir.OpWaitMBar && in.Mem[0].Buf.Name == "step_ready"
		})
		if wait < 0 || fence < wait {
			return
		}
		in := b.Stmts[fence]
		b.Stmts = slices.Insert(slices.Delete(b.Stmts, fence, fence+1), wait, in)
		moved++
	})
	require.Equal(t, 1, moved)
	report, place, err := s.run(t.Context(), k, 1)
	require.NoError(t, err)
	require.Equal(t, "missing proxy fence", report)
	require.Contains(t, place, "pipeline/ring.go")
}

// eachBlock visits a block and all within.
func eachBlock(b *ir.Block, visit func(*ir.Block)) {
	visit(b)
	for _, s := range b.Stmts {
		for _, inner := range ir.Blocks(s) {
			eachBlock(inner, visit)
		}
	}
}

// A thread of the 8B kernel polls four packets of a vector at once. Each of them is waited
// for: without any one of the waits the kernel computes something else, or races.
func TestEachOfAThreadsPacketsIsWaitedFor(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Hidden, c.Intermediate, c.Vocab, c.BOS, c.EOS = 512, 160, 32, models.NoToken, nil // 128 packets for 32 threads
	s := subjectOf(t, c, megakernel.Options{SMs: 3, Splits: 2, Consumers: 1, Stages: 3, InFlight: 2}, 2)
	waits := map[string]int{}
	ms := slices.DeleteFunc(packetWaits(s), func(m mutant) bool {
		words := strings.TrimPrefix(m.Name, packetWait)
		return words != "o_words" && words != "down_words"
	})
	for _, o := range s.tryAll(t, ms, nil) {
		require.NotEmpty(t, o.Report, "%s", o)
		waits[strings.TrimPrefix(o.Name, packetWait)]++
	}
	require.Equal(t, map[string]int{"o_words": 4, "down_words": 8}, waits, "in gate_up; in qkv and the LM head")
}
