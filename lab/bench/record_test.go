package bench

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/internal/picture"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/stretchr/testify/require"
)

var (
	svg    = flag.String("svg", "", "file to write the plot of the tests' record to")
	update = flag.Bool("update", false, "rewrite testdata/record.json")
)

func TestARecordIsReadBackAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b.json")
	require.NoError(t, sample().Write(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	r, err := Parse(data)
	require.NoError(t, err)
	require.Equal(t, sample(), r)
}

// The layout of the file, byte for byte. -update writes it.
func TestRecordIsTheGolden(t *testing.T) {
	const golden = "testdata/record.json"
	path := filepath.Join(t.TempDir(), "r.json")
	require.NoError(t, sample().Write(path))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o777))
		require.NoError(t, os.WriteFile(golden, got, 0o666))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// Records from before the kernel's own roundings, sequences and positions were looked at stay what they are.
func TestARecordByOlderRulesIsRead(t *testing.T) {
	r := sample()
	for i := range r.Cases {
		r.Cases[i].Replayed = 0
		r.Cases[i].Gate = gate.Record{KLReference: 2e-3, KLOurs: 1e-3, Positions: 2048, Sequences: 4,
			FaultsCaught: gate.Faults(), Passed: true}
	}
	data, err := json.Marshal(r)
	require.NoError(t, err)
	require.NotContains(t, string(data), "worst")
	_, err = Parse(data)
	require.NoError(t, err)
}

// The names that the project's records have, whatever is added.
func TestARecordHasTheFieldsOfTheMethod(t *testing.T) {
	data, err := json.Marshal(sample())
	require.NoError(t, err)
	var top map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &top))
	for _, name := range []string{"gpu", "driver", "cuda", "commit", "options", "cases"} {
		require.Contains(t, top, name)
	}
	var cases []map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(top["cases"], &cases))
	for _, name := range strings.Fields(
		"model dtype batch context tok_s us_per_token p99_us device_us_per_token bytes_per_token gb_s ceiling_gb_s share gate rounds") {
		require.Contains(t, cases[0], name)
	}
	var g map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(cases[0]["gate"], &g))
	for _, name := range strings.Fields(
		"rules kl_reference kl_own kl_ours lengths worst_sequence worst_position flips faults_caught passed") {
		require.Contains(t, g, name)
	}
}

func TestRecordsThatBreakTheMethodAreRefused(t *testing.T) {
	for want, spoil := range map[string]func(*Record){
		"driver is empty":            func(r *Record) { r.Driver = "" },
		"options: compiler is empty": func(r *Record) { r.Options.Compiler = "" },
		"options: sms is 0":          func(r *Record) { r.Options.SMs = 0 },
		"there are no cases":         func(r *Record) { r.Cases = nil },
		"4 rounds, want at least 5": func(r *Record) {
			r.Cases[0].Rounds = r.Cases[0].Rounds[:4]
		},
		"100 tokens a round, want at least 128": func(r *Record) { r.Cases[0].TokensPerRound = 100 },
		"the gate is not passed: why": func(r *Record) {
			r.Cases[0].Gate.Passed,
				r.Cases[0].Gate.Reasons = false, []string{"why"}
		},
		"the gate did not catch pages_swapped": func(r *Record) {
			r.Cases[0].Gate.FaultsCaught = gate.Faults()[:4]
		},
		"case 0: judged by the gate's rules of version 0, want 3": func(r *Record) { r.Cases[0].Gate.Rules = 0 },
		"127 tokens were replayed in single steps, want 128":      func(r *Record) { r.Cases[2].Replayed = 127 },
		"the gate's worst position has a KL of 1":                 func(r *Record) { r.Cases[1].Gate.WorstPos.KLOurs = 1 },
		"case 1: of_greedy is 0.5, which": func(r *Record) {
			r.Cases[1].Choice, r.Cases[1].OfGreedy = "sampled", 0.5
		},
		"share is 1.200, want at most 1":       func(r *Record) { r.Cases[0].Share = 1.2 },
		"share is 0.5, the others make it":     func(r *Record) { r.Cases[0].Share = 0.5 },
		"device_us_per_token is 1, the others": func(r *Record) { r.Cases[0].DeviceMicros = 1 },
		"are not in order":                     func(r *Record) { r.Cases[0].P99 = r.Cases[0].Max + 1 },
		"a figure is 0, want all positive":     func(r *Record) { r.Cases[0].P50 = 0 },
		"the streaming ceiling is 4400 GB/s, an H200": func(r *Record) {
			r.Cases[1].CeilingGBps,
				r.Cases[1].Ceiling.GBps = 4400, 4400
		},
	} {
		r := sample()
		spoil(r)
		if !strings.Contains(want, "judged by") { // records that are there may be older
			require.ErrorContains(t, r.Check(), want)
		}
		path := filepath.Join(t.TempDir(), "r.json")
		err := r.Write(path)
		require.ErrorContains(t, err, "no record is written: ")
		require.ErrorContains(t, err, want)
		require.NoFileExists(t, path)
	}
}

func TestUnknownFieldsAreRefused(t *testing.T) {
	data, err := json.Marshal(sample())
	require.NoError(t, err)
	_, err = Parse([]byte(strings.Replace(string(data), `"gpu"`, `"speed":1,"gpu"`, 1)))
	require.ErrorContains(t, err, `unknown field "speed"`)
	_, err = Parse(append(data, "{}"...))
	require.ErrorContains(t, err, "something follows the object")
}

func TestAnotherGPUMayHaveALowerCeiling(t *testing.T) {
	require.NoError(t, Void("NVIDIA H100 80GB HBM3", 3100))
	require.NoError(t, Void("NVIDIA H200", 4500))
	require.ErrorContains(t, Void("NVIDIA H200 NVL", 4499), "the measurement is void")
}

func TestALowCeilingIsMeasuredAnew(t *testing.T) {
	measured := func(ctx context.Context, pause time.Duration, gbps ...float64) (n int, got float64, err error) {
		m, err := retried(ctx, "NVIDIA H200", pause, func() (ceiling.Measured, error) {
			n++
			if gbps[n-1] == 0 {
				return ceiling.Measured{}, errors.New("no device")
			}
			return ceiling.Measured{GBps: gbps[n-1]}, nil
		})
		return n, m.GBps, err
	}
	n, got, err := measured(t.Context(), 0, 4510)
	require.NoError(t, err)
	require.Equal(t, []any{1, 4510.}, []any{n, got})
	n, got, err = measured(t.Context(), 0, 4490, 4400, 4500)
	require.NoError(t, err)
	require.Equal(t, []any{3, 4500.}, []any{n, got})
	n, _, err = measured(t.Context(), 0, 4490, 4400, 4499)
	require.ErrorContains(t, err, "the streaming ceiling is 4499 GB/s")
	require.Equal(t, 3, n)
	n, _, err = measured(t.Context(), 0, 4490, 0)
	require.EqualError(t, err, "no device")
	require.Equal(t, 2, n)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n, _, err = measured(ctx, time.Hour, 4490, 4510)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, n)
}

// Every committed record of decoding reads strictly, and so does every one of a gate alone.
func TestCommittedRecordsAreValid(t *testing.T) {
	files, err := filepath.Glob("../../bench/results/*/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	gates := 0
	for _, path := range files {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		var kind struct {
			What  string                       `json:"what"`
			Cases []map[string]json.RawMessage `json:"cases"`
		}
		require.NoError(t, json.Unmarshal(data, &kind), path)
		if kind.What == AttentionBesideWhat {
			_, err := ParseAttentionBeside(data)
			require.NoError(t, err, path)
			continue
		}
		if kind.What == PrefillWhat {
			f, err := ParsePrefill(data)
			require.NoError(t, err, path)
			require.True(t, f.Gated, path)
			continue
		}
		if len(kind.Cases) == 0 {
			continue // of another kind
		}
		if _, attention := kind.Cases[0]["kv_bytes"]; attention {
			_, err = CheckFile(data)
			require.ErrorContains(t, err, "want a record of mkgen bench", "another program's is none")
			continue // tests/gpu/attention/record looks at those
		}
		_, err = CheckFile(data)
		if _, compared := kind.Cases[0]["system"]; compared {
			require.ErrorContains(t, err, "want a record of mkgen bench")
			requireComparison(t, path, data)
			continue
		}
		if _, served := kind.Cases[0]["itl_ms"]; served {
			require.ErrorContains(t, err, "want a record of mkgen bench")
			continue // of a server, by bench/figures
		}
		if _, speeds := kind.Cases[0]["tok_s"]; speeds {
			r, err := Parse(data)
			require.NoError(t, err, path)
			for _, c := range r.Cases {
				requireRules(t, path, c.Gate)
			}
			gated, err := CheckFile(data)
			require.NoError(t, err, path)
			require.True(t, gated, path)
			continue
		}
		f, err := gate.Parse(data)
		require.NoError(t, err, path)
		require.True(t, f.Cases[0].Gate.Passed)
		requireRules(t, path, f.Cases[0].Gate)
		gates++
	}
	require.NotZero(t, gates)
}

// olderRules is the last day of records that may be judged by the rules before gate.RulesVersion 2.
const olderRules = "2026-11-24"

// requireRules wants records after olderRules to be judged by rules that have a version, and older ones to be what they
// were.
func requireRules(t *testing.T, path string, g gate.Record) {
	t.Helper()
	if day := filepath.Base(path)[:len(olderRules)]; day > olderRules {
		require.NotZero(t, g.Rules, path)
	}
	require.Empty(t, g.Problems(), path)
}

func TestPathsOfRecordsAreFree(t *testing.T) {
	dir, day := t.TempDir(), time.Date(2026, 11, 21, 23, 0, 0, 0, time.UTC)
	first := Path(dir, "NVIDIA H200", "decode-tiny", day)
	require.Equal(t, filepath.Join(dir, "h200", "2026-11-21-decode-tiny.json"), first)
	require.NoError(t, sample().Write(first))
	require.Equal(t, filepath.Join(dir, "h200", "2026-11-21-decode-tiny-2.json"),
		Path(dir, "NVIDIA H200", "decode-tiny", day))
	for name, want := range map[string]string{"NVIDIA H100 80GB HBM3": "h100", "": "unknown", "Some_GPU": "some-gpu"} {
		require.Equal(t, want, ShortName(name))
	}
}

func TestTableShowsFiguresAndMark(t *testing.T) {
	var b strings.Builder
	require.NoError(t, WriteTable(&b, sample().Cases[:1], Ungated))
	require.Equal(t, `                    µs a  device
  context  tok/s   token      µs      (min–max)     p50     p99     max  GB/s  ceiling   share  gate
      128  285.7  3499.7  3491.7  3463.8–3519.6  3491.7  3549.6  3549.6  4306     4630  93.0 %  UNGATED
`, b.String())
}

func TestPlotShowsCurvesFloorsAndShares(t *testing.T) {
	r := sample()
	series := SeriesOf(r, "")
	require.Len(t, series, 1)
	second := Series{Name: "llama3-8b bf16, before"}
	for _, c := range r.Cases {
		c.Share, c.Rounds = c.Share*0.8, []RoundTimes{{Device: c.DeviceMicros / 0.79}, {Device: c.DeviceMicros / 0.82}}
		c.DeviceMicros /= 0.8
		second.Cases = append(second.Cases, c)
	}
	series = append(series, second)
	data, err := SVG(series)
	require.NoError(t, err)
	text := string(data)
	for _, want := range []string{"llama3-8b bf16, NVIDIA H200", "llama3-8b bf16, before", "floor: ",
		"device time per token, µs", "tokens in the KV cache", "93 %", "74 %", ">6144<"} {
		require.Contains(t, text, want)
	}
	again, err := SVG(series)
	require.NoError(t, err)
	require.Equal(t, data, again)
	require.True(t, IsPlot(data[:128]))
	require.False(t, IsPlot([]byte("<svg>")))
	for _, old := range []string{"../../bench/results/h200/2026-11-24-decode-llama3-8b.svg",
		"../../bench/results/h200/2026-11-22-sweep-llama3-8b.svg"} {
		text, err := os.ReadFile(old)
		require.NoError(t, err)
		require.True(t, IsPlot(text[:128]), "from before they named their generator")
	}
	require.False(t, IsPlot(picture.New().Finish("mkgen trace", 10, 10, "")), "another's")
	if *svg != "" {
		require.NoError(t, WriteSVG(*svg, series))
	}
	_, err = SVG(nil)
	require.EqualError(t, err, "plot: no cases to draw")
}

func TestRecordsOfSeveralModelsAreSeveralCurves(t *testing.T) {
	r := sample()
	r.Cases[1].Model = "tiny"
	series := SeriesOf(r, Ungated)
	require.Equal(t, []string{"llama3-8b bf16, NVIDIA H200, UNGATED", "tiny bf16, NVIDIA H200, UNGATED"},
		[]string{series[0].Name, series[1].Name})
	require.Len(t, series[0].Cases, 3)
}

// requireComparison wants what bench/compare.py writes to be gated, and its figures to
// follow from each other.
func requireComparison(t *testing.T, path string, data []byte) {
	t.Helper()
	var r struct {
		GPU   string
		Gated bool
		Cases []struct {
			System  string
			Micros  float64 `json:"us_per_token"`
			Rate    float64 `json:"tok_s"`
			Device  float64 `json:"device_us_per_token"`
			Bytes   float64 `json:"bytes_per_token"`
			Ceiling float64 `json:"ceiling_gb_s"`
			Share   float64
			Over    float64 `json:"time_over_single"`
			Gate    *gate.Record
			Rounds  []RoundTimes
		}
	}
	require.NoError(t, json.Unmarshal(data, &r), path)
	require.True(t, r.Gated, path)
	single := 0.0
	for i, c := range r.Cases {
		if c.System == "single" {
			single = c.Device
		}
		require.NotZero(t, single, path)
		require.NoError(t, Void(r.GPU, c.Ceiling), path)
		require.GreaterOrEqual(t, len(c.Rounds), LeastRounds, path)
		require.InEpsilon(t, 1e6/c.Micros, c.Rate, 1e-4, "%s, case %d", path, i)
		require.InEpsilon(t, c.Device/single, c.Over, 1e-4, "%s, case %d", path, i)
		require.InEpsilon(t, c.Bytes/c.Device/1e3/c.Ceiling, c.Share, 1e-4, "%s, case %d", path, i)
		require.LessOrEqual(t, c.Share, 1.0, path)
		if c.System != "transformers" {
			require.NotNil(t, c.Gate, path)
			require.True(t, c.Gate.Passed, path)
		}
	}
}
