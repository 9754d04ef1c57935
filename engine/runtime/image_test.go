package runtime_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// medium is a model of 12 MB, so that two jobs at least are of weights.
func medium(t testing.TB, tied bool) *megakernel.Kernel {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Hidden, c.Intermediate, c.Layers, c.Vocab, c.TieEmbeddings = 504, 1008, 3, 1001, tied
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 7})
	require.NoError(t, err)
	return mk
}

// countedRows are cheap tensors that count rows.
type countedRows struct {
	cheap
	rows *atomic.Int64
}

func (c countedRows) Row(tensor string, row int, dst []half.BF16) error {
	c.rows.Add(1)
	return c.cheap.Row(tensor, row, dst)
}

// imaged loads with an image cache; notes get what a user is told.
func imaged(t *testing.T, mk *megakernel.Kernel, w megakernel.Tensors,
	g runtime.Image) (stats runtime.LoadStats, notes []string) {
	t.Helper()
	g.Note = func(text string) { notes = append(notes, text) }
	dev := newMemory(mk)
	last := int64(0)
	stats, err := runtime.FromTensors(w,
		runtime.LoadOptions{Check: true, Image: &g, Workers: 3, Progress: func(done, _ int64) {
			require.Greater(t, done, last)
			last = done
		}}).Load(t.Context(), mk, dev)
	require.NoError(t, err)
	require.Equal(t, stats.Bytes, last)
	require.Equal(t, dev.staged.Load(), dev.freed.Load())
	requireLoaded(t, mk, w, func(name string) []byte { return dev.bytes[name] })
	return stats, notes
}

// images are the files of a cache.
func images(t *testing.T, dir string) []string {
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	hidden, err := filepath.Glob(filepath.Join(dir, ".*-*"))
	require.NoError(t, err)
	require.Empty(t, hidden, "something is left of what was written")
	return all
}

// TestTheSecondLoadTakesTheImage reads hardly any row, by a kernel of other options, too.
func TestTheSecondLoadTakesTheImage(t *testing.T) {
	mk, rows := large(t, false), new(atomic.Int64)
	g := runtime.Image{Dir: filepath.Join(t.TempDir(), "images"), Source: "a", Free: 1}
	stats, notes := imaged(t, mk, countedRows{rows: rows}, g)
	require.False(t, stats.Image)
	require.Empty(t, notes)
	require.Len(t, images(t, g.Dir), 1)
	all := rows.Load()
	other, err := megakernel.Build(mk.Config, megakernel.Options{SMs: 3, Consumers: 2, Tokens: 8})
	require.NoError(t, err)
	for _, mk := range []*megakernel.Kernel{mk, other} {
		dev := newMemory(mk)
		rows.Store(0)
		stats, err := runtime.FromTensors(countedRows{rows: rows},
			runtime.LoadOptions{Check: true, Image: &g}).Load(t.Context(), mk, dev)
		require.NoError(t, err)
		require.True(t, stats.Image)
		require.Less(t, rows.Load(), all, "only some blocks are packed, to compare")
		requireLoaded(t, mk, cheap{}, func(name string) []byte { return dev.bytes[name] })
	}
	require.Len(t, images(t, g.Dir), 1)
}

// TestAnotherSourceOrFormatIsAnotherImage: neither takes the other's.
func TestAnotherSourceOrFormatIsAnotherImage(t *testing.T) {
	mk := medium(t, true)
	g := runtime.Image{Dir: t.TempDir(), Source: "a", Free: 1}
	imaged(t, mk, cheap{}, g)
	g.Source = "b"
	stats, _ := imaged(t, mk, cheap{}, g)
	require.False(t, stats.Image)
	require.Len(t, images(t, g.Dir), 2)
	rounded, err := megakernel.Build(mk.Config, megakernel.Options{SMs: 7, Weights: pipeline.FormatE4M3})
	require.NoError(t, err)
	dev := newMemory(rounded)
	stats, err = runtime.FromTensors(cheap{}, runtime.LoadOptions{Check: true, Image: &g}).Load(t.Context(), rounded, dev)
	require.NoError(t, err)
	require.False(t, stats.Image)
	require.Len(t, images(t, g.Dir), 3)
}

// TestDamagedImagesAreMadeAgain: cut, longer, changed in a job, in its sums and in the seal, and of other weights.
func TestDamagedImagesAreMadeAgain(t *testing.T) {
	mk := medium(t, true)
	g := runtime.Image{Dir: t.TempDir(), Source: "a", Free: 1}
	imaged(t, mk, cheap{}, g)
	path := images(t, g.Dir)[0]
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	flip := func(at int) []byte {
		data := append([]byte(nil), good...)
		data[at] ^= 1
		return data
	}
	for what, bad := range map[string][]byte{
		"cut": good[:len(good)-1], "empty": {}, "longer": append(append([]byte(nil), good...), 0), "first byte": flip(0),
		"a third": flip(len(good) / 3),
		"sums":    flip(len(good) - 33), "seal": flip(len(good) - 1),
	} {
		require.NoError(t, os.WriteFile(path, bad, 0o644))
		stats, notes := imaged(t, mk, cheap{}, g)
		require.False(t, stats.Image, what)
		require.Len(t, notes, 1, what)
		require.Regexp(t, `^image cache: .*\.image: it is damaged.*; the weights are packed again$`, notes[0])
		again, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, good, again, what)
	}
	_, notes := imaged(t, mk, spoiledGain{}, g)
	require.Len(t, notes, 1)
	require.Contains(t, notes[0], "it holds other weights")
}

// spoiledGain is cheap with another gain.
type spoiledGain struct{ cheap }

func (s spoiledGain) Row(tensor string, row int, dst []half.BF16) error {
	err := s.cheap.Row(tensor, row, dst)
	if tensor == "model.norm.weight" {
		dst[0] ^= 1
	}
	return err
}

func TestImagesLeaveRoomOnTheDisk(t *testing.T) {
	mk := medium(t, true)
	g := runtime.Image{Dir: t.TempDir(), Source: "a", Free: 1 << 60}
	_, notes := imaged(t, mk, cheap{}, g)
	require.Len(t, notes, 1)
	require.Regexp(t, `^image cache: no image is kept: it takes [\d.]+ MB, the disk has .* free, and 1.153 EB are to stay so$`, notes[0])
	require.Empty(t, images(t, g.Dir))

	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	g = runtime.Image{Dir: filepath.Join(file, "images"), Source: "a", Free: 1}
	_, notes = imaged(t, mk, cheap{}, g)
	require.NotEmpty(t, notes)
}

// TestFailedLoadsLeaveNoImage: nor do those that do not check weights.
func TestFailedLoadsLeaveNoImage(t *testing.T) {
	mk := medium(t, true)
	g := runtime.Image{Dir: t.TempDir(), Source: "a", Free: 1}
	failure := errors.New("failed")
	w := runtime.FromTensors(spoiled{tensor: "model.layers.1.mlp.up_proj.weight", row: 31, err: failure},
		runtime.LoadOptions{Check: true, Image: &g})
	_, err := w.Load(t.Context(), mk, newMemory(mk))
	require.ErrorIs(t, err, failure)
	require.Empty(t, images(t, g.Dir))
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = runtime.FromTensors(cheap{}, runtime.LoadOptions{Check: true, Image: &g}).Load(ended, mk, newMemory(mk))
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, images(t, g.Dir))
	_, err = runtime.FromTensors(cheap{}, runtime.LoadOptions{Image: &g}).Load(t.Context(), mk, newMemory(mk))
	require.NoError(t, err)
	require.Empty(t, images(t, g.Dir))
}
