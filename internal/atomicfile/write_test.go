package atomicfile

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireNames wants a directory to hold these and nothing else.
func requireNames(t *testing.T, dir string, names ...string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	var got []string
	for _, e := range all {
		got = append(got, e.Name())
	}
	require.Equal(t, names, got)
}

func requireText(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

func TestAFileIsReplacedAndNothingStaysBesideIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "f")
	for _, text := range []string{"a longer one", "short"} {
		require.NoError(t, Write(path, []byte(text)))
		requireText(t, path, text)
	}
	requireNames(t, filepath.Dir(path), "f")
}

func TestWhatCannotBeWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "taken", "in"), 0o777))
	require.NoError(t, os.Symlink(os.DevNull, filepath.Join(dir, "device")))
	require.NoError(t, os.Symlink("round", filepath.Join(dir, "round")))
	require.NoError(t, os.Symlink("new/", filepath.Join(dir, "todir")))
	for path, want := range map[string]string{"taken": "it is there and no regular file",
		"device": "it is there and no regular file", "round": "too many", "taken/": "names a directory",
		"new/": "names a directory", "new/.": "names a directory", "..": "names a directory", "todir": "leads to"} {
		path = dir + "/" + path
		require.ErrorContains(t, Write(path, []byte("x")), want)
		require.ErrorContains(t, Check(path), want)
		require.ErrorContains(t, Check(path), "write "+path+": ", "the file is named")
	}
	require.EqualError(t, Check(""), "the name of a file to write is empty")
	require.NoError(t, Check(filepath.Join(dir, "free")))
	require.NoError(t, Check(filepath.Join(dir, "new", "deep", "free")), "which makes directories and removes them")
	requireNames(t, dir, "device", "round", "taken", "todir")
}

func TestALinkStaysAndWhatItLeadsToIsWritten(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Mkdir(at("d"), 0o777))
	require.NoError(t, os.WriteFile(at("d/old"), []byte("old"), 0o666))
	require.NoError(t, os.Symlink("d/old", at("there")))
	require.NoError(t, os.Symlink(at("there"), at("twice")))
	require.NoError(t, os.Symlink("d/new", at("dangling")))
	for link, file := range map[string]string{"there": "d/old", "twice": "d/old", "dangling": "d/new"} {
		require.NoError(t, Check(at(link)))
		require.NoError(t, Write(at(link), []byte(link)))
		requireText(t, at(file), link)
		info, err := os.Lstat(at(link))
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&os.ModeSymlink, link)
	}
	requireNames(t, dir, "d", "dangling", "there", "twice")
	requireNames(t, at("d"), "new", "old")
}

// /dev/stdout is such a link, which root could replace.
func TestWhatIsPrintedToIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "printed"), filepath.Join(dir, "link")
	f, err := os.Create(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	real := os.Stdout
	t.Cleanup(func() { os.Stdout = real })
	os.Stdout = f
	require.NoError(t, os.Symlink(path, link))
	for _, name := range []string{path, link} {
		require.EqualError(t, Write(name, []byte("x")),
			"write "+name+": standard output or error goes there, want another file")
	}
	requireNames(t, dir, "link", "printed")
	requireText(t, path, "")
}

func TestAnOpenFileThatWasRemovedIsNoName(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("names of open files are Linux's")
	}
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "f"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Remove(f.Name()))
	open, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, name := range open {
		if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, dir) {
			require.NoError(t, os.Symlink(name, filepath.Join(dir, "link")))
			require.ErrorContains(t, Write(filepath.Join(dir, "link"), nil), "its link does not say which file it leads to")
			requireNames(t, dir, "link")
			return
		}
	}
	t.Fatal("the open file is not listed")
}

func TestAnErrorNamesTheFileThatWasAskedFor(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file", "x.html")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o666))
	require.EqualError(t, Write(path, nil), "write "+path+": not a directory")
	if runtime.GOOS == "linux" {
		require.EqualError(t, Check("/proc/x.html"), "write /proc/x.html: no such file or directory")
	}
}

func TestANameMayBeAsLongAsOneCanBe(t *testing.T) {
	require.NoError(t, Write(filepath.Join(t.TempDir(), strings.Repeat("x", 255)), nil))
}

func TestNamesOfOneFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.Mkdir("d", 0o777))
	require.NoError(t, os.WriteFile("f", nil, 0o666))
	require.NoError(t, os.Link("f", "hard"))
	require.NoError(t, os.Symlink("f", "soft"))
	require.NoError(t, os.Symlink("d", "e"))
	require.NoError(t, os.Symlink("d/new", "dangling"))
	for _, pair := range [][2]string{{"f", "./f"}, {"f", filepath.Join(dir, "f")}, {"f", "hard"}, {"soft", "f"},
		{"e/new", "d/new"}, {"d/new", "dangling"}, {"none/x", "d/../none/x"}, {"e/a/b", filepath.Join(dir, "d/a/b")}} {
		require.True(t, Same(pair[0], pair[1]), "%q", pair)
	}
	for _, pair := range [][2]string{{"f", "g"}, {"g", "f"}, {"d/new", "new"}, {"d/x", "d/y"}} {
		require.False(t, Same(pair[0], pair[1]), "%q", pair)
	}
}
