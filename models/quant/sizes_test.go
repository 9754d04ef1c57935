package quant_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFixturesAreSmall holds the checkpoints that packages wrote, here and for unquantised ones, to 3 MB together, and
// each file to 200 kB.
func TestFixturesAreSmall(t *testing.T) {
	total := int64(0)
	for _, root := range []string{"testdata", "../checkpoint/testdata"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			require.Less(t, info.Size(), int64(200_000), path)
			total += info.Size()
			return nil
		}))
	}
	require.Greater(t, total, int64(1_000_000), "fixtures are missing")
	require.Less(t, total, int64(3_000_000))
	t.Logf("%.2f MB", float64(total)/1e6)
}

// TestShardedFixturesHaveShards and an index; the others are one file.
func TestShardedFixturesHaveShards(t *testing.T) {
	sharded := 0
	for _, dir := range fixtures(t) {
		files, err := filepath.Glob(dir + "/*.safetensors")
		require.NoError(t, err)
		_, err = os.Stat(dir + "/model.safetensors.index.json")
		if !strings.HasSuffix(dir, "_sharded") {
			require.Len(t, files, 1, dir)
			require.ErrorIs(t, err, fs.ErrNotExist, dir)
			continue
		}
		require.NoError(t, err, dir)
		require.Greater(t, len(files), 1, dir)
		sharded++
	}
	require.Greater(t, sharded, 5)
}
