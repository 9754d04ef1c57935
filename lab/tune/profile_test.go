package tune_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// found is the profile of a search of the bowl.
func found(t *testing.T) (*tune.Profile, []tune.Step) {
	t.Helper()
	s, _ := search(t, &land{micros: bowl, broken: func(c tune.Choice) error {
		if c.Consumers == 6 {
			return os.ErrDeadlineExceeded
		}
		return nil
	}})
	p, steps, err := s.Run(t.Context())
	require.NoError(t, err)
	return p, steps
}

func TestAProfileIsReadAsItWasWritten(t *testing.T) {
	deep.Only(t)
	p, _ := found(t)
	path := filepath.Join(t.TempDir(), "new", "p.json")
	require.NoError(t, p.WriteFile(path))
	require.NoError(t, p.WriteFile(path), "a file that is there is replaced")
	got, err := tune.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, p, got)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing half-written stays")
	_, err = tune.ReadFile(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestABrokenProfileIsRefused(t *testing.T) {
	p, _ := found(t)
	text, err := json.Marshal(p)
	require.NoError(t, err)
	_, err = tune.Parse(text)
	require.NoError(t, err)
	for _, c := range []struct{ old, new, want string }{
		{`{"format":3`, `{"speed":1,"format":3`, `unknown field "speed"`},
		{`{"format":3`, `{"format":2`, "format is 2, want 3"},
		{`"model":"tiny"`, `"model":""`, "model is missing"},
		{`"gpu":"fake GPU"`, `"gpu":""`, "gpu is missing"},
		{`"contexts":[16,128]`, `"contexts":[]`, "there are no contexts"},
		{`"contexts":[16,128]`, `"contexts":[16]`, "trial 0: it has figures of 2 and 2 contexts, want 1"},
		{`"launches":9,"kept"`, `"launches":0,"kept"`, "launches is 0, want at least 1"},
		{`"launches":3,"ratio"`, `"launches":-1,"ratio"`, "launches is -1, want at least 1, or 0 of an older file"},
		{`"error":"i/o timeout"`, `"launches":3,"error":"i/o timeout"`, "it failed and has figures"},
		{`"page":16`, `"page":0`, "options: sms is 4 and page 0, want at least 1"},
		{`"start":{`, `"start":{"sms":4,`, "start: it has options that are not searched"},
		{`"dimension":"in-flight"`, `"dimension":"speed"`, `trial 0: dimension is "speed"`},
		{`"better":true`, `"better":false`, "better is false with a ratio of"},
		{`"error":"i/o timeout"`, `"error":""`, "it has figures of 0 and 0 contexts, want 2"},
		{`"merge":"words"`, `"merge":"never"`, `start: merge is "never", want phase or words`},
		{`"queries":"words"`, `"queries":"never"`, `start: queries is "never", want barrier or words`},
		{`"leads":"4:2"`, `"leads":""`, "start: leads is empty, want none or chunks:copies"},
		{`"leads":"4:2"`, `"leads":"4"`, `start: leads: lead "4" in "4", want none or chunks:copies`},
		{`"in_flight":3`, `"in_flight":0`, "start: in_flight is 0, want at least 1"},
		{`"start":{`, `"kept":["speed"],"start":{`, `kept has "speed", want some of stage-bytes, stages, `},
		{`"chosen":{"splits":`, `"chosen":{"splits":9`, "chosen is neither start nor"},
	} {
		broken := strings.Replace(string(text), c.old, c.new, 1)
		require.NotEqual(t, string(text), broken, c.old)
		_, err := tune.Parse([]byte(broken))
		require.ErrorContains(t, err, c.want)
	}
	_, err = tune.Parse([]byte(strings.ReplaceAll(string(text), `"launches":3,"ratio"`, `"ratio"`)))
	require.NoError(t, err, "an older file")
	_, err = tune.Parse(append(text, "{}"...))
	require.EqualError(t, err, "something follows the object")
	_, err = tune.Parse(text[:100])
	require.Error(t, err)
	p.Trials[0].Better = !p.Trials[0].Better
	path := filepath.Join(t.TempDir(), "p.json")
	require.ErrorContains(t, p.WriteFile(path), "no profile is written: trial 0: ")
	require.NoFileExists(t, path)
}

func TestAProfileFitsItsShapeAndRows(t *testing.T) {
	deep.Only(t)
	p, _ := found(t)
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	require.NoError(t, p.Fits(tiny, 0, ""))
	require.NoError(t, p.Fits(tiny, 1, ""))
	require.NoError(t, p.Fits(tiny, 1, megakernel.LaunchSingle))
	require.EqualError(t, p.Fits(tiny, 1, megakernel.LaunchGraph), `it is of steps launched as "single", want "graph"`)
	require.EqualError(t, p.Fits(tiny, 8, ""), "it is of steps of 1 query row, want one of 8")
	tiny.Name, tiny.BOS, tiny.Rope.Theta = "mine", 3, 1e6
	require.NoError(t, p.Fits(tiny, 1, ""), "what the plan does not follow from")
	tiny.Layers++
	require.ErrorContains(t, p.Fits(tiny, 1, ""), "it is of tiny (shape "+p.Shape+"), want one of mine (shape ")
	big, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	require.Error(t, p.Fits(big, 1, ""))
}

// A file that names no format is of bf16.
func TestAProfileFitsItsFormatsOfWeights(t *testing.T) {
	profile := func(weights, head pipeline.Format) *tune.Profile {
		return &tune.Profile{Setup: tune.Setup{Options: megakernel.Options{Weights: weights, Head: head}}}
	}
	for _, x := range []struct {
		of            *tune.Profile
		weights, head pipeline.Format
		want          string
	}{
		{profile("", ""), "", "", ""},
		{profile("", ""), "bf16", "bf16", ""},
		{profile("i4g128", "i8"), "i4g128", "i8", ""},
		{profile("i4g128,o=i8,down=bf16", ""), "i4g128,down=bf16,o=i8", "", ""},
		{profile("", ""), "i4g128", "", "it is of weights in bf16, want i4g128"},
		{profile("i4g128", ""), "", "", "it is of weights in i4g128, want bf16"},
		{profile("i4g128", ""), "i4g128,down=i8", "", "it is of weights in i4g128, want i4g128,down=i8"},
		{profile("i4g128", ""), "i4g128-zeros", "", "it is of weights in i4g128, want i4g128-zeros"},
		{profile("i4g128", ""), "i4g128", "i8", "it is of an LM head in bf16, want i8"},
	} {
		err := x.of.FitsFormats(x.weights, x.head)
		if x.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, x.want)
		}
	}
}

func TestTheTableSaysWhatWasTriedAndChosen(t *testing.T) {
	deep.Only(t)
	p, steps := found(t)
	var out bytes.Buffer
	require.NoError(t, tune.WriteTable(&out, p, steps))
	lines := strings.Split(out.String(), "\n")
	require.Equal(t, "round  dimension  value  against  µs at 16  µs at 128   ratio   noise", lines[0])
	require.Contains(t, out.String(), "    1  in-flight      2        3    1050.0     2100.0  0.9813  0.0030  chosen\n")
	require.Contains(t, out.String(), "failed: i/o timeout\n")
	require.Contains(t, out.String(), "    1  merge      phase    words    1000.0     2000.0  0.9709  0.0030  chosen\n")
}

func TestTheSpaceOfAKernel(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{})
	require.NoError(t, err)
	all := map[string][]string{}
	for _, d := range tune.Space(mk) {
		for _, k := range d.Kernels {
			all[d.Name] = append(all[d.Name], tune.ChoiceOf(k).Value(d.Name))
			require.NotEqual(t, tune.ChoiceOf(mk), tune.ChoiceOf(k))
		}
	}
	require.Equal(t, map[string][]string{"stage-bytes": {"8192", "32768"}, "stages": {"8", "5"},
		"in-flight": {"1", "2", "3", "5", "6"}, "leads": {"none", "5:3", "6:3", "6:2", "8:3", "8:2"},
		"held":      {"0", "1", "2", "3", "4", "6"},
		"consumers": {"6", "7", "10", "11"}, "splits": {"8", "32"}, "queries": {"barrier"}, "merge": {"phase"},
		"vectors": {"all", "barrier"}}, all)
	rows, err := megakernel.Build(c, megakernel.Options{Tokens: 8})
	require.NoError(t, err)
	var of []string
	for _, d := range tune.Space(rows) {
		of = append(of, d.Name)
		require.NotEmpty(t, d.Kernels)
	}
	require.Equal(t, []string{"stage-bytes", "stages", "in-flight", "leads", "consumers"}, of)
}

// How deep a ring may be follows from the room for it, whatever leads the incumbent has:
// the planner's copies in flight need not be more than theirs.
func TestTheDepthsDoNotFollowFromLeads(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{Stages: 8, InFlight: 5, Leads: "6:4"})
	require.NoError(t, err)
	var all []string
	for _, k := range tune.Space(mk)[1].Kernels {
		all = append(all, tune.ChoiceOf(k).Value(tune.Stages))
	}
	require.Equal(t, []string{"11", "8", "5"}, all)
}

// A stage that a KV chunk of 16 tokens does not fit into is left out.
func TestWhatCannotBeBuiltIsLeftOut(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	c.HeadDim, c.Heads, c.KVHeads = 256, 16, 4 // 16 tokens of 1024 bytes
	mk, err := megakernel.Build(c, megakernel.Options{})
	require.NoError(t, err)
	require.Equal(t, tune.StageBytes, tune.Space(mk)[0].Name)
	for _, k := range tune.Space(mk)[0].Kernels {
		require.Greater(t, k.Options.StageBytes, 8<<10)
	}
}

// Stages of another size hold as many bytes in registers, or as many as there can be.
func TestBytesHeldStayWithAnotherStageSize(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("llama3-8b")
	require.NoError(t, err)
	for _, x := range []struct {
		o    megakernel.Options
		want map[int]int // by bytes of a stage
	}{
		// 8B's profile
		{megakernel.Options{InFlight: 4, Leads: "5:2", Held: 6}, map[int]int{8 << 10: megakernel.MaxHeld, 32 << 10: 3}},
		{megakernel.Options{Held: 3}, map[int]int{8 << 10: 6, 32 << 10: 2}},
		{megakernel.Options{Held: megakernel.HeldNone},
			map[int]int{8 << 10: megakernel.HeldNone, 32 << 10: megakernel.HeldNone}},
		// one would take 256 registers
		{megakernel.Options{Consumers: 1, Held: 1}, map[int]int{8 << 10: 2, 32 << 10: megakernel.HeldNone}},
	} {
		mk, err := megakernel.Build(c, x.o)
		require.NoError(t, err)
		got := map[int]int{}
		for _, k := range tune.Space(mk)[0].Kernels {
			got[k.Options.StageBytes] = k.Options.Held
		}
		require.Equal(t, x.want, got, "%+v", x.o)
	}
}

// What is held is part of a choice, none of it too, and a kernel that holds some has one
// that holds none beside it.
func TestChunksHeldAreChosenOrNone(t *testing.T) {
	mk := kernel(t, megakernel.Options{Held: 2})
	require.Contains(t, tune.ChoiceOf(mk).String(), " --held 2")
	none := tune.ChoiceOf(kernel(t, megakernel.Options{Held: megakernel.HeldNone}))
	require.Contains(t, none.String(), " --held 0")
	require.Equal(t, megakernel.HeldNone, none.Apply(megakernel.Options{}).Held)
	require.Contains(t, tune.ChoiceOf(kernel(t, megakernel.Options{})).String(), " --held 4")
	require.Equal(t, 2, tune.ChoiceOf(mk).Apply(megakernel.Options{}).Held)
	for _, d := range tune.Space(mk) {
		if d.Name == tune.Held {
			require.Equal(t, megakernel.HeldNone, d.Kernels[0].Options.Held)
			return
		}
	}
	require.Fail(t, "no such dimension")
}
