// Package tests holds what looks at the project as a whole.
package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/mkgen/mkgen"

// mayImport says for each room which other rooms its packages may import, tests aside. A package belongs to the room
// with the longest path that is its own or above it, and packages of one room may import each other. A package in no
// room fails the test: a new room is a decision, made here.
var mayImport = map[string][]string{
	"cmd/mkgen": {"kv", "megakernel", "megakernel/verify", "megakernel/verify/explore", "megakernel/reference", "engine",
		"engine/runtime", "engine/runtime/cuda", "engine/randomize", "engine/compile", "engine/sampling", "lab/bench",
		"lab/attend", "lab/tune", "lab/sweep", "lab/gate", "lab/perplexity", "lab/probe", "lab/trace", "lab/budget",
		"pipeline", "pipeline/machine", "models", "models/quant", "models/quantise", "dsl", "dsl/ir", "dsl/interp", "emit",
		"internal", "serve"},
	"serve": {"engine", "engine/grammar", "engine/sampling", "models"},
	"lab/bench": {"kv", "megakernel", "lab/gate", "lab/attend", "engine/runtime", "engine/batch",
		"tasks/attention", "tasks/grid", "tasks/prefill", "tasks/product", "pipeline", "pipeline/machine", "models", "models/half",
		"dsl", "dsl/ir", "internal", "engine/sampling", "tasks/draw"},
	"lab/tune":  {"megakernel", "lab/gate", "lab/bench", "engine/runtime", "pipeline", "models", "internal"},
	"lab/sweep": {"megakernel", "lab/gate", "lab/bench", "lab/tune", "engine/runtime", "models", "internal"},
	"lab/gate": {"kv", "megakernel", "lab/probe", "megakernel/reference", "pipeline", "models", "models/half",
		"internal"},
	"lab/probe":      {"megakernel", "megakernel/reference", "models", "models/half", "tasks/attention", "tasks/product"},
	"lab/perplexity": {"megakernel/reference", "models", "models/half"},
	"lab/trace":      {"pipeline", "internal"},
	"lab/budget":     {"megakernel", "pipeline", "pipeline/machine", "lab/trace", "internal"},
	"lab/attend":     {"kv", "tasks/attention", "tasks/grid", "tasks/prefill", "pipeline", "dsl", "dsl/ir"},
	"engine": {"kv", "megakernel", "engine/runtime", "engine/batch", "engine/pages", "engine/sampling",
		"models", "tasks/draw"},
	"engine/runtime": {"kv", "megakernel", "engine/batch", "engine/compile", "engine/runtime/cuda",
		"engine/randomize", "pipeline", "models/half", "dsl/ir", "dsl/interp", "engine/sampling", "tasks/draw"},
	"engine/runtime/cuda": {},
	"engine/batch":        {"kv", "engine/pages", "engine/prefix", "engine/sampling", "tasks/draw"},
	"engine/prefix":       {"engine/pages"},
	"engine/pages":        {},
	"engine/sampling":     {"tasks/draw"},
	"engine/grammar":      {},
	"engine/compile":      {"megakernel", "dsl/ir", "emit", "emit/sass", "internal"},
	"engine/randomize":    {"megakernel", "pipeline", "models", "dsl", "dsl/ir"},
	"megakernel": {"kv", "tasks/attention", "tasks/grid", "tasks/prefill", "tasks/product", "tasks/sample",
		"tasks/draw", "pipeline", "pipeline/machine", "models", "models/half", "dsl", "dsl/ir", "emit", "internal"},
	"megakernel/reference": {"models", "models/half"},
	"megakernel/verify": {"kv", "megakernel", "megakernel/reference", "engine/runtime", "engine/batch",
		"tasks/attention", "pipeline", "models", "models/half", "dsl/ir", "dsl/interp", "internal", "engine/sampling", "tasks/draw"},
	"megakernel/verify/explore": {"megakernel", "megakernel/verify", "tasks/grid", "pipeline", "models", "dsl", "dsl/ir",
		"dsl/interp", "emit/promela", "internal"},
	"tasks":               {},
	"tasks/internal/rule": {},
	"tasks/grid":          {"pipeline", "dsl"},
	"tasks/product":       {"kv", "tasks/grid", "tasks/internal/rule", "pipeline", "models/half", "dsl"},
	"tasks/prefill":       {"tasks/product", "tasks/grid", "tasks/internal/rule", "pipeline", "models/half", "dsl"},
	"tasks/attention": {"tasks/prefill", "tasks/product", "tasks/grid", "tasks/internal/rule", "pipeline", "models/half",
		"dsl", "kv"},
	"tasks/sample":     {"tasks/product", "tasks/grid", "tasks/internal/rule", "tasks/draw", "pipeline", "dsl"},
	"tasks/draw":       {},
	"kv":               {},
	"pipeline":         {"models/half", "dsl", "dsl/ir"},
	"pipeline/machine": {"internal"},
	"models":           {"models/half"},
	"models/half":      {},
	"models/quant":     {"models", "models/half"},
	"models/quantise":  {"models", "models/half", "models/quant", "internal"},
	"dsl":              {"dsl/ir"},
	"dsl/ir":           {},
	"dsl/interp":       {"dsl/ir"},
	"emit":             {"dsl/ir"},
	"emit/sass":        {"dsl/ir", "emit"},
	"emit/promela":     {"dsl/ir"},
	"internal":         {},
	"out":              {}, // what mkgen writes by default; not committed
	// Nobody imports these, so they may import everything.
	"tests": nil, "docs": nil, "examples": nil, "bench": nil, "scripts": nil, "tasks/internal/rig": nil,
}

// outer are the rooms that may import everything and that only tests may import.
var outer = []string{"tests", "docs", "examples", "bench", "scripts", "tasks/internal/rig"}

// meetOnlyInIR are pairs of a room and one that it never reaches, over any number of imports.
// External tests (package x_test) may use the builder to make what they test.
var meetOnlyInIR = [][2]string{{"emit", "dsl"}, {"dsl/interp", "dsl"}, {"dsl/ir", "dsl"}, {"emit", "dsl/interp"},
	{"dsl/interp", "emit"}}

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath           string
	Imports, TestImports []string
}

func TestImportsPointDown(t *testing.T) {
	for _, tags := range []string{"", "cuda"} {
		packages, err := list(tags)
		require.NoError(t, err)
		require.NotEmpty(t, packages)
		require.Empty(t, violations(packages), "with the build tags %q", tags)
	}
}

// TestNoRoomIsAboveAQuarter holds each top-level room to a quarter of the project's Go lines, tests aside.
func TestNoRoomIsAboveAQuarter(t *testing.T) {
	lines, all := map[string]int{}, 0
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n := strings.Count(string(text), "\n")
		top, _, _ := strings.Cut(filepath.ToSlash(path)[len("../"):], "/")
		lines[top] += n
		all += n
		return nil
	}))
	require.Greater(t, len(lines), 8)
	for top, n := range lines {
		require.LessOrEqual(t, 4*n, all, "%s has %d of %d lines: more than a quarter", top, n, all)
	}
}

func TestImportsTheWrongWayAreReported(t *testing.T) {
	at := func(path string, imports ...string) pkg {
		p := pkg{ImportPath: module + "/" + path}
		for _, i := range imports {
			p.Imports = append(p.Imports, module+"/"+i)
		}
		return p
	}
	for want, packages := range map[string][]pkg{
		"dsl/ir (room dsl/ir) imports dsl (room dsl)":                   {at("dsl/ir", "dsl")},
		"tasks/grid (room tasks/grid) imports models (room models)":     {at("tasks/grid", "models")},
		"tasks/product (room tasks/product) imports tasks/attention":    {at("tasks/product", "tasks/attention")},
		"models/synth (room models) imports internal/x (room internal)": {at("models/synth", "internal/x")},
		"megakernel (room megakernel) imports tests/gpu (room tests)":   {at("megakernel", "tests/gpu")},
		"surprise is in no room":                                        {at("surprise")},
		"dslx is in no room":                                            {at("dslx")},
		"emit/host reaches dsl": {
			{ImportPath: module + "/emit/host", TestImports: []string{module + "/tests/help"}}, at("tests/help", "dsl/build"),
			at("dsl/build")},
	} {
		found := violations(packages)
		require.NotEmpty(t, found, want)
		require.Contains(t, strings.Join(found, "\n"), want)
	}
	require.Empty(t, violations([]pkg{
		at("dsl", "dsl/ir"), at("dsl/ir", "dsl/ir/table"), at("dsl/ir/table"), at("emit", "dsl/ir"),
		at("tests/gpu", "models", "emit"),
		{ImportPath: module + "/tasks/grid", Imports: []string{"fmt", module + "/dsl"},
			TestImports: []string{module + "/dsl/interp"}},
	}))
}

// list returns the module's packages under the given build tags.
func list(tags string) ([]pkg, error) {
	out, err := exec.Command("go", "list", "-tags", tags, "-json=ImportPath,Imports,TestImports", module+"/...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []pkg
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// violations are the imports that point the wrong way, a sentence each.
func violations(packages []pkg) []string {
	var found []string
	for _, p := range packages {
		from, path := room(p.ImportPath), short(p.ImportPath)
		if from == "" {
			found = append(found, path+" is in no room: name its room in tests/rooms_test.go, with what it may import")
			continue
		}
		if slices.Contains(outer, from) {
			continue
		}
		for _, imported := range p.Imports {
			to := room(imported)
			if !ours(imported) || to == from || slices.Contains(mayImport[from], to) {
				continue
			}
			found = append(found, fmt.Sprintf("%s (room %s) imports %s (room %s)", path, from, short(imported), to))
		}
	}
	return append(found, reached(packages)...)
}

// reached are the packages from which meetOnlyInIR's second room can be reached.
func reached(packages []pkg) []string {
	byPath := map[string]pkg{}
	for _, p := range packages {
		byPath[p.ImportPath] = p
	}
	var found []string
	for _, p := range packages {
		for _, pair := range meetOnlyInIR {
			if room(p.ImportPath) != pair[0] {
				continue
			}
			seen := map[string]bool{p.ImportPath: true}
			queue := slices.Concat(p.Imports, p.TestImports)
			for len(queue) > 0 {
				next := queue[0]
				queue = queue[1:]
				if seen[next] || !ours(next) {
					continue
				}
				seen[next] = true
				if room(next) == pair[1] {
					found = append(found, fmt.Sprintf("%s reaches %s (%s), which it must never", short(p.ImportPath), pair[1],
						short(next)))
					break
				}
				queue = append(queue, byPath[next].Imports...)
			}
		}
	}
	return found
}

// ours says whether a package is of this module.
func ours(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

// short is a path inside the module.
func short(path string) string { return strings.TrimPrefix(path, module+"/") }

// room is the room of a package, "" when it has none.
func room(path string) string {
	best := ""
	for name := range mayImport { // the longest is unique
		if p := short(path); (p == name || strings.HasPrefix(p, name+"/")) && len(name) > len(best) {
			best = name
		}
	}
	return best
}

// mapped are large packages whose comment has a map of their files.
var mapped = []string{"tasks/grid", "tasks/product", "tasks/prefill", "tasks/attention", "tasks/sample", "megakernel", "pipeline", "engine/runtime"}

// A reader who knows what to look for finds the file in the package comment: it names every file, or all that begin
// alike, and none that is not there.
func TestRoomsWithManyFilesHaveAMapOfThem(t *testing.T) {
	for _, dir := range mapped {
		text, err := os.ReadFile(filepath.Join("..", dir, "doc.go"))
		require.NoError(t, err)
		_, list, found := strings.Cut(string(text), "// # Files\n")
		require.True(t, found, "%s/doc.go has no heading Files", dir)
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		require.NoError(t, err)
		files = slices.DeleteFunc(files, func(f string) bool {
			return strings.HasSuffix(f, "_test.go") || filepath.Base(f) == "doc.go"
		})
		var names []string
		for _, line := range strings.Split(list, "\n") {
			if line, ok := strings.CutPrefix(line, "//\t"); ok {
				for _, word := range strings.Fields(line) {
					if !strings.HasSuffix(word, ".go") {
						break
					}
					names = append(names, word)
				}
			}
		}
		used := map[string]bool{}
		for _, f := range files {
			i := slices.IndexFunc(names, func(name string) bool {
				ok, err := filepath.Match(name, filepath.Base(f))
				require.NoError(t, err)
				return ok
			})
			if assert.GreaterOrEqual(t, i, 0, "%s is not in the map of %s/doc.go", f, dir) {
				used[names[i]] = true
			}
		}
		for _, name := range names {
			assert.True(t, used[name], "%s/doc.go names %s, which nothing in the package is", dir, name)
		}
	}
}
