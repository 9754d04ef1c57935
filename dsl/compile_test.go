package dsl_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMixingTimesDoesNotCompile compiles testdata/compile and compares the
// compiler's messages, line by line, with the want comments.
func TestMixingTimesDoesNotCompile(t *testing.T) {
	const file = "testdata/compile/mistakes.go"
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	out, err := exec.Command("go", "build", "-gcflags=-e", "./testdata/compile").CombinedOutput()
	require.Error(t, err, "every line of %s is a mistake", file)

	got := map[string][]string{} // by line number
	for _, m := range regexp.MustCompile(`mistakes\.go:(\d+):\d+: (.*)`).FindAllStringSubmatch(string(out), -1) {
		got[m[1]] = append(got[m[1]], m[2])
	}
	wants := 0
	for i, line := range strings.Split(string(src), "\n") {
		n := strconv.Itoa(i + 1)
		_, comment, found := strings.Cut(line, `// want "`)
		if !found {
			require.Empty(t, got[n], "line %s", n)
			continue
		}
		wants++
		require.Len(t, got[n], 1, "line %s: %s\n%s", n, line, out)
		require.Contains(t, got[n][0], strings.TrimSuffix(comment, `"`), "line %s", n)
	}
	require.Greater(t, wants, 20)
}
