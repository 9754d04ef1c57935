package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/tests/enginecases"
	"github.com/stretchr/testify/require"
)

// opened is a speaker on the executor with the checkpoint of enginecases.
func opened(t *testing.T, args ...string) (s *speaker, out, err *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, enginecases.WriteCheckpoint(dir, 5))
	r := &runFlags{device: deviceSim, maxTokens: 6, weights: weights{checkpoint: dir}, verbose: true, chat: true}
	r.arch = "sm_90a"
	cmd := newRun()
	require.NoError(t, cmd.ParseFlags(append([]string{"--checkpoint", dir}, args...)))
	s, e := r.open(t.Context(), cmd)
	require.NoError(t, e)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	out, err = &bytes.Buffer{}, &bytes.Buffer{}
	s.out, s.err = out, err
	return s, out, err
}

// Two turns, an empty line between them; the second one finds the first in the
// KV cache. The answers are those of two single turns.
func TestAConversationGoesOnUntilTheInputEnds(t *testing.T) {
	s, out, err := opened(t)
	require.NoError(t, s.converse(t.Context(), strings.NewReader("hi\n\nand then")))
	figures := strings.Split(strings.ReplaceAll(err.String(), "> ", ""), "\n")
	require.Len(t, figures, 4) // the last prompt ends with the input
	require.Contains(t, figures[0], "prompt 6 tokens (0 reused), generated 6")
	require.NotContains(t, figures[1], "(0 reused)")
	require.Equal(t, 4, strings.Count(err.String(), "> "))
	require.True(t, strings.HasSuffix(out.String(), "\n"))

	first, alone, _ := opened(t)
	require.NoError(t, first.once(t.Context(), "hi"))
	require.True(t, strings.HasPrefix(out.String(), alone.String()))
}

func TestRunStreamsWhileOtherCommandsHoldTheirOutput(t *testing.T) {
	var direct bytes.Buffer
	out := &held{to: &direct}
	_, err := out.Write([]byte("held"))
	require.NoError(t, err)
	require.Empty(t, direct.String())
	_, err = streaming(out).Write([]byte("streamed"))
	require.NoError(t, err)
	require.Equal(t, "streamed", direct.String())
}
