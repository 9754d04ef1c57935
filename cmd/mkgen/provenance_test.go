package main

import (
	"bytes"
	"testing"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestTablesThatAreKeptSayWhatTheyAreOf(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(tiny, megakernel.Options{SMs: 2})
	require.NoError(t, err)
	var out bytes.Buffer
	provenance(&out, bench.Facts{GPU: "NVIDIA H200", Driver: "580.1", CUDA: "13.0", Compiler: "nvcc 13.0.88"}, mk)
	require.Regexp(t, `^Driver 580\.1, CUDA 13\.0, nvcc 13\.0\.88; mkgen of commit \S+\.\nThe kernel: --stage-bytes \d+ --stages \d+ .*--held \d+ .*--watchdog grid\n$`, out.String())
	out.Reset()
	provenance(&out, bench.Facts{Executor: true}, mk)
	require.Empty(t, out.String())
}
