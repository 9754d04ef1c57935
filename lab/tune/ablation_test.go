package tune_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func level(megakernel.Options) float64 { return 1000 }

// ablation is one of llama3-8b, which is built and not run; saved are how many rows had
// figures each time.
func ablation(t *testing.T, f *field) (a *tune.Ablation, saved *[]int) {
	t.Helper()
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{})
	require.NoError(t, err)
	saved = &[]int{}
	return &tune.Ablation{Kernel: mk, Pairer: f,
		Setup: tune.Setup{GPU: "fake GPU", Commit: "abc", Arch: "sm_90a", Contexts: contexts, Weights: "random, seed 1",
			Tokens: 16, Launches: 7},
		Save: func(r *tune.Ablated) error {
			require.NoError(t, r.Check())
			*saved = append(*saved, r.Count())
			return nil
		}}, saved
}

// rowOf is the row of a variant.
func rowOf(t *testing.T, r *tune.Ablated, differs string) tune.Row {
	t.Helper()
	for _, row := range r.Rows {
		if row.Differs == differs {
			return row
		}
	}
	require.Fail(t, "no such row", differs)
	return tune.Row{}
}

func groupsOf(r *tune.Ablated) map[string][]string {
	all := map[string][]string{}
	for _, row := range r.Rows {
		all[row.Group] = append(all[row.Group], row.Differs)
	}
	return all
}

// Of coded weights the formats of as many bits are compared, each by the bytes that it reads, and syncs that want a
// barrier are tried although all vectors are in packets.
func TestAblationOfCodedWeightsHasTheirFormats(t *testing.T) {
	a, _ := ablation(t, &field{micros: level, drift: 1e-5})
	mk, err := megakernel.Build(a.Kernel.Config, megakernel.Options{Weights: "i4g128"})
	require.NoError(t, err)
	require.Equal(t, string(megakernel.VectorsAll), mk.Options.Vectors)
	a.Kernel = mk
	if !deep.On() {
		a.Most = 3
	}
	r, err := a.Run(t.Context())
	require.NoError(t, err)
	groups := groupsOf(r)
	for i, f := range deep.Most([]string{"i4g64", "i4g32", "i4", "i4g128-zeros", "i4g128-f16", "mxfp4", "nvfp4"}, 3) {
		require.Contains(t, groups[tune.FormatsOf][i], "--weight-format "+f)
	}
	require.Equal(t, []string{"--queries barrier --merge phase --vectors counted",
		"--queries barrier --merge words --vectors counted", "--queries words --merge phase --vectors counted"},
		groups[tune.AroundAttend])
	require.Equal(t, []string{"--mlp fused"}, groups[tune.MLPOf], "one refusal")
	wider := rowOf(t, r, groups[tune.FormatsOf][1])
	require.InDelta(t, 1, wider.Ratio, 2e-4)
	require.Greater(t, wider.Share[0], r.Share[0], "as fast with more bytes of scales")
}

func TestAblationMeasuresWhatDiffersInOneThing(t *testing.T) {
	deep.Only(t)
	f := &field{micros: func(o megakernel.Options) float64 {
		if o.Merge == megakernel.MergePhase {
			return 1010
		}
		return 1000
	}, drift: 1e-5}
	a, saved := ablation(t, f)
	r, err := a.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string][]string{
		tune.Control: {"the same kernel, loaded again"},
		tune.AroundAttend: {"--queries barrier --merge phase", "--queries barrier --merge words",
			"--queries words --merge phase"},
		tune.VectorsOf: {"--vectors all", "--vectors barrier"},
		tune.LeadsOf:   {"--leads none", "--leads 5:3", "--leads 6:3", "--leads 6:2", "--leads 8:3", "--leads 8:2"},
		tune.HeldOf:    {"--held 0", "--held 1", "--held 2", "--held 3", "--held 4", "--held 6"},
		tune.CopiesOf: {"--in-flight 1 --leads none", "--in-flight 2 --leads none", "--in-flight 3 --leads none",
			"--in-flight 3 --leads 4:2", "--in-flight 5 --leads none", "--in-flight 5 --leads 6:2", "--in-flight 6 --leads none",
			"--in-flight 6 --leads 7:2"},
		tune.Ring: {"--stage-bytes 8192 --stages 23 --in-flight 8 --leads 10:4 --held 8",
			"--stage-bytes 8192 --stages 17 --in-flight 8 --leads 10:4 --held 8",
			"--stage-bytes 8192 --stages 11 --in-flight 8 --leads 10:4 --held 8", "--stage-bytes 16384 --stages 8",
			"--stage-bytes 16384 --stages 5 --leads none", "--stage-bytes 32768 --stages 5 --in-flight 2 --leads 3:1 --held 3",
			"--stage-bytes 32768 --stages 5 --in-flight 2 --leads none --held 3",
			"--stage-bytes 32768 --stages 4 --in-flight 2 --leads 3:1 --held 3",
			"--stage-bytes 32768 --stages 4 --in-flight 2 --leads none --held 3",
			"--stage-bytes 32768 --stages 3 --in-flight 2 --leads none --held 3",
			"--stage-bytes 32768 --stages 2 --in-flight 2 --leads none --held 3",
			"--stage-bytes 65536 --stages 2 --in-flight 1 --leads none --held 2",
			"--stage-bytes 65536 --stages 2 --in-flight 2 --leads none --held 2"},
		tune.ConsumersOf: {"--consumers 6", "--consumers 7", "--consumers 10", "--consumers 11"},
		tune.SplitsOf:    {"--splits 8", "--splits 32"},
		tune.MLPOf:       {"--mlp fused", "--stages 12 --mlp fused"},
		tune.WatchdogOf:  {"--watchdog all", "--watchdog none"},
	}, groupsOf(r))
	require.Equal(t, len(r.Rows), r.Count())
	require.Equal(t, len(r.Rows), f.early, "all is compiled before anything is loaded")
	require.Equal(t, 2, f.most, "two are loaded at a time")
	require.Empty(t, f.running)
	require.Len(t, *saved, len(r.Rows)+1)
	require.Empty(t, r.Odd())
	for _, row := range r.Rows {
		want := 1.0
		if strings.Contains(row.Differs, "--merge phase") {
			want = 1.01
		}
		require.InDelta(t, want, row.Ratio, 2e-4, "a GPU that grows slower slows both: %s", row.Differs)
		bits := tune.SameBits
		if row.Group == tune.MLPOf {
			bits = tune.NotRepeatable // its options say so, whatever a few launches do
		}
		require.Equal(t, bits, row.Bits)
		require.Equal(t, 0.003, row.Noise)
	}
}

func TestAblationTakesLaunchesInTurns(t *testing.T) {
	deep.Only(t)
	f := &field{micros: level}
	a, _ := ablation(t, f)
	a.Most = 2
	_, err := a.Run(t.Context())
	require.NoError(t, err)
	of := f.order[2*8*len(contexts):][:2*8*len(contexts)] // the first variant that is another kernel
	var text strings.Builder
	for _, o := range of {
		text.WriteString(map[megakernel.Sync]string{megakernel.SyncWords: "k", megakernel.SyncBarrier: "v"}[o.Queries])
	}
	require.Equal(t, strings.Repeat("kvvkkvvkkvvkkvvk", len(contexts)), text.String(),
		"now the one first and now the other")
}

func TestAblationOfSeveralRowsHasWhatApplies(t *testing.T) {
	deep.Only(t)
	f := &field{micros: level}
	a, _ := ablation(t, f)
	mk, err := megakernel.Build(a.Kernel.Config, megakernel.Options{Tokens: 8})
	require.NoError(t, err)
	a.Kernel = mk
	r, err := a.Run(t.Context())
	require.NoError(t, err)
	all := groupsOf(r)
	require.NotContains(t, all, tune.AroundAttend)
	require.NotContains(t, all, tune.SplitsOf)
	require.NotContains(t, all, tune.MLPOf)
	require.Contains(t, all, tune.WatchdogOf)
	row := rowOf(t, r, "--consumers 11")
	require.Contains(t, row.Why, "at most 10 would fit")
	require.Nil(t, row.Micros)
}

// What is added in any order is a variant and never the kernel.
func TestAblationOfAKernelThatIsNotRepeatableIsRefused(t *testing.T) {
	a, _ := ablation(t, &field{micros: level})
	mk, err := megakernel.Build(a.Kernel.Config, megakernel.Options{MLP: megakernel.MLPFused})
	require.NoError(t, err)
	a.Kernel = mk
	_, err = a.Run(t.Context())
	require.EqualError(t, err,
		"the kernel itself is not repeatable, with --mlp fused; want rows, of which that is a variant")
}

func TestAblationMarksOtherBitsAndWhatIsNotRepeatable(t *testing.T) {
	deep.Only(t)
	f := &field{micros: level, bits: func(o megakernel.Options, launch int) string {
		switch {
		case o.Splits == 8 || o.Watchdog == megakernel.WatchAll:
			return "other"
		case o.Merge == megakernel.MergePhase && o.Queries == megakernel.SyncWords && launch == 6:
			return "once"
		}
		return ""
	}}
	a, _ := ablation(t, f)
	r, err := a.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, tune.OtherBits, rowOf(t, r, "--splits 8").Bits)
	require.Equal(t, tune.OtherBits, rowOf(t, r, "--watchdog all").Bits)
	require.Equal(t, tune.NotRepeatable, rowOf(t, r, "--queries words --merge phase").Bits)
	require.Equal(t, tune.SameBits, rowOf(t, r, "--splits 32").Bits)
	var odd []string
	for _, row := range r.Odd() {
		odd = append(odd, row.Differs)
	}
	require.Equal(t, []string{"--queries words --merge phase", "--watchdog all"}, odd,
		"another split may round in another order")
	var out bytes.Buffer
	require.NoError(t, r.WriteTable(&out))
	require.Regexp(t, `--queries words --merge phase +1016.0 .* 1.0000  0.0030  not repeatable\n`, out.String())
	require.Regexp(t, `\nsplits\n  --splits 8 +1016.0 .* other bits\n`, out.String())
	require.Regexp(t, `\n  --stage-bytes \d+ --stages \d+ +1016.0 .* same bits\n  --in-flight `, out.String())
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len([]rune(line)), 103, "%q", line) // 101 with shares below 100 %
	}
}

func TestAblationShowsWhatDoesNotCompileOrRun(t *testing.T) {
	deep.Only(t)
	f := &field{micros: level, refused: func(o megakernel.Options) error {
		if o.Consumers == 11 {
			return errors.New("too many registers\nmore of it")
		}
		return nil
	}, broken: func(o megakernel.Options, launch int) error {
		if o.Splits == 32 && launch == 3 {
			return errors.New("it hangs")
		}
		return nil
	}}
	a, _ := ablation(t, f)
	r, err := a.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, "it does not compile: too many registers", rowOf(t, r, "--consumers 11").Why)
	require.Equal(t, "it hangs", rowOf(t, r, "--splits 32").Why)
	require.Equal(t, len(r.Rows)-2, r.Count())
	require.Empty(t, f.running)
	for _, o := range f.order {
		require.NotEqual(t, 11, o.Consumers, "what does not compile is not run")
	}
	var out bytes.Buffer
	require.NoError(t, r.WriteMarkdown(&out))
	require.Contains(t, out.String(),
		"|  | differs in | µs at 16 | share | µs at 128 | share | ratio | noise | bits |\n| --- | --- | --: | --: | --: | --: | --: | --: | --- |\n| the kernel |  | 1016.0 |")
	require.Contains(t, out.String(), "|  | --splits 32 |  |  |  |  |  |  | it hangs |\n")
	out.Reset()
	require.NoError(t, r.WriteTable(&out))
	require.Contains(t, out.String(), "\n  --splits 32\n    it hangs\n")
}

func TestAblationEndsWhereTheKernelItselfFails(t *testing.T) {
	deep.Only(t)
	shipped := func(o megakernel.Options) bool {
		return o.Watchdog == megakernel.WatchGrid && o.Consumers == 8 && o.Merge == megakernel.MergeWords
	}
	for want, f := range map[string]*field{
		"the kernel itself: the GPU is lost": {micros: level, broken: func(o megakernel.Options, launch int) error {
			if shipped(o) && launch > 40 {
				return errors.New("the GPU is lost")
			}
			return nil
		}},
		"the kernel itself: context 16: two launches from the same state computed different bits: it is not repeatable": {
			micros: level,
			bits:   func(_ megakernel.Options, launch int) string { return fmt.Sprint(launch > 1) }},
		"the kernel itself: out of memory": {micros: level, room: 1},
		"no compiler": {micros: level,
			refused: func(megakernel.Options) error { return errors.New("no compiler") }},
		"the first sequence run twice gave diff": {micros: level, report: &gate.Report{}},
	} {
		a, _ := ablation(t, f)
		a.Most = 2
		r, err := a.Run(t.Context())
		require.ErrorContains(t, err, want)
		require.Empty(t, f.running)
		if strings.Contains(want, "lost") {
			require.Equal(t, 2, r.Count(), "what was measured stays")
		} else {
			require.Nil(t, r)
		}
	}
}

func TestAblationBeginsNothingAfterItsTime(t *testing.T) {
	deep.Only(t)
	now := time.Unix(0, 0)
	f := &field{micros: level, before: func(int) { now = now.Add(time.Second) }}
	a, _ := ablation(t, f)
	a.Most = 2
	a.Now, a.Budget = func() time.Time { return now }, 60*time.Second
	r, err := a.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, r.Count(), "32 launches each")
	require.Equal(t, "not measured: the time was over", rowOf(t, r, "--watchdog none").Why)
}

func TestAnInterruptedAblationKeepsWhatWasMeasured(t *testing.T) {
	deep.Only(t)
	ctx, cancel := context.WithCancel(t.Context())
	f := &field{micros: level, before: func(n int) {
		if n == 100 {
			cancel()
		}
	}}
	a, saved := ablation(t, f)
	a.Most = 2
	r, err := a.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, r.Count())
	require.Equal(t, []int{1, 2, 3}, *saved)
	require.Empty(t, f.running)
}

func TestAblationOfAGatedKernelSaysSo(t *testing.T) {
	deep.Only(t)
	f := &field{micros: level,
		report: &gate.Report{Identical: true, Gate: gate.Record{Passed: true, FaultsCaught: []string{}}}}
	a, _ := ablation(t, f)
	a.Most = 2
	r, err := a.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, tune.Gated, r.Gate)
	require.NotNil(t, r.Judged)
}

// Where a phase merges states every KV head is split, and no others are at contexts that are short.
func TestAblationExpectsOtherBitsWhereHeadsAreSplitOtherwise(t *testing.T) {
	f := &field{micros: level, bits: func(o megakernel.Options, _ int) string { return string(o.Merge) }}
	for _, c := range []struct {
		contexts []int
		odd      int
	}{{[]int{128, 1024}, 0}, {[]int{1024}, 2}} {
		a, _ := ablation(t, f)
		a.Setup.Contexts = c.contexts
		r, err := a.Run(t.Context())
		require.NoError(t, err)
		require.Equal(t, tune.OtherBits, rowOf(t, r, "--queries words --merge phase").Bits)
		require.Len(t, r.Odd(), c.odd, c.contexts)
	}
}

func TestAnAblationsFileIsReadAsItWasWritten(t *testing.T) {
	deep.Only(t)
	a, _ := ablation(t, &field{micros: level})
	a.Most = 2
	r, err := a.Run(t.Context())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "new", "a.json")
	require.NoError(t, r.WriteFile(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	again, err := tune.ParseAblated(data)
	require.NoError(t, err)
	require.Equal(t, r, again)
	for _, c := range []struct{ old, new, want string }{
		{`"what": "ablation"`, `"what": "sweep"`, `what is "sweep", want "ablation": an ablation of mkgen bench --ablate`},
		{`"gate": "UNGATED"`, `"gate": "passed"`, `gate is "passed"`},
		{`"bits": "same bits"`, `"bits": "some"`, `row 0: bits is "some"`},
		{`"ratio": 1,`, `"ratio": -1,`, "row 0: a figure is -1"},
		{`"group": "control"`, `"group": ""`, `row 0: group is ""`},
		{`"format": 2`, `"format": 2, "speed": 2`, `unknown field "speed"`},
	} {
		require.Contains(t, string(data), c.old)
		_, err := tune.ParseAblated([]byte(strings.Replace(string(data), c.old, c.new, 1)))
		require.ErrorContains(t, err, c.want)
	}
	r.Rows = nil
	require.ErrorContains(t, r.WriteFile(path), "no ablation is written: there are no rows")
}
