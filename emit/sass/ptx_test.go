package sass_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/emit/sass"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/stretchr/testify/require"
)

// ptxOf is the PTX of a text, or skips the test where nvcc is missing, unless MKGEN_NEED_NVCC is set.
func ptxOf(t *testing.T, s compile.Source) *listing {
	t.Helper()
	c := nvcctest.Need(t)
	file := filepath.Join(t.TempDir(), emit.KernelFile)
	require.NoError(t, os.WriteFile(file, s.Text, 0o666))
	text, err := c.PTX(t.Context(), file, nvcc.Options{Arch: s.Arch, Flags: []string{"-lineinfo"}})
	require.NoError(t, err)
	l := &listing{}
	note := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t.loc") {
			note = line
		}
		l.lines = append(l.lines, entry{text: line, notes: note})
	}
	return l
}

func checkPTX(t *testing.T, s compile.Source, l *listing) *sass.Report {
	t.Helper()
	var b strings.Builder
	for _, e := range l.lines {
		b.WriteString(e.text)
	}
	r, err := sass.CheckPTX(s.Kernel, &emit.Source{Text: s.Text, Lines: s.Lines, Instrs: s.Instrs}, b.String())
	require.NoError(t, err)
	return r
}

// carry moves a line of PTX before another, each with the .loc that it has now.
func (l *listing) carry(from, to int) {
	e, before := l.lines[from], l.lines[to].notes
	l.lines = slices.Delete(l.lines, from, from+1)
	l.lines = slices.Insert(l.lines, to, entry{text: e.notes}, e, entry{text: before})
}

func TestPTXSynchronisesAsItsProgram(t *testing.T) {
	for name, o := range map[string]megakernel.Options{
		"one row": {}, "eight rows": {Tokens: 8}, "barriers": {Vectors: "barrier"},
	} {
		t.Run(name, func(t *testing.T) {
			s := source(t, o)
			r := checkPTX(t, s, ptxOf(t, s))
			require.NoError(t, r.Err())
			require.True(t, r.PTX)
			require.Greater(t, r.Events, 100)
			require.Greater(t, 100*r.Placed, 90*(r.Events+r.Accesses), "lines lead to the program: %+v", r)
		})
	}
}

// Each fault is one that the front end of a compiler could make. The finding names the line of PTX and the Go line of
// the program.
func TestDoctoredPTXIsFound(t *testing.T) {
	s := source(t, megakernel.Options{})
	barriers := source(t, megakernel.Options{Vectors: "barrier"})
	whole, ofBarriers := ptxOf(t, s), ptxOf(t, barriers)
	const packet = `^ld\.relaxed\.gpu\.global\.b128 `
	for name, fault := range map[string]struct {
		doctor func(l *listing)
		want   string // a form of the error
	}{
		"a packet's load is split": {func(l *listing) {
			at := l.find(t, 0, packet)
			l.replace(at, "ld.relaxed.gpu.global.b128", "ld.relaxed.gpu.global.b64")
			second := l.lines[at]
			second.text = strings.Replace(second.text, "];", "+8];", 1)
			l.lines = slices.Insert(l.lines, at, second)
		}, `line \d+: ld\.relaxed\.gpu\.global\.b64 .*\(ld\.gpu\.64, line \d+ of the text\) comes behind .* where the program has .*ld\.gpu\.128 of \S+ at \S+\.go:\d+`},
		"a packet's load is a vector": {func(l *listing) {
			l.replace(l.find(t, 0, packet), ".b128 v", ".v2.b32 {a, b}")
		}, `\(ld\.gpu\.64, line \d+ of the text\) comes behind .* where the program has .*ld\.gpu\.128 of \S+ at \S+\.go:\d+`},
		"a release's fence is dropped": {func(l *listing) {
			l.replace(l.find(t, 0, `^\s*red\.release\.gpu`), "release",
				"relaxed")
		},
			`where the program has .*membar\.gpu of red\.add at \S+\.go:\d+`},
		"a release has the CTA's scope": {func(l *listing) {
			l.replace(l.find(t, 0, `^\s*red\.release\.gpu`), ".gpu",
				".cta")
		},
			`\(membar\.cta, line \d+ of the text\) .*where the program has .*membar\.gpu of red\.add at \S+\.go:\d+|nothing in the PTX stands for membar\.gpu of red\.add at \S+\.go:\d+`},
		"a proxy fence is dropped": {func(l *listing) { l.drop(l.find(t, 0, `fence\.proxy\.async\.global`)) },
			`where the program has .*proxy fence of global of fence\.proxy\S* at \S+\.go:\d+`},
		"an acquire is relaxed": {func(l *listing) { l.replace(l.find(t, 0, `ld\.acquire\.gpu`), "acquire", "relaxed") },
			`where the program has .*drop L1 lines of wait at \S+\.go:\d+`},
		"a load is moved across an acquire": {func(l *listing) {
			acquire := l.find(t, 0, `ld\.acquire\.gpu\.global`)
			l.carry(l.find(t, acquire, `^\s*ld\.global\.(f32|u32|v\d)`), acquire)
		}, `ld\.global\.\S+ .*\(load of global, line \d+ of the text\) stands behind .* where the program has `},
		"a wait for an mbarrier is dropped": {func(l *listing) { l.drop(l.find(t, 0, `mbarrier\.try_wait`)) },
			`st\.shared\.\S+ .*\(store to shared, line \d+ of the text\) stands behind bar\.sync 1 of \d+ of bar\.sync at \S+\.go:\d+, where the program has `},
		"a bulk copy is moved before its expectation": {func(l *listing) {
			expect := l.find(t, 0, `mbarrier\.arrive\.expect_tx`)
			l.carry(l.find(t, expect, `cp\.async\.bulk\.shared`), expect)
		}, `\(mbarrier expect, line \d+ of the text\) comes behind bulk copy of bulk\.g2s at \S+\.go:\d+, where the program has `},
		"a barrier of other threads": {func(l *listing) { l.replace(l.find(t, 0, `bar\.sync 1, `), "1, ", "2, ") },
			`bar\.sync 2.* comes behind .* where the program has .*bar\.sync 1 of \d+ of bar\.sync at \S+\.go:\d+`},
		"a packet is stored weakly": {func(l *listing) {
			l.replace(l.find(t, 0, `^st\.relaxed\.gpu\.global\.b128`),
				".relaxed.gpu", "")
		},
			`st\.global\.b128 .*\(store to global, line \d+ of the text\) is weak, where the program has st\.gpu\.128 of st at \S+\.go:\d+`},
	} {
		t.Run(name, func(t *testing.T) {
			of, l := s, whole.clone()
			if strings.Contains(name, "moved across") {
				of, l = barriers, ofBarriers.clone()
			}
			fault.doctor(l)
			err := checkPTX(t, of, l).Err()
			require.ErrorContains(t, err, "the PTX does not synchronise as the program does")
			require.Regexp(t, fault.want, err.Error())
		})
	}
}

// ptxEvents are the instructions of PTX whose loss matters; relaxed loads are polls, and what a lost one breaks is a
// value.
var ptxEvents = regexp.MustCompile(
	`^\s*(bar\.sync|bar\.arrive|mbarrier\.\w|cp\.async\.bulk|red\.|atom\.|st\.relaxed|ld\.acquire|fence\.(proxy|acq_rel|sc))`)

// TestEveryLostEventOfPTXIsFound drops synchronising instructions one at a time: all of them with -deep, else some. One
// stands under a condition that the program has, too, with nothing behind it that tells.
func TestEveryLostEventOfPTXIsFound(t *testing.T) {
	s := source(t, megakernel.Options{})
	whole := ptxOf(t, s)
	step, nth, found := 16, 0, 0
	if deep.On() {
		step = 1
	}
	var lost []string
	for i, e := range whole.lines {
		if !ptxEvents.MatchString(e.text) {
			continue
		}
		if nth++; nth%step != 0 {
			continue
		}
		l := whole.clone()
		l.drop(i)
		if checkPTX(t, s, l).Err() == nil {
			lost = append(lost, strings.TrimSpace(e.notes+e.text))
		} else {
			found++
		}
	}
	t.Logf("%d of %d", found, found+len(lost))
	require.LessOrEqual(t, len(lost), 1, "%v", lost)
	require.Greater(t, found, 80/step)
}

func TestPTXThatCannotBeFollowedIsAnError(t *testing.T) {
	s := source(t, megakernel.Options{})
	for text, want := range map[string]string{
		"":                             "no kernel mkgen_step in 0 bytes",
		".entry other(\n)\n{\nret;\n}": "no kernel mkgen_step",
		".visible .entry mkgen_step(\n.param .b8 x\n)\n{\ncall.uni f;\n}":            "line 5: call.uni f: branches to a computed place",
		".visible .entry mkgen_step(\n.param .b8 x\n)\n{\nbra.uni L;\nret;\n}":       "line 5: bra.uni L: no such label",
		".visible .entry mkgen_step(\n.param .b8 x\n)\n{\nL: ret;\n{\nL: ret;\n}\n}": "line 7: label L stands in two places",
	} {
		_, err := sass.CheckPTX(s.Kernel, &emit.Source{Text: s.Text, Lines: s.Lines, Instrs: s.Instrs}, text)
		require.ErrorContains(t, err, want)
	}
}
