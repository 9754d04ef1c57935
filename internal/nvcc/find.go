package nvcc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Find returns the first nvcc of: explicit (when not empty, the only place looked at), $NVCC, $CUDA_HOME/bin, PATH, the
// prefix that .ci/cuda-toolchain installs, /usr/local/cuda/bin. An nvcc named by explicit or $NVCC that does not run is
// an error, not a reason to look further; nor is one older than [MinMajor]. When there is none the error wraps
// [ErrNotFound] and says where it looked.
func Find(explicit string) (*Compiler, error) {
	if explicit != "" {
		return open(explicit, "asked for")
	}
	if named := os.Getenv("NVCC"); named != "" {
		return open(named, "named by $NVCC")
	}
	var looked []string
	for _, path := range candidates() {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return open(path, "found")
		}
		looked = append(looked, path)
	}
	return nil, fmt.Errorf("nvcc: %w: looked at $NVCC, $CUDA_HOME, PATH and %s; .ci/cuda-toolchain installs one",
		ErrNotFound, strings.Join(looked, ", "))
}

// candidates are the files that may be nvcc, in order of preference. Existence is not checked.
func candidates() []string {
	var paths []string
	if home := os.Getenv("CUDA_HOME"); home != "" {
		paths = append(paths, filepath.Join(home, "bin", "nvcc"))
	}
	if path, err := exec.LookPath("nvcc"); err == nil {
		paths = append(paths, path)
	}
	paths = append(paths, cached()...)
	return append(paths, "/usr/local/cuda/bin/nvcc")
}

// cached are the complete prefixes of .ci/cuda-toolchain, the newest name first.
func cached() []string {
	cache, err := CacheDir()
	if err != nil {
		return nil
	}
	done, err := filepath.Glob(filepath.Join(cache, "cuda-*", ".complete")) // sorted
	if err != nil {
		return nil
	}
	var paths []string
	for i := len(done) - 1; i >= 0; i-- {
		paths = append(paths, filepath.Join(filepath.Dir(done[i]), "nvidia", "cu13", "bin", "nvcc"))
	}
	return paths
}

// CacheDir is mkgen's folder under the user's cache directory, where .ci/cuda-toolchain installs the compiler and
// compiled kernels are kept: $MKGEN_CACHE, else mkgen under [os.UserCacheDir]. It need not exist.
func CacheDir() (string, error) {
	if dir := os.Getenv("MKGEN_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: %w; $MKGEN_CACHE names one", err)
	}
	return filepath.Join(dir, "mkgen"), nil
}

// MinMajor is the oldest major version of CUDA whose compilers know what mkgen emits.
const MinMajor = 12

var versionForm = regexp.MustCompile(`, V([0-9]+\.[0-9]+\.[0-9]+)`)

// open asks the executable for its version.
func open(path, how string) (*Compiler, error) {
	text, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("nvcc: %s, %s, does not run: %w %s", path, how, err, strings.TrimSpace(string(text)))
	}
	version := versionForm.FindSubmatch(text)
	if version == nil {
		return nil, fmt.Errorf("nvcc: %s, %s, is no nvcc: its --version says %q", path, how, firstLine(string(text)))
	}
	major, _, _ := strings.Cut(string(version[1]), ".")
	if number(major) < MinMajor {
		return nil, fmt.Errorf("nvcc: %s, %s, is of CUDA %s, want CUDA %d or newer", path, how, version[1], MinMajor)
	}
	return &Compiler{Path: path, Version: string(version[1])}, nil
}

// firstLine is the text up to its first line break.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
