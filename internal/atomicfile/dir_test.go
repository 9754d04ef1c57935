package atomicfile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestADirectoryAppearsWholeOrNotAtAll: what fill does is seen under the name only after it returns.
func TestADirectoryAppearsWholeOrNotAtAll(t *testing.T) {
	above := t.TempDir()
	path := filepath.Join(above, "a", "b")
	fill := func(dir string) error {
		requireNames(t, filepath.Join(above, "a"), filepath.Base(dir))
		return os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644)
	}
	require.NoError(t, Dir(path, fill))
	requireNames(t, filepath.Join(above, "a"), "b")
	requireText(t, filepath.Join(path, "f"), "x")
	require.ErrorContains(t, Dir(path, fill), "b: it is there and has f in it, want an empty directory or none")
	require.ErrorContains(t, Dir(filepath.Join(path, "f"), fill), "not a directory")
	require.EqualError(t, Dir("", fill), "the name of a directory to write is empty")

	empty := filepath.Join(above, "empty")
	require.NoError(t, os.Mkdir(empty, 0o755))
	failed := errors.New("failed")
	require.ErrorIs(t, Dir(empty, func(dir string) error {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "half"), nil, 0o644))
		return failed
	}), failed)
	requireNames(t, empty)
	require.NoError(t, Dir(empty, func(dir string) error { return os.WriteFile(filepath.Join(dir, "f"), nil, 0o644) }))
	requireNames(t, empty, "f")
	requireNames(t, above, "a", "empty")
}

// TestADirectoryThatCannotBeMadeIsRefusedEarly: before fill, which may take hours, and nothing is left.
func TestADirectoryThatCannotBeMadeIsRefusedEarly(t *testing.T) {
	above := t.TempDir()
	at := func(name string) string { return filepath.Join(above, name) }
	require.NoError(t, os.MkdirAll(at("work"), 0o755))
	require.NoError(t, os.WriteFile(at("file"), nil, 0o644))
	require.NoError(t, os.Symlink("round", at("round")))
	require.NoError(t, os.Symlink("work", at("link")))
	t.Chdir(at("work"))
	cases := map[string]string{
		".":        "it is there and is the working directory, want a new directory, such as one in it",
		"..":       "it is there and has file in it",
		at("work"): "it is there and is the working directory", at("link") + "/": "it is there and is the working directory",
		at("file"): "not a directory", at("file/new"): "not a directory", at("round"): "too many",
	}
	if runtime.GOOS == "linux" {
		cases["/proc/new"] = "no such file or directory"
	}
	for path, want := range cases {
		fill := func(string) error { panic("filled") }
		require.ErrorContains(t, CheckDir(path), "write "+path+": "+want)
		require.ErrorContains(t, Dir(path, fill), "write "+path+": "+want)
	}
	require.NoError(t, CheckDir(at("new/deep")), "which makes directories and removes them")
	require.ErrorContains(t, Dir(at("new/deep"), func(string) error { return errors.New("failed") }), "failed")
	requireNames(t, above, "file", "link", "round", "work")
	requireNames(t, at("work"))
}

func TestALinkStaysAndTheDirectoryItLeadsToIsMade(t *testing.T) {
	above := t.TempDir()
	at := func(name string) string { return filepath.Join(above, name) }
	require.NoError(t, os.MkdirAll(at("d/empty"), 0o755))
	require.NoError(t, os.Symlink("d/empty", at("there")))
	require.NoError(t, os.Symlink("d/new/deep", at("dangling")))
	require.NoError(t, os.Symlink(at("dangling"), at("twice")))
	require.NoError(t, os.Symlink("d", at("e")))
	for link, dir := range map[string]string{"there/": "d/empty", "twice": "d/new/deep", "e/below": "d/below"} {
		require.NoError(t, CheckDir(above+"/"+link))
		require.NoError(t, Dir(above+"/"+link, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "f"), nil, 0o644)
		}))
		requireNames(t, at(dir), "f")
	}
	for _, link := range []string{"there", "dangling", "twice", "e"} {
		info, err := os.Lstat(at(link))
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&os.ModeSymlink, link)
	}
	requireNames(t, at("d"), "below", "empty", "new")
}

func TestAMountPointIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "vol")
	require.NoError(t, os.Mkdir(dir, 0o755))
	if out, err := exec.Command("mount", "--bind", dir, dir).CombinedOutput(); err != nil {
		t.Skipf("nothing can be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("umount", dir).Run() })
	require.EqualError(t, CheckDir(dir),
		"write "+dir+": it is there and is a mount point, want a new directory, such as one in it")
	require.NoError(t, CheckDir(filepath.Join(dir, "in")))
	requireNames(t, dir)
}
