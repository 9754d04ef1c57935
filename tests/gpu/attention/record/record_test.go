package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/stretchr/testify/require"
)

// torchJSON is as attention.py writes it.
const torchJSON = `{"torch": "2.11.0", "device": "NVIDIA H200", "rules": {"rms": 0.005}, "cases": [
 {"name": "a", "check": {"passed": true, "layers": [{"layer": 7, "finite": true, "max_error": 0.01, "worst_element": 0.2, "worst_rms": 0.4, "where": "sequence 1, row 0, head 3", "passed": true}]},
  "pytorch": {"layers": 8, "kv_bytes": 4096, "sdpa": {"how": "batch", "us": 30, "gb_s": 2000}, "flex": {"how": "flex", "us": 20, "gb_s": 3000},
   "tried": [{"how": "batch", "us": 30, "gb_s": 2000, "eager": "why"}, {"how": "x", "error": "no"}]}},
 {"name": "b", "check": {"passed": true, "layers": [{"layer": 0, "finite": true, "max_error": 0, "worst_element": 0, "worst_rms": 0, "where": "", "passed": true}]}}]}`

func measured() *Record {
	a := Case{Name: "a", DType: "bf16", Batch: 2, Tokens: 2, Lengths: []int{5, 6}, Page: 16, Variants: []string{"causal"},
		Layers: 8, Balance: 1, Rounds: []float64{10, 11, 10, 12, 9}, Steps: 64, Bytes: 40_000_000,
		Ceiling: ceiling.Measured{GBps: 4600}, Gate: Gate{Identical: true}}
	a.Complete()
	b := Case{Name: "b", DType: "bf16", Batch: 1, Tokens: 1, Lengths: []int{1}, Page: 16, Variants: []string{"tree"},
		Layers: 2, Gate: Gate{Identical: true}}
	return &Record{GPU: "NVIDIA H200", Driver: "580", CUDA: "13.0", Commit: "c",
		Options: Options{"nvcc 13", 132, 32, 8, 128}, Cases: []Case{a, b}}
}

func torch(t *testing.T) *Torch {
	t.Helper()
	path := filepath.Join(t.TempDir(), "torch.json")
	require.NoError(t, os.WriteFile(path, []byte(torchJSON), 0o666))
	out, err := ReadTorch(path)
	require.NoError(t, err)
	return out
}

func TestARecordHasOurTimesAndPyTorchs(t *testing.T) {
	r := measured()
	require.NoError(t, r.Merge(torch(t)))
	require.NoError(t, r.Check())
	a := r.Cases[0]
	require.Equal(t, 10.0, a.Micros)
	require.Equal(t, 4000.0, a.GBps)
	require.InDelta(t, 4000.0/4600, a.Share, 1e-12)
	require.Equal(t, 2.0, a.PyTorch.Speedup)
	require.Equal(t, Gate{true, true, 0.01, 0.2, 0.4, "layer 7, sequence 1, row 0, head 3"}, a.Gate)
	path := filepath.Join(t.TempDir(), "x", "r.json")
	require.NoError(t, r.Write(path))
	again, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, r, again)
	var table strings.Builder
	require.NoError(t, r.WriteTable(&table))
	require.Contains(t, table.String(), "87.0 %")
}

func TestNoRecordIsWrittenWhenSomethingIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *Record)
		want   string
	}{
		"judgement": {func(r *Record) { r.Cases[1].Gate.Passed = false }, "case b: it does not agree with the reference"},
		"bits": {func(r *Record) { r.Cases[0].Gate.Identical = false },
			"case a: the same step twice gave different bits"},
		"rounds": {func(r *Record) { r.Cases[0].Rounds = r.Cases[0].Rounds[:3] }, "case a: 3 rounds, want at least 5"},
		"figure": {func(r *Record) { r.Cases[0].Share /= 2 }, "case a: share is 0.43478"},
		"share": {func(r *Record) {
			r.Cases[0].Bytes *= 2
			r.Cases[0].Complete()
		}, "case a: share is 1.739, want at most 1"},
		"ceiling": {func(r *Record) {
			r.Cases[0].Ceiling.GBps = 4400
			r.Cases[0].Complete()
		}, "the measurement is void"},
		"torch":  {func(r *Record) { r.PyTorch.Version = "" }, "there is no PyTorch beside it"},
		"commit": {func(r *Record) { r.Commit = "" }, "commit or compiler is empty"},
		"tree":   {func(r *Record) { r.Commit += "+modified" }, "a record names the commit it is of"},
		"cases":  {func(r *Record) { r.Cases = nil }, "there are no cases"},
	} {
		t.Run(name, func(t *testing.T) {
			r := measured()
			require.NoError(t, r.Merge(torch(t)))
			c.change(r)
			path := filepath.Join(t.TempDir(), "r.json")
			require.ErrorContains(t, r.Write(path), c.want)
			require.NoFileExists(t, path)
		})
	}
}

func TestEveryCaseIsJudgedAndEveryVerdictIsOfACase(t *testing.T) {
	r := measured()
	r.Cases[0].Name = "other"
	require.EqualError(t, r.Merge(torch(t)), "case other: attention.py has not judged it")
	r.Cases = r.Cases[1:]
	require.EqualError(t, r.Merge(torch(t)), "attention.py judged a case a that was not run")
}

func TestAVerdictWithoutLayersDoesNotPass(t *testing.T) {
	r, v := measured(), torch(t)
	v.Cases[1].Check.Layers = nil
	require.NoError(t, r.Merge(v))
	require.False(t, r.Cases[1].Gate.Passed)
}

func TestCommittedRecordsOfAttentionAreValid(t *testing.T) {
	files, err := filepath.Glob("../../../../bench/results/*/20??-??-??-attention.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		r, err := Read(path)
		require.NoError(t, err, path)
		require.NoError(t, r.Check(), path)
	}
}

func TestASharedPrefixIsComparedWithTheSingleFormat(t *testing.T) {
	r := measured()
	require.Empty(t, r.Prefixes())
	single := r.Cases[0]
	single.Name, single.Single, single.Micros = "a-single", true, 85
	r.Cases = append(r.Cases, single)
	require.Equal(t, map[string]float64{"a": 8.5}, r.Prefixes())
}

func TestDrawsHaveAMedian(t *testing.T) {
	r := measured()
	for i, share := range []float64{0.7, 0.9, 0.8} {
		c := r.Cases[0]
		c.Name, c.Share = "uniform-"+string(rune('a'+i)), share
		r.Cases = append(r.Cases, c)
	}
	share, n := r.MedianShare("uniform-")
	require.Equal(t, 0.8, share)
	require.Equal(t, 3, n)
	_, n = r.MedianShare("b") // not timed
	require.Zero(t, n)
}
