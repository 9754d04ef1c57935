package megakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is chosen of copies in flight, leads and chunks held, and what of it stays open when
// some of them are given.
func TestCopiesAndChunksHeldAreChosenTogether(t *testing.T) {
	for _, c := range []struct {
		model    string
		o        Options
		inFlight int
		leads    string
		held     int
	}{
		{"llama3-8b", Options{}, 4, "5:2", 5},
		{"llama3.2-3b", Options{}, 4, "5:2", 5},
		{"llama3-70b", Options{}, 4, "5:2", 4},  // 8192 hidden
		{"llama3.2-1b", Options{}, 3, "4:2", 4}, // o has 4 chunks an SM
		{"llama3.2-1b", Options{SMs: 66}, 4, "5:2", 5},
		{"llama3-8b", Options{Tokens: 8}, 3, "4:2", HeldNone},
		{"llama3-8b", Options{InFlight: 3}, 3, "4:2", 4},
		{"llama3-8b", Options{InFlight: 4}, 4, "5:2", 5},
		{"llama3-8b", Options{InFlight: 5}, 5, "none", 4},
		{"llama3-8b", Options{Leads: "none"}, 3, "none", 4},
		{"llama3-8b", Options{InFlight: 4, Leads: "none"}, 4, "none", 4},
		{"llama3-8b", Options{InFlight: 4, Leads: "8:2"}, 4, "8:2", 5},
		{"llama3-8b", Options{Held: 6}, 4, "5:2", 6},
		{"llama3-8b", Options{StageBytes: 8192}, 3, "4:2", 4},
		{"llama3-8b", Options{Stages: 7}, 3, "none", 4},
		{"llama3-8b", Options{Consumers: 11}, 4, "5:2", 5},
	} {
		mk := build(t, c.model, c.o)
		require.Equal(t, []any{c.inFlight, c.leads, c.held}, []any{mk.Options.InFlight, mk.Options.Leads, mk.Options.Held}, "%s, %+v", c.model, c.o)
	}
}
