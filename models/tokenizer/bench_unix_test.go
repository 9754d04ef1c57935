//go:build unix

package tokenizer

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var speedDir = flag.String("speed", "",
	"folder of texts and tokenizers, as testdata/speed.py leaves it: BenchmarkSpeed encodes them")

// BenchmarkSpeed encodes texts with real vocabularies. Its figure is of processor time, all threads together, so that
// neither a busy machine nor a garbage collector on another core flatters it.
func BenchmarkSpeed(b *testing.B) {
	if *speedDir == "" {
		b.Skip("no -speed FOLDER")
	}
	dirs, err := filepath.Glob(filepath.Join(*speedDir, "*", tokenizerFile))
	require.NoError(b, err)
	texts, err := filepath.Glob(filepath.Join(*speedDir, "*.txt"))
	require.NoError(b, err)
	for _, dir := range dirs {
		dir = filepath.Dir(dir)
		tok, err := Open(dir)
		require.NoError(b, err)
		for _, path := range texts {
			text, err := os.ReadFile(path)
			require.NoError(b, err)
			b.Run(filepath.Base(dir)+"/"+strings.TrimSuffix(filepath.Base(path), ".txt"), func(b *testing.B) {
				tokens, best := 0, time.Hour
				for b.Loop() {
					began := processorTime(b)
					ids, err := tok.Encode(string(text), false)
					require.NoError(b, err)
					tokens, best = len(ids), min(best, processorTime(b)-began)
				}
				b.ReportMetric(float64(tokens), "tokens")
				b.ReportMetric(float64(len(text))/best.Seconds()/1e6, "cpu-MB/s")
			})
		}
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
