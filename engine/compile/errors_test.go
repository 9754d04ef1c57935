package compile

import (
	"errors"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

func TestAnErrorShowsTheEmittedLineAndTheGoLine(t *testing.T) {
	opt, _ := fake(t)
	_, err := Kernel(t.Context(), source("int a;", "  int b = BROKEN;", "int c;"), opt)
	require.EqualError(t, err,
		`nvcc 13.0.88 does not compile the kernel of test: kernel.cu:2: BROKEN is undefined: "int b = BROKEN;", `+
			`emitted by tasks/t.go:20 (called from megakernel/m.go:5)`)
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []*Problem{{Text: "BROKEN is undefined", Line: 2, Code: "int b = BROKEN;",
		Pos: ir.Pos{Line: "tasks/t.go:20", Caller: "megakernel/m.go:5"}}}, refused.Problems)
	entries, err := Kernel(t.Context(), source("int a;"), opt) // the failure is not remembered as a cubin
	require.NoError(t, err)
	require.False(t, entries.Cached)
}

func TestSeveralErrorsAreSeveralProblems(t *testing.T) {
	opt, _ := fake(t)
	s := source("BROKEN1;", "BROKEN2;")
	s.Lines = nil
	_, err := Kernel(t.Context(), s, opt)
	require.ErrorContains(t, err, "kernel.cu:1: BROKEN is undefined: \"BROKEN1;\", emitted for no template\nkernel.cu:2: ")
}

func TestMessagesOfEveryFormAreRead(t *testing.T) {
	s := source("first", "second", "third")
	for log, want := range map[string]Problem{
		"kernel.cu(2): error: expected a \";\"": {
			Text: `expected a ";"`, Line: 2, Code: "second", Pos: s.Lines[1]},
		"/tmp/x y/kernel.cu(3): error #20-D: identifier is undefined\r": {
			Text: "identifier is undefined", Line: 3, Code: "third", Pos: s.Lines[2]},
		"kernel.cu(1): catastrophic error: cannot open": {
			Text: "cannot open", Line: 1, Code: "first", Pos: s.Lines[0]},
		"/tmp/kernel.cu:2:7: fatal error: x.h: No such file": {
			Text: "x.h: No such file", Line: 2, Code: "second", Pos: s.Lines[1]},
		"ptxas error   : Entry function 'k' uses too much shared data": {
			Text: "Entry function 'k' uses too much shared data"},
		"nvcc fatal   : Failed to preprocess host compiler properties.": {
			Text: "Failed to preprocess host compiler properties. (nvcc needs gcc on PATH)"},
		"nvcc fatal   : Unsupported gpu architecture 'compute_90a'": {
			Text: "Unsupported gpu architecture 'compute_90a'"},
		"nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make it": {
			Text: "failed to open libnvrtc-builtins.so.13.0."},
		"ptxas kernel.ptx, line 7; error   : Unknown modifier '.x'\nptxas fatal   : Ptx assembly aborted due to errors": {
			Text: "ptxas: Unknown modifier '.x'"},
	} {
		e := (&refusal{compiler: "nvcc 1", log: log, cause: errors.New("exit status 1")}).explain(&job{src: s})
		require.Len(t, e.Problems, 1, "%q", log)
		require.Equal(t, want, *e.Problems[0], "%q", log)
	}
	e := (&refusal{compiler: "nvcc 1", log: "gcc: No such file", cause: errors.New("exit status 1")}).explain(&job{src: s})
	require.EqualError(t, e, "nvcc 1 does not compile the kernel of test: exit status 1: gcc: No such file")
}

func TestErrorsOfPtxasLeadThroughThePTX(t *testing.T) {
	s := source(make([]string, 400)...)
	r := &refusal{compiler: "nvcc 1",
		log: "ptxas a.ptx, line 12; error   : Unknown modifier '.bogus'\nptxas a.ptx, line 12; error   : Unknown modifier '.bogus'", ptx: []byte(strings.Repeat("\n", 9) + "\t.loc\t1 400 3\n\t.loc\t1 112 7, function_name $x, inlined_at 1 400 3\n\tbar.bogus 1;\n"), cause: errors.New("exit status 255")}
	e := r.explain(&job{src: s})
	require.EqualError(t, e,
		`nvcc 1 does not compile the kernel of test: kernel.cu:400: ptxas: Unknown modifier '.bogus': "", inside it line 112: "", `+
			`emitted by tasks/t.go:4000 (called from megakernel/m.go:5)`)
}
