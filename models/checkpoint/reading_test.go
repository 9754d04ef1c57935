package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

type rowFunc = func(tensor string, row int, scratch []half.BF16) ([]byte, error)

func TestReadingDeliversWhatRowDelivers(t *testing.T) {
	for _, fixture := range fixtures() {
		c := open(t, filepath.Join("testdata", fixture))
		for name, tensor := range c.tensors {
			for i := range tensor.rows {
				want, scratch := make([]half.BF16, tensor.cols), make([]half.BF16, tensor.cols)
				require.NoError(t, c.Row(name, i, want))
				require.NoError(t, c.Reading(func(row rowFunc) error {
					raw, err := row(name, i, scratch)
					require.Len(t, raw, 2*tensor.cols)
					for j, x := range want {
						require.Equal(t, x, half.BF16At(raw[2*j:]), "%s %s row %d", fixture, name, i)
					}
					return err
				}))
			}
		}
	}
}

func TestReadingRefusesWhatIsNotThere(t *testing.T) {
	c := open(t, "testdata/single_bf16")
	mine := errors.New("mine")
	require.ErrorIs(t, c.Reading(func(rowFunc) error { return mine }), mine)
	require.NoError(t, c.Reading(func(row rowFunc) error {
		_, err := row("nothing", 0, nil)
		require.ErrorContains(t, err, `tensor "nothing"`)
		_, err = row(embedName, 40, make([]half.BF16, 16))
		require.ErrorContains(t, err, "found row 40 asked for, want 0 to 39")
		_, err = row(embedName, 0, make([]half.BF16, 15))
		require.ErrorContains(t, err, "found a destination of 15 elements, want 16")
		return nil
	}))
	require.PanicsWithValue(t, "mine", func() { _ = c.Reading(func(rowFunc) error { panic("mine") }) })
	require.NoError(t, c.Close(), "the lock was given back")
	require.ErrorIs(t, c.Reading(func(rowFunc) error { return nil }), ErrClosed)
}

func TestReadingNamesTheTensorOfALostPage(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let a mapped file shrink")
	}
	dir := big(t, models.BF16, 400)
	c := open(t, dir)
	require.NoError(t, os.Truncate(filepath.Join(dir, SingleFile), 16384))
	sum := byte(0)
	err := c.Reading(func(row rowFunc) error {
		raw, err := row("model.norm.weight", 0, make([]half.BF16, 4096))
		require.NoError(t, err)
		for _, b := range raw {
			sum += b
		}
		return nil
	})
	require.ErrorContains(t, err, "model.safetensors: model.norm.weight: found 16384 bytes, want")
}
