package serve

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/engine"
	"github.com/stretchr/testify/require"
)

// idsByPackageJSON is what idsOf reads without plainIDs.
func idsByPackageJSON(raw string) (tokens []int, ok bool) {
	var all []*int
	if json.Unmarshal([]byte(raw), &all) != nil || all == nil {
		return nil, false
	}
	tokens = []int{}
	for _, id := range all {
		if id == nil {
			return nil, false
		}
		tokens = append(tokens, *id)
	}
	return tokens, true
}

func TestTokenIDsAreReadAsPackageJSONReadsThem(t *testing.T) {
	parts := []string{"0", "7", "00", "-0", "-1", "128255", "999999999", "1234567890", "9223372036854775807",
		"9223372036854775808", "01", "1.0", "1.5", "1e3", "1E400", "null", "true", `"1"`, "[1]", "{}", "", "+1", "-", "\v"}
	space := []string{"", "", "", " ", "\n\t", "\r"}
	r := rand.New(rand.NewPCG(1, 1))
	lists := 0
	for range 50_000 {
		from := len(parts)
		if r.IntN(2) == 0 {
			from = 7 // numbers, most of them whole
		}
		pick := func(from []string) string { return from[r.IntN(len(from))] }
		var b strings.Builder
		b.WriteString(pick([]string{"[", "[", "[", "[", "", "[["}))
		for i := range r.IntN(5) {
			if i > 0 {
				b.WriteString(pick([]string{",", ",", ",", ",", ",", ",,", ""}))
			}
			b.WriteString(pick(space) + pick(parts[:from]) + pick(space))
		}
		b.WriteString(pick([]string{"]", "]", "]", "]", "", "]]", ",]", "]1"}) + pick(space))
		want, ok := idsByPackageJSON(b.String())
		got, is := idsOf(json.RawMessage(b.String()))
		require.Equal(t, ok, is, "%q", b.String())
		if ok {
			require.Equal(t, want, []int(got), "%q", b.String())
			lists++
		}
	}
	require.Greater(t, lists, 5_000)
}

// A prompt of token ids takes no allocation of its own for each id.
func TestAllocationsDoNotGrowWithThePromptsTokenIDs(t *testing.T) {
	f := newFake(t, func(engine.Request) []engine.Piece { return script("a") })
	o := f.options()
	o.Backend = roomy{f}
	s, err := New(o)
	require.NoError(t, err)
	allocs := func(ids int) float64 {
		body := []byte(bodyOfIDs(ids, o.Vocab))
		return testing.AllocsPerRun(10, func() {
			task, err := s.completion(body)
			require.Nil(t, err)
			require.Len(t, task.prompts[0].tokens, ids)
		})
	}
	require.Less(t, allocs(20_000), allocs(10)+20)
}

// roomy is a fake with room for long prompts.
type roomy struct{ *fake }

func (roomy) KVTokens() int { return 49152 }

// bodyOfIDs is a request whose prompt is n token ids below vocab.
func bodyOfIDs(n, vocab int) string {
	r := rand.New(rand.NewPCG(1, 1))
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa(r.IntN(vocab))
	}
	return `{"model":"fake","prompt":[` + strings.Join(ids, ", ") + `],"stream":true,"max_tokens":1,"temperature":0}`
}
