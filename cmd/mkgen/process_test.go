//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

// Whenever a signal comes, the output is there whole or not at all, and nothing
// else is.
func TestInterruptedOutputIsWholeOrAbsent(t *testing.T) {
	deep.Only(t)
	whole := filepath.Join(t.TempDir(), "whole")
	start := time.Now()
	require.NoError(t, exec.Command("mkgen", "--model", "tiny", "-q", "-o", whole).Run())
	took := time.Since(start)
	want, err := os.ReadDir(whole)
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	absent := 0
	times := 40
	if testing.Short() {
		times = 8
	}
	for i := range times {
		dir := t.TempDir()
		signal := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}[i%3]
		cmd := exec.Command("mkgen", "--model", "tiny", "-q", "-o", filepath.Join(dir, "above", "out"))
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(random.Int64N(int64(2 * took))))
		_ = cmd.Process.Signal(signal) // it may have ended
		err := cmd.Wait()
		there, readErr := os.ReadDir(dir)
		require.NoError(t, readErr)
		if len(there) == 0 {
			require.Error(t, err)
			absent++
			continue
		}
		above, readErr := os.ReadDir(filepath.Join(dir, "above"))
		require.NoError(t, readErr)
		require.Len(t, above, 1)
		require.Equal(t, "out", above[0].Name())
		got, readErr := os.ReadDir(filepath.Join(dir, "above", "out"))
		require.NoError(t, readErr)
		require.Len(t, got, len(want))
	}
	if !testing.Short() {
		require.Positive(t, absent, "no signal came in time")
	}
}

// A signal ends the compiler with mkgen, and no file is left: neither the cubin nor the compiler's own.
func TestInterruptedCompilationLeavesNothing(t *testing.T) {
	dir, tmp := t.TempDir(), t.TempDir()
	nvcc, started := filepath.Join(dir, "nvcc"), filepath.Join(dir, "started")
	text := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo ', V13.0.88'; exit; fi\n: >\"$TMPDIR/mine\"\n: >" + started +
		"\nsleep 60\n"
	require.NoError(t, os.WriteFile(nvcc, []byte(text), 0o755))
	cmd := exec.Command("mkgen", "compile", "--model", "tiny", "--no-cache", "-o", filepath.Join(dir, "kernel.cubin"))
	cmd.Env = append(os.Environ(), "NVCC="+nvcc, "TMPDIR="+tmp)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	start := time.Now()
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { _, err := os.Stat(started); return err == nil }, 30*time.Second,
		5*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Equal(t, "mkgen: interrupted; no cubin was written\n", stderr.String())
	require.Less(t, time.Since(start), 30*time.Second)
	require.NoFileExists(t, filepath.Join(dir, "kernel.cubin"))
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A pipe where the layout would be is refused, not waited for.
func TestAPipeAsLayoutIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "layout.json"), 0o666))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	text, err := exec.CommandContext(ctx, "mkgen", "--model", "tiny", "-q", "-o", dir).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), "was not written by mkgen")
}

// The limits are 1 s and 1 GB. What counts is the process's own time on the processors, which other work on the machine
// does not add to, in the best of up to ten runs.
func TestTimeAndMemoryOfGeneratingLlama3(t *testing.T) {
	if testing.Short() {
		t.Skip("under the race detector neither means anything")
	}
	best := time.Hour
	for run := 0; run < 3 || run < 10 && best >= time.Second; run++ {
		cmd := exec.Command("mkgen", "--model", "llama3-8b", "-q", "-o", filepath.Join(t.TempDir(), "out"))
		require.NoError(t, cmd.Start())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		peak := peakResident(t, cmd.Process.Pid, done)
		took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		best = min(best, took)
		if runtime.GOOS == "linux" {
			t.Logf("%v, %d MB", took, peak/1024)
			require.Positive(t, peak)
			require.Less(t, peak, 1<<20, "resident memory, KiB")
		}
	}
	require.Less(t, best, time.Second)
}

// peakResident waits for a process that must succeed, and returns the most memory in KiB that it was seen to have
// resident: 0 where there is no /proc. The kernel's ru_maxrss starts at what the process had that started it, these
// tests.
func peakResident(t *testing.T, pid int, done <-chan error) int {
	t.Helper()
	peak := 0
	for {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(status)) {
			if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
				kib, err := strconv.Atoi(fields[1])
				require.NoError(t, err)
				peak = max(peak, kib)
			}
		}
		select {
		case err := <-done:
			require.NoError(t, err)
			return peak
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// What is generated is a Go package that builds in a module of its own, with
// nothing but the standard library, with and without the build tag cuda.
func TestGeneratedPackageBuildsInAFreshModule(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, exec.Command("mkgen", "--model", "llama3.2-1b", "-q", "-o", filepath.Join(dir, "kernel")).Run())
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	write("go.mod", "module example.com/fresh\n\ngo 1.26\n")
	write("main.go", `package main

import kernel "example.com/fresh/kernel"

func main() {
	var p kernel.Params
	if len(p.Bytes()) != kernel.ParamsBytes || len(kernel.Source()) == 0 || kernel.Layers != 16 || kernel.Packing()[0].Matrix != "qkv" {
		panic("the package does not describe the kernel")
	}
}
`)
	for _, args := range [][]string{{"run", "."}, {"vet", "-tags", "cuda", "./..."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GOPROXY=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	formatted, err := exec.Command("gofmt", "-l", filepath.Join(dir, "kernel")).Output()
	require.NoError(t, err)
	require.Empty(t, string(formatted))
}

// Ctrl-C ends a generation within a few tokens: what there is is printed, and the
// exit code is that of a program which the signal ended.
func TestInterruptedGenerationPrintsWhatThereIs(t *testing.T) {
	if testing.Short() {
		t.Skip("the executor under the race detector")
	}
	args := []string{"run", "--model", "tiny", "--random", "1", "--max-tokens", "120", "5 6"}
	whole, err := exec.Command("mkgen", args...).Output()
	require.NoError(t, err)
	cmd := exec.Command("mkgen", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	first := make([]byte, 1)
	_, err = io.ReadFull(stdout, first) // the text comes before the end
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(stdout)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 130, exit.ExitCode())
	require.Equal(t, "mkgen: interrupted\n", stderr.String())
	got, ended := strings.CutSuffix(string(first)+string(rest), "\n")
	require.True(t, ended)
	require.True(t, strings.HasPrefix(string(whole), got+" "), "%q", got)
	require.Less(t, len(strings.Fields(got)), 60)
}
