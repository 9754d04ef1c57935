// Package docs holds what checks the pages in this folder.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// block is a fenced piece of a page.
type block struct {
	language, text string
	line           int
}

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

func blocks(t *testing.T, page string) []block {
	t.Helper()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	var out []block
	for _, m := range fence.FindAllSubmatchIndex(data, -1) {
		out = append(out, block{string(data[m[2]:m[3]]), string(data[m[4]:m[5]]), 1 + strings.Count(string(data[:m[0]]), "\n")})
	}
	require.NotEmpty(t, out)
	return out
}

// sources joins the example's files of a kind.
func sources(t *testing.T, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var all strings.Builder
	for _, p := range paths {
		data, err := os.ReadFile(p)
		require.NoError(t, err)
		all.Write(data)
	}
	return all.String()
}

func TestSnippetsOfWritingATaskAreTheExamplesCode(t *testing.T) {
	code := sources(t, "example-task/*.go")
	reports := sources(t, "example-task/testdata/*")
	for _, b := range blocks(t, "writing-a-task.md") {
		in := code
		switch b.language {
		case "go":
		case "text", "cuda":
			in = reports
		default:
			t.Errorf("writing-a-task.md:%d: a block of %q, which nothing checks", b.line, b.language)
		}
		if !strings.Contains(in, b.text) {
			t.Errorf("writing-a-task.md:%d: this is not in example-task:\n%s", b.line, b.text)
		}
	}
}

// The example is a module of its own, as a second author's would be: built and
// tested offline, without a workspace, with its go.mod and go.sum as they are.
func TestExampleTaskBuildsAndRunsFromItsOwnModule(t *testing.T) {
	for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "./..."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = "example-task"
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off")
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v in docs/example-task; if it asks for modules, run go mod tidy there:\n%s", args, text)
	}
}
