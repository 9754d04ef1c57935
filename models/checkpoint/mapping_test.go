package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// poke writes a NaN over one element of a file in F32.
func poke(t *testing.T, c *Checkpoint, dir, name string, index int64) {
	f, err := os.OpenFile(filepath.Join(dir, SingleFile), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{0, 0, 0xc0, 0x7f}, c.tensors[name].start+4*index)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestFileThatShrinksIsAnErrorAndNoCrash(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let a mapped file shrink")
	}
	dir := big(t, models.BF16, 400)
	c := open(t, dir)
	size := int64(len(c.files[0].data))
	require.NoError(t, os.Truncate(filepath.Join(dir, SingleFile), 16384))
	row := make([]half.BF16, 4096)
	want := "found 16384 bytes, want " + strconv.FormatInt(size, 10) +
		" bytes, as when it was opened; a checkpoint must not change while it is read"
	require.EqualError(t, c.Row("model.norm.weight", 0, row), "model.safetensors: model.norm.weight: "+want)
	require.ErrorContains(t, c.Check(t.Context(), nil), want)
	require.NoError(t, c.Row(embedName, 0, row), "the first pages are still there")
}

func TestOtherFaultsStayPanics(t *testing.T) {
	c := open(t, "testdata/single_bf16")
	tensor := c.tensors[embedName]
	require.PanicsWithValue(t, "mine", func() { _ = c.read(tensor, func() error { panic("mine") }) })
	require.Panics(t, func() {
		var nowhere *Checkpoint
		_ = c.read(tensor, func() error { nowhere.closed = true; return nil })
	})
	require.NoError(t, c.Row(embedName, 0, make([]half.BF16, 16)), "the lock was given back")
}

func TestFaultInAnotherMappingStaysAPanic(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let a mapped file shrink")
	}
	dir := big(t, models.BF16, 400)
	shrunk, c := open(t, dir), open(t, "testdata/single_bf16")
	require.NoError(t, os.Truncate(filepath.Join(dir, SingleFile), 8192))
	lost := shrunk.tensors["model.norm.weight"].row(0)
	require.Panics(t, func() {
		_ = c.read(c.tensors[embedName], func() error { return errors.New(string(lost)) })
	})
}

func TestRowsAllocateNothing(t *testing.T) {
	for _, fixture := range fixtures() {
		c := open(t, filepath.Join("testdata", fixture))
		row := make([]half.BF16, 16)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if err := c.Row(embedName, 3, row); err != nil {
				panic(err)
			}
		}))
	}
}

func TestReadingDoesNotCopyTheFileToMemory(t *testing.T) {
	dir := big(t, models.BF16, 400)
	anonymous := residentAnonymous(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := open(t, dir)
	readAll(t, c, 2)
	require.NoError(t, c.Check(t.Context(), nil))
	runtime.ReadMemStats(&after)
	require.Greater(t, c.Bytes(), int64(300<<20))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), "bytes ever allocated on the heap")
	if anonymous >= 0 {
		require.Less(t, residentAnonymous(t)-anonymous, int64(32<<20), "resident bytes that no file backs")
	}
}

// residentAnonymous is the process's resident memory less mapped files, -1 where
// the system does not tell.
func residentAnonymous(t *testing.T) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); fields[0] == "RssAnon:" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			require.NoError(t, err)
			return n << 10
		}
	}
	return -1
}
