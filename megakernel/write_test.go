package megakernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func generated(content string) []File {
	marker := fmt.Sprintf(`{"generator": %q, "files": [%q, "a", "b"], "sha256": {"a": %q, "b": %q}}`, Generator,
		LayoutFile, hashOf([]byte(content)), hashOf([]byte(content)))
	return []File{{Name: "a", Data: []byte(content)}, {Name: "b", Data: []byte(content)},
		{Name: LayoutFile, Data: []byte(marker)}}
}

// tree is everything below dir: path → content, "" for a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if all[rel] = ""; d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			all[rel] = string(data)
			return err
		}
		return nil
	}))
	return all
}

func TestWriteDirReplacesItsOwn(t *testing.T) {
	dir := t.TempDir()
	for _, content := range []string{"one", "two"} {
		require.NoError(t, WriteDir(t.Context(), filepath.Join(dir, "x", "y"), generated(content)))
		files := generated(content)
		require.Equal(t, map[string]string{"x": "", "x/y": "", "x/y/a": content, "x/y/b": content,
			"x/y/" + LayoutFile: string(files[2].Data)}, tree(t, dir))
	}
}

// Whenever writing fails, and wherever it is interrupted, everything is as it
// was before.
func TestWriteDirLeavesNothingBehind(t *testing.T) {
	fails := errors.New("no space left on device")
	for _, before := range []string{"nothing", "an empty directory", "an earlier output"} {
		for stop := range 3 {
			for _, interrupt := range []bool{false, true} {
				name := fmt.Sprintf("%s, file %d, interrupted %v", before, stop, interrupt)
				dir := t.TempDir()
				out := filepath.Join(dir, "x", "y")
				switch before {
				case "an empty directory":
					require.NoError(t, os.MkdirAll(out, 0o777))
				case "an earlier output":
					require.NoError(t, WriteDir(t.Context(), out, generated("earlier")))
				}
				was := tree(t, dir)
				ctx, cancel := context.WithCancel(t.Context())
				n, want := 0, fails
				w := dirWriter{create: func(path string) (io.WriteCloser, error) {
					f, err := os.Create(path)
					if n++; n-1 == stop && interrupt {
						want = context.Canceled
						cancel()
					} else if n-1 == stop {
						return failing{f, fails}, err
					}
					return f, err
				}}
				require.ErrorIs(t, w.write(ctx, out, generated("new")), want, name)
				require.Equal(t, was, tree(t, dir), name)
				cancel()
			}
		}
	}
}

type failing struct {
	*os.File
	err error
}

func (f failing) Write(p []byte) (int, error) {
	n, _ := f.File.Write(p[:1])
	return n, f.err
}

func TestWriteDirRefusesWhatItDidNotWrite(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(dir string) error
		want    string
	}{
		"a file": {func(d string) error { return os.WriteFile(d, nil, 0o666) }, "is a file"},
		"a file above": {func(d string) error { return os.WriteFile(filepath.Dir(d), nil, 0o666) },
			"not a directory"},
		"a foreign file": {func(d string) error { return put(d, "x", "") }, "was not written by mkgen"},
		"a foreign layout": {func(d string) error { return put(d, LayoutFile, `{"generator": "x"}`) },
			"was not written by mkgen"},
		"a broken layout": {func(d string) error { return put(d, LayoutFile, `{"generator": "mkgen"`) },
			"was not written by mkgen"},
		"a list as layout": {func(d string) error { return put(d, LayoutFile, `[]`) }, "was not written by mkgen"},
		"a directory as layout": {func(d string) error { return os.MkdirAll(filepath.Join(d, LayoutFile), 0o777) },
			"was not written by mkgen"},
		"a file added to ours": {func(d string) error {
			return errors.Join(WriteDir(context.Background(), d, generated("")), put(d, "mine", ""))
		}, `holds "mine"`},
		"a directory in ours": {func(d string) error {
			return errors.Join(put(d, LayoutFile, string(generated("")[2].Data)), os.Mkdir(filepath.Join(d, "a"), 0o777))
		}, `holds "a"`},
		"a link that leads away": {func(d string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(d), 0o777), os.Symlink("nowhere", d))
		}, "y is a symbolic link that leads nowhere"},
		"a link to itself": {func(d string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(d), 0o777), os.Symlink(d, d))
		}, "y is a symbolic link that leads nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			out := filepath.Join(dir, "x", "y")
			if name != "a file above" {
				require.NoError(t, os.MkdirAll(filepath.Dir(out), 0o777))
			}
			require.NoError(t, test.prepare(out))
			was := tree(t, dir)
			require.ErrorContains(t, WriteDir(t.Context(), out, generated("new")), test.want)
			require.Equal(t, was, tree(t, dir))
		})
	}
}

func put(dir, name, content string) error {
	return errors.Join(os.MkdirAll(dir, 0o777), os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666))
}

// A kernel that somebody has edited is not lost.
func TestWriteDirRefusesToReplaceAnEditedFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	require.NoError(t, WriteDir(t.Context(), dir, generated("one")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), []byte("mine"), 0o666))
	before := tree(t, dir)
	require.EqualError(t, WriteDir(t.Context(), dir, generated("two")),
		dir+` holds "b", which was edited since mkgen wrote it: move it away or choose another directory`)
	require.Equal(t, before, tree(t, dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "b")))
	require.NoError(t, WriteDir(t.Context(), dir, generated("two")))
}

func TestWriteDirRefusesTheCurrentDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	require.ErrorContains(t, WriteDir(t.Context(), ".", generated("")), "is the current directory")
	require.ErrorContains(t, WriteDir(t.Context(), "", generated("")), "name is empty")
	require.NoError(t, WriteDir(t.Context(), "below", generated("")))
}

func TestWriteDirKeepsPermissions(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.Mkdir(out, 0o700))
	for range 2 { // an empty directory, then our own
		require.NoError(t, WriteDir(t.Context(), out, generated("x")))
		info, err := os.Stat(out)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}
}

func TestWriteDirLeavesAReadOnlyDirectoryAlone(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("nothing is read-only for root")
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	require.NoError(t, WriteDir(t.Context(), out, generated("one")))
	require.NoError(t, os.Chmod(out, 0o555))
	t.Cleanup(func() { _ = os.Chmod(out, 0o777) })
	was := tree(t, dir)
	require.EqualError(t, WriteDir(t.Context(), out, generated("two")), "cannot write "+out+": permission denied")
	require.Equal(t, was, tree(t, dir))
}

func TestWriteDirTakesAsLongANameAsThereIs(t *testing.T) {
	out := filepath.Join(t.TempDir(), strings.Repeat("n", 255))
	for range 2 {
		require.NoError(t, WriteDir(t.Context(), out, generated("x")))
	}
}

// The name is taken while the files are written.
func TestWriteDirWhenTheNameIsTakenMeanwhile(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	w := dirWriter{create: func(path string) (io.WriteCloser, error) {
		return os.Create(path)
	}}
	first := w.create
	w.create = func(path string) (io.WriteCloser, error) {
		require.NoError(t, put(out, "mine", "kept"))
		return first(path)
	}
	require.ErrorContains(t, w.write(t.Context(), out, generated("new")), "cannot write "+out)
	require.Equal(t, map[string]string{"out": "", "out/mine": "kept"}, tree(t, dir))
}
