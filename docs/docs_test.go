// Package docs holds what checks the pages in this folder.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/tasks/attention"
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
		out = append(out, block{string(data[m[2]:m[3]]), string(data[m[4]:m[5]]),
			1 + strings.Count(string(data[:m[0]]), "\n")})
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

func TestSnippetsOfWritingAVariantAreTheExamplesCode(t *testing.T) {
	code := sources(t, "example-variant/*.go")
	for _, b := range blocks(t, "writing-a-variant.md") {
		if b.language != "go" || !strings.Contains(code, b.text) {
			t.Errorf("writing-a-variant.md:%d: this %s is not in example-variant:\n%s", b.line, b.language, b.text)
		}
	}
}

func TestSnippetsOfAddingAFamilyAreTheExamplesCode(t *testing.T) {
	code := sources(t, "example-family/*.go")
	for _, b := range blocks(t, "adding-a-family.md") {
		if b.language == "go" && !strings.Contains(code, b.text) {
			t.Errorf("adding-a-family.md:%d: this is not in example-family:\n%s", b.line, b.text)
		}
	}
}

// The examples are modules of their own, as a second author's would be: built and
// tested offline, without a workspace, with their go.mod and go.sum as they are.
func TestExamplesBuildAndRunFromTheirOwnModules(t *testing.T) {
	deep.Only(t) // builds and links three modules
	for _, dir := range []string{"example-task", "example-variant", "example-family"} {
		for _, args := range [][]string{{"vet", "./..."}, {"test", "-count=1", "./..."}} {
			cmd := exec.Command("go", args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOWORK=off")
			text, err := cmd.CombinedOutput()
			require.NoError(t, err, "go %v in docs/%s; if it asks for modules, run go mod tidy there:\n%s", args, dir, text)
		}
	}
}

var (
	quotedPath = regexp.MustCompile("`([a-z]+(?:/[a-z_]+)*/[a-z_]+(?:\\.go)?)`")
	quotedTest = regexp.MustCompile("`(Test\\w+)`")
	snippetIn  = regexp.MustCompile("(?ms)`([a-z/_]+\\.go)`:\n\n^```go\n(.*?)^```$")
)

// The rows on the page are the tree's, in the files named, and the tests that
// name a missing row are there with the words the page quotes.
func TestAddingAnOpShowsRowsAndMessagesOfTheTree(t *testing.T) {
	data, err := os.ReadFile("adding-an-op.md")
	require.NoError(t, err)
	page := string(data)
	snippets := snippetIn.FindAllStringSubmatch(page, -1)
	require.Len(t, snippets, strings.Count(page, "```go"), "a Go snippet does not say which file it is from")
	for _, m := range snippets {
		require.True(t, strings.Contains(read(t, m[1]), m[2]), "not in %s:\n%s", m[1], m[2])
	}
	for _, m := range quotedPath.FindAllStringSubmatch(page, -1) {
		_, err := os.Stat(filepath.Join("..", m[1]))
		require.NoError(t, err)
	}
	tests := sources(t, "../dsl/*/*_test.go") + sources(t, "../emit/*_test.go") + sources(t, "../tests/kernels/*_test.go")
	for _, m := range quotedTest.FindAllStringSubmatch(page, -1) {
		require.True(t, strings.Contains(tests, "func "+m[1]+"("), "no test %s", m[1])
	}
	for _, b := range blocks(t, "adding-an-op.md") {
		if b.language != "text" {
			continue
		}
		for message := range strings.Lines(b.text) {
			switch message = strings.TrimSpace(message); {
			case strings.HasPrefix(message, "BUG: "):
				require.Contains(t, read(t, "dsl/ir/op.go"), `"BUG: op %d has no row"`)
			case strings.HasPrefix(message, "Should be empty"): // testify's own words
			default:
				format := strings.NewReplacer("ceil", "%s", " 0 ", " %d ").Replace(message)
				require.True(t, strings.Contains(tests, format), "line %d: no test says %q", b.line, message)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", path))
	require.NoError(t, err)
	return string(data)
}

// Every hook and flag of a variant is named on its page.
func TestAllOfAVariantIsOnItsPage(t *testing.T) {
	data, err := os.ReadFile("writing-a-variant.md")
	require.NoError(t, err)
	v := reflect.TypeFor[attention.Variant]()
	for i := range v.NumField() {
		if name := v.Field(i).Name; name != "Name" {
			require.Regexp(t, "`"+name+"[`:]", string(data))
		}
	}
	require.Regexp(t, "`Sum` is also all there is of a hook for how a row's state is updated", string(data))
}
