package tokenizer

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkEncode encodes about a megabyte of prose, code and other scripts.
func BenchmarkEncode(b *testing.B) {
	tok := open(b)
	var all strings.Builder
	for _, c := range readGolden(b).Encode {
		if !strings.HasPrefix(c.Name, "long run") {
			all.WriteString(c.Text)
		}
	}
	text := strings.Repeat(all.String(), 1<<20/all.Len()+1)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tok.Encode(text, true); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncodeRun encodes one piece of a megabyte.
func BenchmarkEncodeRun(b *testing.B) {
	tok := open(b)
	text := strings.Repeat("ab", 1<<19)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := tok.Encode(text, true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		open(b)
	}
}

var benchText = flag.String("text", "testdata/llama3-like/tokenizer.json", "file that BenchmarkEncodeFile encodes")

// BenchmarkEncodeFile encodes the file -text with the tokenizer of -hf-dir; testdata/speed.py measures the library on the same.
func BenchmarkEncodeFile(b *testing.B) {
	tok, err := Open(*hfDir)
	require.NoError(b, err)
	text, err := os.ReadFile(*benchText)
	require.NoError(b, err)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		ids, err := tok.Encode(string(text), false)
		require.NoError(b, err)
		b.ReportMetric(float64(len(ids)), "tokens")
	}
}
