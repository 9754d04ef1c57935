package dsl_test

import (
	"bytes"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/emit"
	"github.com/stretchr/testify/require"
)

// A note is a comment in the kernel, with the template, and nothing else: text that would end it stays in it.
func TestANoteIsACommentWithItsTemplate(t *testing.T) {
	k := dsl.New("noted", dsl.Options{Warps: 1, Grid: 1})
	out := dsl.Global[dsl.U32](k, "out", 32)
	k.Note("store %d lanes */\n#include <evil>\\", 32)
	out.Store(k.Lane(), k.Lane())
	built, err := k.Finish()
	require.NoError(t, err)
	require.Contains(t, built.String(), `note "store 32 lanes */\n#include <evil>\\"`)
	target, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, emit.CUDA(&text, built, target))
	require.Regexp(t, `(?m)^  // store 32 lanes \*/ include <evil>  \[dsl/note_test.go, TestANoteIsACommentWithItsTemplate\]$`, text.String())
}

func TestWhatChangesNothingIsNotEmitted(t *testing.T) {
	k := dsl.New("folded", dsl.Options{Warps: 1, Grid: 1})
	out := dsl.Global[dsl.U32](k, "out", 32)
	lane := k.Lane()
	out.Store(lane, lane.Sub(lane).Add(lane.MinC(0)).Add(k.U32(0).Max(lane)))
	built, err := k.Finish()
	require.NoError(t, err)
	require.NotContains(t, built.String(), "sub")
	require.NotContains(t, built.String(), "min")
	require.NotContains(t, built.String(), "max")
}
