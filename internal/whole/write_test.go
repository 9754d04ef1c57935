package whole

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFileIsReplacedAndNothingStaysBesideIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "f")
	for _, text := range []string{"a longer one", "short"} {
		require.NoError(t, Write(path, []byte(text)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	all, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, all, 1)
}

func TestWhatCannotBeWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "taken", "in"), 0o777))
	require.ErrorContains(t, Write(filepath.Join(dir, "taken"), []byte("x")), "it is there and no regular file")
	require.ErrorContains(t, Check(filepath.Join(dir, "taken")), "it is there and no regular file")
	require.NoError(t, Check(filepath.Join(dir, "free")))
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, all, 1)
}
