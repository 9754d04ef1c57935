package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/emit/sass"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/pipeline"
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

// A checkpoint that a quantiser's package wrote runs, and says what becomes of it.
func TestAQuantisedCheckpointRuns(t *testing.T) {
	cmd := newRun()
	var out, err bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&err)
	cmd.SetArgs([]string{"--checkpoint", "../../models/quant/testdata/gptq_i4g32", "--device", "sim", "--max-tokens", "4",
		"1 2 3"})
	require.NoError(t, cmd.Execute())
	require.Len(t, strings.Fields(out.String()), 4)
	require.Equal(t, "The checkpoint is gptq: 7 matrices of i4g32 with f16 scales; the kernel's format is i4g32-f16, which has just these codes and scales.\n", err.String())
}

// Of a checkpoint that mixes formats a kernel has each matrix's own, and a line says what is widened beside them: with
// one row, several, and a prefill kernel.
func TestAMixedCheckpointRuns(t *testing.T) {
	for _, args := range [][]string{nil, {"--rows", "3"}, {"--prefill", "64"}} {
		code, out, told := mkgen(append([]string{"run", "--checkpoint", "../../models/quant/testdata/gptq_dynamic", "--device",
			"sim", "--max-tokens", "4", "1 2 3"}, args...)...)
		require.Zero(t, code, told)
		require.Len(t, strings.Fields(out), 4)
		require.Contains(t, told, "the kernel's format is i8,qkv=bf16,o=bf16,down=i4g32-f16, which has just these codes and "+
			"scales; qkv is widened to bf16, as model.layers.0.self_attn.k_proj.weight is bf16; o is widened to bf16, as "+
			"model.layers.0.self_attn.o_proj.weight has groups of 16 columns, want 32, 64, 128 or a whole row.")
	}
}

// What a model of the config.json cannot have is refused by name.
func TestAQuantisedCheckpointOfAnotherModelIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../../models/quant/testdata/gptq_i4g32")))
	text, e := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, e)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"),
		bytes.Replace(text, []byte(`"intermediate_size": 96`), []byte(`"intermediate_size": 128`), 1), 0o644))
	cmd := newRun()
	cmd.SetArgs([]string{"--checkpoint", dir, "1 2 3"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	require.ErrorContains(t, cmd.Execute(), "model.layers.0.mlp.down_proj.weight: found 64 rows of 96, want 64 of 128")
}

// Two turns, an empty line between them; the second one finds the first in the
// KV cache. The answers are those of two single turns.
func TestAConversationGoesOnUntilTheInputEnds(t *testing.T) {
	s, out, err := opened(t)
	const question = "hi there, who are you" // more than a page, which is what is shared
	require.NoError(t, s.converse(t.Context(), strings.NewReader(question+"\n\nand then")))
	figures := strings.Split(strings.ReplaceAll(err.String(), "> ", ""), "\n")
	require.Len(t, figures, 4) // the last prompt ends with the input
	require.Regexp(t, `prompt \d+ tokens \(0 reused\), generated 6`, figures[0])
	require.NotContains(t, figures[1], "(0 reused)")
	require.Equal(t, 4, strings.Count(err.String(), "> "))
	require.True(t, strings.HasSuffix(out.String(), "\n"))

	first, alone, _ := opened(t)
	require.NoError(t, first.once(t.Context(), question))
	require.True(t, strings.HasPrefix(out.String(), alone.String()))
}

func TestAConversationEndsWithAnError(t *testing.T) {
	s, out, err := opened(t)
	require.ErrorContains(t, s.converse(t.Context(), strings.NewReader("\xff\nhi\n")), "not UTF-8")
	require.Empty(t, out.String())
	require.Equal(t, "> ", err.String()) // no figures of what was not begun
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

func TestAHangIsALineForEachWaitAndOneForTheError(t *testing.T) {
	var w bytes.Buffer
	err := hung(&w, fmt.Errorf("engine: %w",
		&runtime.HangError{After: time.Second, Pos: 7, Stuck: []pipeline.Stuck{{SM: 1, Layer: 0}, {SM: 2, Layer: 5}}}))
	require.EqualError(t, err, "the kernel made no step for 1s and was given up at position 7")
	lines := strings.Split(strings.TrimSuffix(w.String(), "\n"), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "mkgen: SM 1")
	require.Contains(t, lines[1], "layer 5")
	other := errors.New("other")
	require.Equal(t, other, hung(&w, other))
	require.NoError(t, hung(&w, nil))
}

// Machine code that differs from its program is an error of mkgen compile, and of mkgen run a warning unless --strict;
// machine code of which nothing is known is an error with --strict only.
func TestMachineCodeThatDiffersIsAnErrorOrAWarning(t *testing.T) {
	const both = "a fence, where the program has membar.gpu at grid/barrier.go:108"
	differs := &compile.Result{Machine: &sass.Report{Findings: []sass.Finding{{Address: 16, Text: both}}}}
	unknown := &compile.Result{Unchecked: "no nvdisasm"}
	for _, c := range []struct {
		name         string
		r            *compile.Result
		strict       bool
		fails, warns bool // of mkgen run
		compileFails bool
		says         string
	}{
		{"differs", differs, false, false, true, true, both},
		{"differs, strict", differs, true, true, false, true, both},
		{"unknown", unknown, false, false, false, false, "no nvdisasm"},
		{"unknown, strict", unknown, true, true, false, true, "no nvdisasm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			err := (&runFlags{strict: c.strict}).compiled(&out, c.r)
			require.Equal(t, c.fails, err != nil, "%v", err)
			if c.fails {
				require.ErrorContains(t, err, c.says)
			}
			if c.warns {
				require.Contains(t, out.String(), "mkgen: warning: ")
				require.Contains(t, out.String(), c.says)
			} else {
				require.Empty(t, out.String())
			}
			out.Reset()
			_, err = eventsHeld(&out, "tiny", c.r, c.strict)
			require.Equal(t, c.compileFails, err != nil, "%v", err)
			if c.compileFails {
				require.ErrorContains(t, err, c.says)
			} else {
				require.Contains(t, out.String(), c.says)
			}
		})
	}
}
