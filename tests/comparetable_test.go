package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// README's comparison has one kind of time, the GPU's, and its ratios are of the times beside them, all as the records
// have them.
func TestTheReadmesComparisonIsItsRecords(t *testing.T) {
	text, err := os.ReadFile("../docs/results.md")
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^\| (\S+) \| (\d+) \| (\S+) \| (\S+) \((\S+) ×\) \| (\S+) \((\S+) ×\) \|$`).
		FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, lines)
	for _, l := range lines {
		files, err := filepath.Glob("../bench/results/h200/*-compare-" + l[1] + ".json")
		require.NoError(t, err)
		require.NotEmpty(t, files, l[0])
		data, err := os.ReadFile(files[len(files)-1]) // the newest
		require.NoError(t, err)
		var record struct {
			Cases []struct {
				System  string
				Context int
				Device  float64 `json:"device_us_per_token"`
			}
		}
		require.NoError(t, json.Unmarshal(data, &record))
		times := map[string]float64{}
		for _, c := range record.Cases {
			if fmt.Sprint(c.Context) == l[2] {
				times[c.System] = c.Device
			}
		}
		single, graph, torch := times["single"], times["graph"], times["transformers"]
		require.Equal(t, []string{fmt.Sprintf("%.0f", single), fmt.Sprintf("%.0f", graph), fmt.Sprintf("%.3f", graph/single),
			fmt.Sprintf("%.0f", torch), fmt.Sprintf("%.3f", torch/single)}, l[3:], l[0])
	}
}
