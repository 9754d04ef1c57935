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
	write("s0", []float64{0.25, 0.5})
	write("t1", []int32{0})
	write("o1", []float32{7, 8, 9})
	write("h1", []float32{0, 0, 0})
	write("s1", []float64{1})
	manifest := `{"seed": 18446744073709551615, "weights_hash": "ab", "vocab": 3, "config": {"a": 1}, "sequences": [
		{"length": 3, "first": 1, "scored": 2, "tokens": "t0", "o": "o0", "h": "h0", "s": "s0"},
		{"length": 1, "first": 0, "scored": 1, "tokens": "t1", "o": "o1", "h": "h1", "s": "s1"}],
		"roundings": {"version": 2, "kv": "bf16", "places": "all"}}`
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
	own, err := r.Own(0)
	require.NoError(t, err)
	require.Equal(t, []float64{0.25, 0.5}, own)
	stop := errors.New("stop")
	require.ErrorIs(t, r.EachRow(1, func(int, []float32, []float32) error { return stop }), stop)
}

func TestReferenceRefusesWhatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct{ file, content, want string }{
		"cut s":        {"s0", "12345678", "s0 has 8 bytes, want 16"},
		"cut logits":   {"h1", "12345678", "h1 has 8 bytes, want 12"},
		"no manifest":  {"manifest.json", "", "manifest.json"},
		"no sequences": {"manifest.json", `{"vocab": 3}`, "vocabulary of 3, 0 sequences"},
		"beyond the end": {"manifest.json",
			`{"vocab": 3, "roundings": {"version": 2}, "sequences": [{"length": 2, "first": 1, "scored": 2}]}`,
			"scores 2 positions from 1 on"},
		"missing file": {"manifest.json",
			`{"vocab": 3, "roundings": {"version": 2}, "sequences": [{"length": 1, "scored": 1, "tokens": "no", "o": "o1", "h": "h1"}]}`, "sequence 0: stat"},
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

// A reference from before s was written cannot judge; the error says how to make it again.
func TestAReferenceWithoutTheKernelsRoundingsIsRefused(t *testing.T) {
	dir := writeReference(t)
	const sequences = `"seed": 7, "vocab": 3, "sequences": [{"length": 3, "first": 1, "scored": 2, "tokens": "t0", "o": "o0", "h": "h0"}]`
	for manifest, want := range map[string]string{
		`{` + sequences + `}`: " is of an older reference.py: it does not say what the kernel's own roundings cost (s), by which kernels are judged",
		`{"roundings": {"version": 9, "kv": "bf16"}, ` + sequences + `}`: " has the kernel's roundings of version 9, want 2",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(manifest), 0o644))
		_, err := OpenReference(dir)
		require.EqualError(t, err, "reference: "+filepath.Join(dir, "manifest.json")+want+
			"; make it again: tests/gpu/reference.py --config CONFIG --out "+dir+" --seed 7 --sequences 3:2")
	}
}

// An s with a cache of another format than the kernel's would allow too much or too little.
func TestAKernelWithACacheOfAnotherFormatIsRefused(t *testing.T) {
	subject, _, ref := scriptedSubject(t)
	ref.Roundings.KV = "e4m3"
	_, err := subject.Judge(t.Context(), ref, small())
	require.EqualError(t, err, "reference: its format of the KV cache is e4m3, that of what runs here bf16")
	ragged, _, ref := raggedSubject(t, 4)
	ref.Roundings.KV = "e4m3"
	_, err = ragged.Judge(t.Context(), ref, raggedRules())
	require.EqualError(t, err, "reference: its format of the KV cache is e4m3, that of what runs here bf16")
}
