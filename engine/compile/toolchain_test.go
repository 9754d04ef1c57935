package compile

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// tiny is the kernel of the model tiny.
func tiny(t *testing.T) Source {
	t.Helper()
	config, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(config, megakernel.Options{})
	require.NoError(t, err)
	s, err := SourceOf(mk, "sm_90a")
	require.NoError(t, err)
	return s
}

// broken is the source with its first occurrence of old, after the line number from, replaced; line is where (from 1).
func broken(t *testing.T, s Source, from int, old, by string) (changed Source, line int) {
	t.Helper()
	lines := strings.Split(string(s.Text), "\n")
	for i := from; i < len(lines); i++ {
		if strings.Contains(lines[i], old) {
			lines[i] = strings.Replace(lines[i], old, by, 1)
			s.Text = []byte(strings.Join(lines, "\n"))
			return s, i + 1
		}
	}
	require.Failf(t, "nothing to break", "no %q after line %d", old, from)
	return s, 0
}

// body is the first line, from 0, of the kernel's own code that a template emitted.
func body(s Source) int {
	for i, pos := range s.Lines {
		if pos.Line != "" {
			return i
		}
	}
	return 0
}

// checkTiny demands what holds of tiny's cubin whatever compiled it.
func checkTiny(t *testing.T, r *Result) {
	t.Helper()
	require.True(t, strings.HasPrefix(string(r.Cubin), "\x7fELF"))
	require.Equal(t, "mkgen_step", r.Function)
	require.Zero(t, r.SpillBytes+r.Stack)
	require.Positive(t, r.Registers)
	require.Equal(t, len(r.Cubin), r.Bytes)
}

// checkBroken demands that errors of the front end and of ptxas lead to the template's Go line. ptx says whether those
// of ptxas can.
func checkBroken(t *testing.T, opt Options, ptx bool) {
	t.Helper()
	s := tiny(t)
	s, line := broken(t, s, body(s)+40, ");", "); undeclared = 1;")
	require.NotEmpty(t, s.Lines[line-1].Line)
	_, err := Kernel(t.Context(), s, opt)
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Len(t, refused.Problems, 1)
	require.Equal(t, s.Lines[line-1], refused.Problems[0].Pos)
	require.Equal(t, line, refused.Problems[0].Line)
	require.Contains(t, err.Error(), `identifier "undeclared" is undefined`)
	require.Contains(t, err.Error(), "emitted by "+s.Lines[line-1].String())

	s, line = broken(t, tiny(t), 0, "bar.sync", "bar.bogus")
	_, err = Kernel(t.Context(), s, opt)
	require.ErrorAs(t, err, &refused)
	require.Contains(t, err.Error(), "ptxas: Unknown modifier '.bogus'")
	if !ptx {
		return
	}
	for _, p := range refused.Problems {
		require.Equal(t, line, p.Inside)
		require.Contains(t, p.InsideCode, "bar.bogus")
		require.NotEmpty(t, p.Pos.Line, "%s", p)
		printed := emit.Source{Text: s.Text, Lines: s.Lines}
		require.Equal(t, printed.Pos(p.Line), p.Pos)
		require.Contains(t, p.Code, "bar_sync")
	}
}

func TestNvccCompilesTiny(t *testing.T) {
	c := nvcctest.Need(t)
	opt := Options{With: Nvcc, Dir: t.TempDir()}
	r, err := Kernel(t.Context(), tiny(t), opt)
	require.NoError(t, err)
	checkTiny(t, r)
	require.Equal(t, "nvcc "+c.Version, r.Compiler)
	again, err := Kernel(t.Context(), tiny(t), opt)
	require.NoError(t, err)
	require.True(t, again.Cached)
	require.Equal(t, r.Cubin, again.Cubin)
}

// The nvcc here is a script in a folder of its own, so that no nvdisasm stands beside it.
func TestWithoutNvdisasmThePTXIsHeld(t *testing.T) {
	c, dir := nvcctest.Need(t), t.TempDir()
	alone := filepath.Join(dir, "nvcc")
	require.NoError(t, os.WriteFile(alone, []byte("#!/bin/sh\nexec '"+c.Path+"' \"$@\"\n"), 0o777))
	for name, value := range map[string]string{"NVCC": alone, "MKGEN_CACHE": dir, "CUDA_HOME": ""} {
		t.Setenv(name, value)
	}
	if nvcc.Disassembles(alone) {
		t.Skip("there is an nvdisasm at a fixed place")
	}
	for range 2 { // compiled, and from the cache
		r, err := Kernel(t.Context(), tiny(t), Options{})
		require.NoError(t, err)
		require.NoError(t, r.Held())
		require.True(t, r.Machine.PTX)
		require.Greater(t, r.Machine.Events, 100)
	}
	t.Setenv("NVCC", c.Path)
	if nvcc.Disassembles(c.Path) {
		r, err := Kernel(t.Context(), tiny(t), Options{})
		require.NoError(t, err)
		require.True(t, r.Cached)
		require.False(t, r.Machine.PTX, "the machine code is held once it can be")
	}
}

func TestNvccsErrorsLeadToTheTemplate(t *testing.T) {
	nvcctest.Need(t)
	t.Setenv("TMPDIR", t.TempDir())
	checkBroken(t, Options{With: Nvcc, NoCache: true}, true)
	empty(t, os.Getenv("TMPDIR"))
}

func TestCancellingNvccLeavesNothing(t *testing.T) {
	nvcctest.Need(t)
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Kernel(ctx, tiny(t), Options{With: Nvcc, NoCache: true})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	empty(t, os.Getenv("TMPDIR"))
}
