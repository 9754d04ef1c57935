package progress

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWithoutATerminalThereIsOneLine(t *testing.T) {
	var out bytes.Buffer
	b := Start(&out, "loading weights")
	b.Set(1, 3)
	b.Set(3, 3)
	require.Empty(t, out.String())
	b.begun = b.begun.Add(-2 * time.Second)
	b.End(16e9)
	require.Equal(t, "loading weights: 16 GB in 2.0 s, 8 GB/s\n", out.String())
}

func TestAFileIsNoTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	require.False(t, Start(f, "x").shown)
	require.NoError(t, f.Close())
}

func TestFailureLeavesNoLine(t *testing.T) {
	var out bytes.Buffer
	Start(&out, "loading weights").End(-1)
	require.Empty(t, out.String())
}

func TestTheBarShowsBytesAndIsTakenAway(t *testing.T) {
	var out bytes.Buffer
	b := &Bar{w: &out, what: "loading weights", shown: true, begun: time.Now()}
	b.Set(0, 4e9)
	time.Sleep(150 * time.Millisecond) // the bar is drawn ten times a second at most
	b.Set(1e9, 4e9)
	require.Contains(t, out.String(), "loading weights")
	require.Contains(t, out.String(), "25%")
	b.End(4e9)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\r")
	require.Contains(t, lines[len(lines)-1], "loading weights: 4 GB in 0.")
	require.NotContains(t, lines[len(lines)-1], "%")
}

func TestSizesHaveThreeDigits(t *testing.T) {
	for want, n := range map[string]float64{"0 B": 0, "999 B": 999, "1 kB": 1000, "1 MB": 999.6e3, "16.1 GB": 16.06e9,
		"141 GB": 141e9, "2.5 TB": 2.5e12, "1e+04 TB": 1e16} {
		require.Equal(t, want, size(n))
	}
}

func TestOfUnitsTheLineHasTheirNumber(t *testing.T) {
	var out bytes.Buffer
	b := Count(&out, "prompt", "tokens")
	b.Set(10, 500)
	b.End(500)
	if !strings.HasPrefix(out.String(), "prompt: 500 tokens in 0.0 s, ") ||
		!strings.HasSuffix(out.String(), " a second\n") {
		t.Fatalf("%q", out.String())
	}
}
