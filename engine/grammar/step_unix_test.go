//go:build unix

package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/mkgen/mkgen/internal/cputime"
	"github.com/stretchr/testify/require"
)

// longSchema is an object of 200 fields.
func longSchema() json.RawMessage {
	kinds := []string{`{"type":"string","maxLength":12}`, `{"type":"integer","minimum":0,"maximum":120}`,
		`{"enum":["dog","cat","bird"]}`, `{"type":"boolean"}`}
	var fields, names []string
	for i := range 200 {
		name := fmt.Sprintf(`"field %d"`, i)
		fields, names = append(fields, name+":"+kinds[i%len(kinds)]), append(names, name)
	}
	return json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{` + strings.Join(fields, ",") +
		`},"required":[` + strings.Join(names, ",") + `]}`)
}

// tokensOf draws the tokens of an answer.
func tokensOf(t testing.TB, g *Grammar, seed uint64, n int) (tokens []int) {
	r, m := rand.New(rand.NewPCG(seed, 9)), g.Matcher()
	mask := make([]uint32, (g.v.size+31)/32)
	for range n {
		m.Mask(mask)
		token := r.IntN(g.v.size)
		for mask[token/32]>>(token%32)&1 == 0 {
			token = (token + 1) % g.v.size
		}
		require.NoError(t, m.Accept(token))
		tokens = append(tokens, token)
	}
	return tokens
}

// What masks of 128k tokens take of a step, of one answer and of 16 at once, to a schema that others have been kept to
// and to one that is new.
func BenchmarkStepsOfMasks(b *testing.B) {
	const steps = 512
	v := bigVocab()
	for _, answers := range []int{1, 16} {
		for _, known := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/known=%v", answers, known), func(b *testing.B) {
				g, err := v.Schema(longSchema())
				require.NoError(b, err)
				said, masks := make([][]int, answers), make([][]uint32, answers)
				for i := range answers {
					said[i], masks[i] = tokensOf(b, g, uint64(i), steps), make([]uint32, (v.size+31)/32)
				}
				b.ReportAllocs()
				before := cputime.Used(b)
				for b.Loop() {
					if !known {
						g, err = v.Schema(longSchema())
						require.NoError(b, err)
					}
					all := make([]*Matcher, answers)
					for i := range all {
						all[i] = g.Matcher()
					}
					for step := range steps {
						var wait sync.WaitGroup
						for i, m := range all {
							wait.Go(func() { m.Mask(masks[i]) })
						}
						wait.Wait()
						for i, m := range all {
							require.NoError(b, m.Accept(said[i][step]))
						}
					}
				}
				b.ReportMetric(float64(cputime.Used(b)-before)/float64(b.N)/steps/1000, "cpu-µs/step")
			})
		}
	}
}
