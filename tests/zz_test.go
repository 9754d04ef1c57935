package tests

import (
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/stretchr/testify/require"
)

func TestZZ(t *testing.T) {
	g, c := readGolden(t, "tiny_hf.json")
	tokens := g.Tokens[:8]
	for _, sms := range []int{12, 20} {
		o := megakernel.Options{SMs: sms, Page: 4, Splits: 2, StageBytes: 2048}
		run := func(words string, seed uint64) trace {
			o.Words = words
			mk, err := megakernel.Build(c, o)
			require.NoError(t, err)
			return decode(t, mk, g.Seed, tokens, seed)
		}
		want := run("none", 1)
		for seed := range uint64(6) {
			for _, w := range []string{"attention,o", "attention,o,down"} {
				got := run(w, seed)
				require.Equal(t, want.logits, got.logits, "%d %d %s", sms, seed, w)
			}
		}
	}
}
