package sass_test

import (
	"errors"
	"os"
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
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// source prints the kernel of the model tiny.
func source(t *testing.T, o megakernel.Options) compile.Source {
	t.Helper()
	config, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(config, o)
	require.NoError(t, err)
	s, err := compile.SourceOf(mk, "sm_90a")
	require.NoError(t, err)
	return s
}

// machineCode compiles and disassembles, or skips the test where nvcc or nvdisasm is missing, unless MKGEN_NEED_NVCC is
// set.
func machineCode(t *testing.T, s compile.Source) *listing {
	t.Helper()
	c := nvcctest.Need(t)
	r, err := compile.Kernel(t.Context(), s, compile.Options{With: compile.Nvcc})
	require.NoError(t, err)
	text, err := nvcc.Disassemble(t.Context(), r.Cubin, c.Path)
	if errors.Is(err, nvcc.ErrNoDisassembler) && os.Getenv("MKGEN_NEED_NVCC") == "" {
		t.Skip("needs nvdisasm: " + err.Error())
	}
	require.NoError(t, err)
	return read(text)
}

// listing is a disassembly whose instructions can be moved. What the compiler noted of an instruction's line moves with
// it.
type listing struct{ lines []entry }

// entry is a line: an instruction with the notes of its place, or anything else.
type entry struct{ notes, text string }

var instruction = regexp.MustCompile(`^\s*/\*[0-9a-f]{4,}\*/`)

func read(text string) *listing {
	l := &listing{}
	notes, fresh := "", false
	for s := range strings.Lines(text) {
		switch {
		case strings.Contains(s, "//## File"):
			if fresh {
				notes = ""
			}
			notes, fresh = notes+s, false
		case instruction.MatchString(s):
			l.lines = append(l.lines, entry{notes, s})
			fresh = true
		default:
			l.lines = append(l.lines, entry{text: s})
		}
	}
	return l
}

func (l *listing) String() string {
	var b strings.Builder
	for _, e := range l.lines {
		b.WriteString(e.notes + e.text)
	}
	return b.String()
}

func (l *listing) clone() *listing { return &listing{slices.Clone(l.lines)} }

// find is the first line from position from on that matches.
func (l *listing) find(t *testing.T, from int, form string) int {
	t.Helper()
	re := regexp.MustCompile(form)
	for i := from; i < len(l.lines); i++ {
		if re.MatchString(l.lines[i].text) {
			return i
		}
	}
	require.Failf(t, "nothing to doctor", "no %s behind line %d", form, from)
	return 0
}

// move takes line from to before line to.
func (l *listing) move(from, to int) {
	e := l.lines[from]
	l.lines = slices.Delete(l.lines, from, from+1)
	if to > from {
		to--
	}
	l.lines = slices.Insert(l.lines, to, e)
}

func (l *listing) drop(i int) { l.lines = slices.Delete(l.lines, i, i+1) }

func (l *listing) replace(i int, old, by string) {
	l.lines[i].text = strings.Replace(l.lines[i].text, old, by, 1)
}

func check(t *testing.T, s compile.Source, l *listing) *sass.Report {
	t.Helper()
	r, err := sass.Check(s.Kernel, &emit.Source{Text: s.Text, Lines: s.Lines, Instrs: s.Instrs}, l.String())
	require.NoError(t, err)
	return r
}

func TestCompiledKernelsSynchroniseAsTheirPrograms(t *testing.T) {
	for name, o := range map[string]megakernel.Options{
		"one row": {}, "eight rows": {Tokens: 8}, "barriers": {Vectors: "barrier"},
	} {
		t.Run(name, func(t *testing.T) {
			s := source(t, o)
			r := check(t, s, machineCode(t, s))
			require.NoError(t, r.Err())
			require.Greater(t, r.Events, 100)
			require.Greater(t, 10*r.Placed, 8*(r.Events+r.Accesses), "most lines lead to the program: %+v", r)
		})
	}
}

// Each fault is one that a compiler could make. The finding names the machine instruction and the Go line of the
// program.
func TestDoctoredMachineCodeIsFound(t *testing.T) {
	s := source(t, megakernel.Options{})
	whole := machineCode(t, s)
	for name, fault := range map[string]struct {
		doctor func(l *listing)
		want   string // a form of the error
	}{
		"a packet's load is split": {func(l *listing) {
			at := l.find(t, 0, `LDG\.E\.128\.STRONG\.GPU`)
			l.replace(at, "LDG.E.128.STRONG.GPU", "LDG.E.STRONG.GPU")
			second := l.lines[at]
			second.text = strings.Replace(second.text, ".64]", ".64+0xc]", 1)
			l.lines = slices.Insert(l.lines, at, second)
		}, `LDG\.E\.STRONG\.GPU .*\(ld\.gpu\.32, line \d+ of the text\) comes behind .* where the program has .*ld\.gpu\.128 of \S+ at \S+\.go:\d+`},
		"a fence is dropped": {func(l *listing) { l.drop(l.find(t, 0, `MEMBAR\.\S+\.GPU`)) },
			`where the program has .*membar\.gpu of \S+ at \S+\.go:\d+`},
		"a fence has the CTA's scope": {func(l *listing) { l.replace(l.find(t, 0, `MEMBAR\.\S+\.GPU`), ".GPU", ".CTA") },
			`where the program has .*membar\.gpu of \S+ at \S+\.go:\d+`},
		"a load is moved across an acquire": {func(l *listing) {
			acquire := l.find(t, 0, `CCTL\.IVALL`)
			l.move(l.find(t, acquire, `LDG\.E(\.\d+)? `), acquire)
		},
			`LDG\S* .*\(load of global, line \d+ of the text\) stands behind .* where the program has .*drop L1 lines of \S+ at \S+\.go:\d+`},
		"a wait for an mbarrier is dropped": {func(l *listing) { l.drop(l.find(t, 0, `SYNCS\.PHASECHK\.TRANS64\.TRYWAIT`)) },
			`where the program has .*mbarrier try_wait of wait\.mbar at \S+\.go:\d+`},
		"a bulk copy is moved before its expectation": {func(l *listing) {
			expect := l.find(t, 0, `SYNCS\.ARRIVE\.TRANS64 `)
			l.move(l.find(t, expect, `UBLKCP`), expect)
		}, `SYNCS\.ARRIVE\S* .*\(mbarrier expect, line \d+ of the text\) comes behind .*bulk copy of bulk\.g2s at \S+\.go:\d+`},
		"a barrier of other threads": {func(l *listing) { l.replace(l.find(t, 0, `BAR\.SYNC\S* 0x1, `), "0x1, ", "0x2, ") },
			`BAR\.SYNC\S* 0x2.* comes behind .* where the program has .*bar\.sync 1 of \d+ of bar\.sync at \S+\.go:\d+`},
		"a packet is stored weakly": {func(l *listing) {
			l.replace(l.find(t, 0, `STG\.E\.128\.STRONG\.GPU`), ".STRONG.GPU",
				"")
		},
			`STG\.E\.128 .*\(store to global, line \d+ of the text\) is weak, where the program has st\.gpu\.128 of st at \S+\.go:\d+`},
	} {
		t.Run(name, func(t *testing.T) {
			l := whole.clone()
			fault.doctor(l)
			require.NotEqual(t, whole, l)
			err := check(t, s, l).Err()
			require.Error(t, err)
			require.Regexp(t, fault.want, err.Error())
		})
	}
}

// events are instructions whose loss matters. Left out are those that the compiler adds of its own (fences of the CTA,
// lines of L1 dropped), and relaxed loads: polls repeat them, and what a lost one breaks is a value.
var events = regexp.MustCompile(
	` (MEMBAR\.\S+\.(GPU|SYS)|BAR\.\S+|SYNCS\.\S+|UBLKCP\S*|REDG\S*|ATOMG\S*|STG\S*\.STRONG\S*|FENCE\.VIEW\.ASYNC\.G) `)

// TestEveryLostEventIsFound drops synchronising instructions one at a time: all of them with -deep, else some. Three
// have copies elsewhere and stand under conditions that the program has, too: without one the code looks as where its
// condition does not hold.
func TestEveryLostEventIsFound(t *testing.T) {
	s := source(t, megakernel.Options{})
	whole := machineCode(t, s)
	step, found := 16, 0
	if deep.On() {
		step = 1
	}
	var lost []string
	nth := 0
	for i, e := range whole.lines {
		if !events.MatchString(e.text) {
			continue
		}
		if nth++; nth%step != 0 {
			continue
		}
		l := whole.clone()
		l.drop(i)
		if check(t, s, l).Err() == nil {
			lost = append(lost, strings.TrimSpace(e.notes+e.text))
		} else {
			found++
		}
	}
	t.Logf("%d of %d", found, found+len(lost))
	require.LessOrEqual(t, len(lost), 3, "%v", lost)
	require.Greater(t, found, 100/step)
}
