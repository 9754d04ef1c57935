package docs

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// record is what a page's figures are held against.
type record struct {
	path  string
	Cases []struct {
		Model   string  `json:"model"`
		Format  string  `json:"dtype"`
		Context float64 `json:"context"`
		TokS    float64 `json:"tok_s"`
		Micros  float64 `json:"us_per_token"`
		P99     float64 `json:"p99_us"`
		Ceiling float64 `json:"ceiling_gb_s"`
		Share   float64 `json:"share"`
		Step    float64 `json:"device_us_per_step"`
		Ratio   float64 `json:"step_ratio"`
		Gate    struct {
			Passed    bool     `json:"passed"`
			Caught    []string `json:"faults_caught"`
			Ours      any      `json:"kl_ours"`
			Own       any      `json:"kl_own"`
			Reference any      `json:"kl_reference"`
		} `json:"gate"`
	} `json:"cases"`
}

func records(t *testing.T, pattern string) (all []record) {
	t.Helper()
	paths, err := filepath.Glob("../bench/results/" + pattern)
	require.NoError(t, err)
	for _, p := range paths {
		data, err := os.ReadFile(p)
		require.NoError(t, err)
		r := record{path: p}
		if json.Unmarshal(data, &r) == nil && len(r.Cases) > 0 { // not of what has other cases
			all = append(all, r)
		}
	}
	require.NotEmpty(t, all)
	return all
}

// is reports whether a page's number is v, rounded to its digits.
func is(text string, v float64) bool {
	x, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimRight(text, " %×")), 64)
	if err != nil {
		return false
	}
	mantissa, exponent, _ := strings.Cut(strings.TrimRight(strings.TrimSpace(text), " %×"), "e")
	_, digits, _ := strings.Cut(mantissa, ".")
	power, _ := strconv.Atoi(exponent)
	return math.Abs(x-v) <= 0.5001*math.Pow10(power-len(digits))
}

func number(v any) float64 {
	x, _ := v.(float64)
	return x
}

// rows are those of a page's tables, by their columns; line is a row's.
func rows(t *testing.T, page string, f func(line int, row map[string]string)) {
	t.Helper()
	data, err := os.ReadFile(page)
	require.NoError(t, err)
	var columns []string
	for i, line := range strings.Split(string(data), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = nil
		case columns == nil:
			columns = cells
		case strings.Trim(line, "|-:") != "":
			row := map[string]string{}
			for j, c := range cells {
				if j < len(columns) {
					row[strings.TrimSpace(columns[j])] = strings.TrimSpace(c)
				}
			}
			f(i+1, row)
		}
	}
}

const divergences = "KL of the kernel / of its roundings alone / of transformers in bf16"

var shareAt = regexp.MustCompile(`([\d.]+) % at (\d+)`)

// Every row of results.md with a speed and a share is a case of a record: all its figures are, to their last digit.
// Every row with divergences and shares is a record's. Served figures and attention alone have other columns.
func TestRowsOfResultsAreOfRecords(t *testing.T) {
	all, cases, gates := records(t, "h?00/*.json"), 0, 0
	rows(t, "results.md", func(line int, row map[string]string) {
		_, speed := row["tok/s"]
		_, share := row["share"]
		kl, gated := row[divergences]
		if speed && share {
			cases++
			require.True(t, anyCase(all, row), "results.md:%d: no record has %v", line, row)
		} else if gated {
			gates++
			found := false
			for _, r := range all {
				found = found || r.hasShares(kl, row["share at context"])
			}
			require.True(t, found, "results.md:%d: no record has %v", line, row)
		}
	})
	require.Greater(t, cases, 30)
	require.Greater(t, gates, 10)
}

// faultNames are the records' names of the faults that families.md has in words.
var faultNames = map[string]string{"a bias dropped": "bias_dropped", "the norm of k skipped": "qk_norm_skipped",
	"a neighbour's scale": "scale_of_neighbour", "scales not copied": "scales_not_copied",
	"a window wider by one": "attention_changed", "w taken for 1 + w": "plus_one_dropped",
	"the soft cap of logits left out": "logit_cap_left_out", "that of scores left out": "attention_changed",
	"a norm behind a branch skipped": "post_norm_skipped", "another layer's RoPE base": "rope_base_swapped",
	"layers without RoPE rotated": "rope_base_swapped"}

// Every row of families.md with a record is that record's: model, format, figures at context 1024, a gate that was
// passed, and the faults that it caught.
func TestFamiliesOnAGPUAreOfTheirRecords(t *testing.T) {
	n, link := 0, regexp.MustCompile(`\((\.\./bench/results/[^)]+)\)`)
	rows(t, "families.md", func(line int, row map[string]string) {
		if _, is := row["record"]; !is {
			return
		}
		n++
		path := link.FindStringSubmatch(row["record"])
		require.Len(t, path, 2, "families.md:%d: %v", line, row)
		of := records(t, strings.TrimPrefix(path[1], "../bench/results/"))
		row["context"] = "1024"
		require.True(t, anyCase(of, row), "families.md:%d: %s has no %v", line, path[1], row)
		_, format, is := strings.Cut(strings.Trim(row["model"], "`"), "--weight-format ")
		if !is {
			format = "bf16"
		}
		c := of[0].Cases[0]
		require.Equal(t, format, c.Format, "families.md:%d", line)
		require.True(t, c.Gate.Passed, "families.md:%d: the gate of %s", line, path[1])
		for fault := range strings.SplitSeq(row["faults of its features, caught"], ", ") {
			if fault != "" {
				require.Contains(t, faultNames, fault, "families.md:%d", line)
				require.Contains(t, c.Gate.Caught, faultNames[fault], "families.md:%d", line)
			}
		}
	})
	require.Greater(t, n, 8)
}

func anyCase(all []record, row map[string]string) bool {
	for _, r := range all {
		for _, c := range r.Cases {
			figures := map[string]float64{"context": c.Context, "tok/s": c.TokS, "µs a token": c.Micros, "p99": c.P99,
				"ceiling, GB/s": c.Ceiling, "share": 100 * c.Share, "µs a step": c.Step, "against one row": c.Ratio}
			model, _, _ := strings.Cut(row["model"], " ")
			same := strings.HasPrefix(c.Model, model) && (row[divergences] == "" || r.diverges(row[divergences]))
			for column, v := range figures {
				same = same && (row[column] == "" || is(row[column], v))
			}
			if same {
				return true
			}
		}
	}
	return false
}

// diverges reports whether the gate's three means are these.
func (r record) diverges(kl string) bool {
	words, g := strings.Split(kl, " / "), r.Cases[0].Gate
	return len(words) == 3 && is(words[0], number(g.Ours)) && is(words[1], number(g.Own)) &&
		is(words[2], number(g.Reference))
}

// hasShares reports whether the gate's means are these, and each "S % at C" a case's.
func (r record) hasShares(kl, shares string) bool {
	if !r.diverges(kl) {
		return false
	}
	for _, m := range shareAt.FindAllStringSubmatch(shares, -1) {
		found := false
		for _, c := range r.Cases {
			found = found || is(m[2], c.Context) && is(m[1], 100*c.Share)
		}
		if !found {
			return false
		}
	}
	return shareAt.MatchString(shares)
}

// README's speeds of ours that are gated are those of one record, at the contexts of its columns.
func TestGatedSpeedsOfREADMEAreOfRecords(t *testing.T) {
	n, gpu := 0, ""
	rows(t, "../README.md", func(line int, row map[string]string) {
		if !strings.Contains(row["measured"], "here, gated") {
			return
		}
		name := row["tok/s, Llama 3 8B, one sequence, bf16 but where said"]
		record := regexp.MustCompile(`-decode-llama3-8b-i4g128\.json$`)
		if strings.HasPrefix(name, "mkgen") {
			record = regexp.MustCompile(`-decode-llama3-8b(-short)?\.json$`)
		}
		gpu = strings.ToLower(name[strings.LastIndex(name, " ")+1:])
		found := false
		for _, r := range records(t, gpu+"/*.json") {
			same := record.MatchString(r.path)
			for _, context := range []string{"128", "1024", "6144"} {
				held := row[context] == ""
				for _, c := range r.Cases {
					held = held || is(context, c.Context) && is(row[context], c.TokS)
				}
				same = same && held
			}
			found = found || same
		}
		n++
		require.True(t, found, "README.md:%d: no record has %v", line, row)
	})
	require.Equal(t, 4, n)
}
