package main

import (
	"fmt"
	"io"

	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
)

// provenance prints, for tables that are kept as files, which program measured which kernel
// with what. On the executor there is nothing to keep.
func provenance(w io.Writer, facts bench.Facts, mk *megakernel.Kernel) {
	if facts.Executor {
		return
	}
	fmt.Fprintf(w, "Driver %s, CUDA %s, %s; mkgen of commit %s.\n", facts.Driver, facts.CUDA, facts.Compiler,
		revision.String())
	fmt.Fprintf(w, "The kernel: %s --watchdog %s\n", tune.ChoiceOf(mk), mk.Options.Watchdog)
}
