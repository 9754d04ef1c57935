package compile

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheSecondCallIsServedFromTheCache(t *testing.T) {
	opt, count := fake(t)
	first, err := Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	require.False(t, first.Cached)
	second, err := Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	require.True(t, second.Cached)
	require.Equal(t, 1, count())
	require.Equal(t, first.Took, second.Took)
	require.Empty(t, first.Note+second.Note)
	second.Cached, second.Elapsed = false, first.Elapsed
	require.Equal(t, first, second)
	kept, err := os.ReadFile(second.Path)
	require.NoError(t, err)
	require.Equal(t, first.Cubin, kept)
}

func TestWhateverDecidesTheCubinIsInTheKey(t *testing.T) {
	opt, count := fake(t)
	compile := func(s Source, o Options) {
		t.Helper()
		_, err := Kernel(t.Context(), s, o)
		require.NoError(t, err)
	}
	compile(source("one"), opt)
	compile(source("two"), opt)
	withFlag := opt
	withFlag.Flags = []string{"-lineinfo"}
	compile(source("one"), withFlag)
	t.Setenv("NVCC_APPEND_FLAGS", "-G")
	compile(source("one"), opt)
	t.Setenv("NVCC_APPEND_FLAGS", "")
	t.Setenv("FAKE_VERSION", "13.0.89")
	compile(source("one"), opt)
	require.Equal(t, 5, count())

	renamed := source("one") // the name and the Go lines do not
	renamed.Name, renamed.Lines = "other", nil
	compile(renamed, opt)
	require.Equal(t, 5, count())
}

func TestADamagedEntryIsCompiledAgainAndReplaced(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, cubin, figures string){
		"a bit of the cubin": func(t *testing.T, cubin,
			_ string) {
			change(t, cubin, func(b []byte) []byte { b[5] ^= 1; return b })
		},
		"a shorter cubin": func(t *testing.T, cubin,
			_ string) {
			change(t, cubin, func(b []byte) []byte { return b[:3] })
		},
		"an empty cubin": func(t *testing.T, cubin, _ string) { change(t, cubin, func([]byte) []byte { return nil }) },
		"no cubin":       func(t *testing.T, cubin, _ string) { require.NoError(t, os.Remove(cubin)) },
		"half the figures": func(t *testing.T, _,
			f string) {
			change(t, f, func(b []byte) []byte { return b[:len(b)/2] })
		},
		"figures that are none": func(t *testing.T, _,
			f string) {
			change(t, f, func([]byte) []byte { return []byte("[]") })
		},
		"another register count": func(t *testing.T, _, f string) {
			change(t, f, func(b []byte) []byte { return []byte(strings.Replace(string(b), "103", "104", 1)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			opt, count := fake(t)
			first, err := Kernel(t.Context(), source("one"), opt)
			require.NoError(t, err)
			damage(t, first.Path, strings.TrimSuffix(first.Path, ".cubin")+".json")
			again, err := Kernel(t.Context(), source("one"), opt)
			require.NoError(t, err)
			require.False(t, again.Cached)
			require.Equal(t, first.Cubin, again.Cubin)
			require.Equal(t, 103, again.Registers)
			require.Contains(t, again.Note, "compiled again: ")
			third, err := Kernel(t.Context(), source("one"), opt)
			require.NoError(t, err)
			require.True(t, third.Cached)
			require.Empty(t, third.Note)
			require.Equal(t, 2, count())
		})
	}
}

// change rewrites a file.
func change(t *testing.T, path string, how func([]byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	changed := how(append([]byte(nil), text...))
	require.NotEqual(t, text, changed)
	require.NoError(t, os.WriteFile(path, changed, 0o644))
}

// An entry of one kernel under the name of another has a right hash, of another key.
func TestAnEntryUnderAnotherNameIsNotUsed(t *testing.T) {
	opt, count := fake(t)
	one, err := Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	two, err := Kernel(t.Context(), source("two"), opt)
	require.NoError(t, err)
	for _, ext := range []string{".cubin", ".json"} {
		require.NoError(t, os.Rename(strings.TrimSuffix(one.Path, ".cubin")+ext, strings.TrimSuffix(two.Path, ".cubin")+ext))
	}
	again, err := Kernel(t.Context(), source("two"), opt)
	require.NoError(t, err)
	require.Equal(t, two.Cubin, again.Cubin)
	require.Equal(t, 3, count())
}

func TestManyAtOnceCompileOnce(t *testing.T) {
	opt, count := fake(t)
	t.Setenv("FAKE_SLEEP", "0.2")
	var wg sync.WaitGroup
	results, errs := make([]*Result, 8), make([]error, 8)
	for i := range results {
		wg.Go(func() { results[i], errs[i] = Kernel(t.Context(), source("one"), opt) })
	}
	wg.Wait()
	compiled := 0
	for i, r := range results {
		require.NoError(t, errs[i])
		require.Equal(t, "\x7fELFone\n", string(r.Cubin))
		if !r.Cached {
			compiled++
		}
	}
	require.Equal(t, 1, compiled)
	require.Equal(t, 1, count())
}

// TestMain makes the test binary a process that compiles once, when it is told to: for TestManyProcessesCompileOnce.
func TestMain(m *testing.M) {
	if dir := os.Getenv("COMPILE_IN"); dir != "" {
		r, err := Kernel(context.Background(), source("one"), Options{NvccPath: os.Getenv("COMPILE_WITH"), Dir: dir})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Printf("%q %v", r.Cubin, r.Cached)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestManyProcessesCompileOnce(t *testing.T) {
	opt, count := fake(t)
	t.Setenv("FAKE_SLEEP", "0.2")
	t.Setenv("COMPILE_IN", opt.Dir)
	t.Setenv("COMPILE_WITH", opt.NvccPath)
	var wg sync.WaitGroup
	said := make([]string, 8)
	for i := range said {
		wg.Go(func() {
			out, err := exec.Command(os.Args[0]).CombinedOutput()
			said[i] = fmt.Sprint(string(out), err)
		})
	}
	wg.Wait()
	compiled := 0
	for _, s := range said {
		if s == `"\x7fELFone\n" false<nil>` {
			compiled++
			continue
		}
		require.Equal(t, `"\x7fELFone\n" true<nil>`, s)
	}
	require.Equal(t, 1, compiled)
	require.Equal(t, 1, count())
}

func TestWaitingForAnotherProcessEndsWithTheContext(t *testing.T) {
	opt, count := fake(t)
	t.Setenv("FAKE_SLEEP", "1")
	done := make(chan error)
	go func() { _, err := Kernel(context.WithoutCancel(t.Context()), source("one"), opt); done <- err }()
	for count() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Kernel(ctx, source("one"), opt)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, <-done)
	require.Equal(t, 1, count())
}

func TestWhatAKilledProcessLeftIsRemoved(t *testing.T) {
	opt, _ := fake(t)
	r, err := Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	half := filepath.Join(opt.Dir, "."+filepath.Base(r.Path)+"-123")
	other := filepath.Join(opt.Dir, ".other.cubin-123")
	for _, path := range []string{half, other} {
		require.NoError(t, os.WriteFile(path, []byte("\x7fELFo"), 0o600))
	}
	require.NoError(t, os.Remove(r.Path))
	_, err = Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	require.NoFileExists(t, half)
	require.FileExists(t, other) // its own process may be writing it
}

func TestACacheThatCannotBeWrittenIsOnlyANote(t *testing.T) {
	opt, _ := fake(t)
	require.NoError(t, os.WriteFile(opt.Dir, nil, 0o644)) // a file where the folder should be
	r, err := Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	require.Equal(t, "\x7fELFone\n", string(r.Cubin))
	require.Contains(t, r.Note, "the cache is not used: ")
	require.Empty(t, r.Path)
}

func TestTheCacheLiesUnderTheUsersCacheDirectory(t *testing.T) {
	opt, _ := fake(t)
	opt.Dir = ""
	home := t.TempDir()
	t.Setenv("MKGEN_CACHE", "")
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "caches"))
	r, err := Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	user, err := os.UserCacheDir()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(user, "mkgen", "cubin"), filepath.Dir(r.Path))
	t.Setenv("MKGEN_CACHE", filepath.Join(home, "ours"))
	r, err = Kernel(t.Context(), source("one"), opt)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(home, "ours", "cubin"), filepath.Dir(r.Path))
}

func TestWriteFileReplacesOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	r := &Result{Cubin: []byte("x")}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "there"), 0o755))
	require.NoError(t, os.Symlink(os.DevNull, filepath.Join(dir, "device")))
	for _, name := range []string{"there", "device"} {
		path := filepath.Join(dir, name)
		require.EqualError(t, r.WriteFile(path), "write "+path+": it is there and no regular file")
	}
	path := filepath.Join(dir, "new")
	for range 2 {
		require.NoError(t, r.WriteFile(path))
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3)
}

func TestAFileThatCannotBePutInPlaceLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "there")
	require.NoError(t, os.Mkdir(path, 0o755))
	require.EqualError(t, writeFile(path, []byte("x")), "write "+path+": file exists")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
