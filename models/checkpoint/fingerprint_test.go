package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFingerprintsChangeWithTheFiles: with a byte of a header, of the last weights, a time, a name and the
// configuration.
func TestFingerprintsChangeWithTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[1]") // a pattern, for who looks for patterns
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/sharded_f16")))
	then := time.Unix(1_700_000_000, 0)
	file := filepath.Join(dir, "model-00002-of-00003.safetensors")
	get := func() string {
		sum, err := Fingerprint(dir)
		require.NoError(t, err)
		return sum
	}
	require.NoError(t, os.Chtimes(file, then, then))
	seen := map[string]bool{get(): true}
	require.True(t, seen[get()])
	fresh := func() {
		t.Helper()
		sum := get()
		require.False(t, seen[sum])
		seen[sum] = true
	}
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, at := range []int{20, len(content) - 1} {
		content[at] ^= 1
		require.NoError(t, os.WriteFile(file, content, 0o644))
		require.NoError(t, os.Chtimes(file, then, then))
		fresh()
	}
	require.NoError(t, os.Chtimes(file, then, then.Add(time.Nanosecond)))
	fresh()
	require.NoError(t, os.Rename(file, file[:len(file)-len("safetensors")]+"x.safetensors"))
	fresh()
	require.NoError(t, os.WriteFile(filepath.Join(dir, ConfigFile), nil, 0o644))
	fresh()
	_, err = Fingerprint(filepath.Join(dir, "nobody"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
