package tokenizer

import (
	"strings"
	"testing"
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
