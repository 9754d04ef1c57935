package gate

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeReference makes a directory of two sequences over three tokens.
func writeReference(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, v any) {
		data, err := binary.Append(nil, binary.LittleEndian, v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	write("t0", []int32{2, 0, 1})
	write("o0", []float32{1, 2, 3, 4, 5, 6})
	write("h0", []float32{-1, -2, -3, -4, -5, -6})
	write("t1", []int32{0})
	write("o1", []float32{7, 8, 9})
	write("h1", []float32{0, 0, 0})
	manifest := `{"seed": 18446744073709551615, "weights_hash": "ab", "vocab": 3, "config": {"a": 1}, "sequences": [
		{"length": 3, "first": 1, "scored": 2, "tokens": "t0", "o": "o0", "h": "h0"},
		{"length": 1, "first": 0, "scored": 1, "tokens": "t1", "o": "o1", "h": "h1"}]}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(manifest), 0o644))
	return dir
}

func TestReferenceReadsItsFiles(t *testing.T) {
	r, err := OpenReference(writeReference(t))
	require.NoError(t, err)
	require.Equal(t, uint64(1<<64-1), r.Seed)
	tokens, err := r.Tokens(0)
	require.NoError(t, err)
	require.Equal(t, []int{2, 0, 1}, tokens)
	var seen []float32
	require.NoError(t, r.EachRow(0, func(p int, o, h []float32) error {
		seen = append(append(append(seen, float32(p)), o...), h...)
		return nil
	}))
	require.Equal(t, []float32{1, 1, 2, 3, -1, -2, -3, 2, 4, 5, 6, -4, -5, -6}, seen)
	stop := errors.New("stop")
	require.ErrorIs(t, r.EachRow(1, func(int, []float32, []float32) error { return stop }), stop)
}

func TestReferenceRefusesWhatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct{ file, content, want string }{
		"cut logits":     {"h1", "12345678", "h1 has 8 bytes, want 12"},
		"no manifest":    {"manifest.json", "", "manifest.json"},
		"no sequences":   {"manifest.json", `{"vocab": 3}`, "vocabulary of 3, 0 sequences"},
		"beyond the end": {"manifest.json", `{"vocab": 3, "sequences": [{"length": 2, "first": 1, "scored": 2}]}`, "scores 2 positions from 1 on"},
		"missing file":   {"manifest.json", `{"vocab": 3, "sequences": [{"length": 1, "scored": 1, "tokens": "no", "o": "o1", "h": "h1"}]}`, "sequence 0: stat"},
	} {
		dir := writeReference(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o644))
		_, err := OpenReference(dir)
		require.ErrorContains(t, err, c.want, name)
	}
	dir := writeReference(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "t1"), []byte{3, 0, 0, 0}, 0o644))
	r, err := OpenReference(dir)
	require.NoError(t, err)
	_, err = r.Tokens(1)
	require.ErrorContains(t, err, "token 0 is 3, want 0 to 2")
}
