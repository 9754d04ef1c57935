package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bigVocab has as many tokens as Llama 3's and of like kinds: bytes, numbers of up to three digits, words with and
// without a space before them, in several scripts, runs of spaces, pieces of code with quotes, escapes and line breaks,
// and pieces of characters.
func bigVocab() *Vocab {
	r := rand.New(rand.NewPCG(1, 1))
	texts := make([][]byte, 0, 128_256)
	for b := range 256 {
		texts = append(texts, []byte{byte(b)})
	}
	for n := range 1000 {
		texts = append(texts, fmt.Append(nil, n))
	}
	run := func(most int, of ...rune) (text []byte) {
		for range 1 + r.IntN(most) {
			text = append(text, string(of[r.IntN(len(of))])...)
		}
		return text
	}
	script := func(from, to rune) (all []rune) {
		for c := from; c <= to; c++ {
			all = append(all, c)
		}
		return all
	}
	latin, cyrillic, han := script('a', 'z'), script('а', 'я'), script('一', '鿿')
	code := []rune(`{}[]():;,.="'\\/<>-_+*&#!` + "\n\t ")
	for len(texts) < cap(texts) {
		var text []byte
		switch n := r.IntN(100); {
		case n < 70:
			text = run(9, latin...)
		case n < 80:
			text = run(7, cyrillic...)
		case n < 85:
			text = run(3, han...)
		case n < 86:
			text = run(60, ' ')
		case n < 88:
			text = run(2, han...)
			text = text[:len(text)-1]
		case n < 96:
			text = run(5, code...)
		default:
			text = slices.Concat(run(2, code...), run(6, latin...))
		}
		if r.IntN(2) == 0 {
			text = slices.Concat([]byte{' '}, text)
		}
		texts = append(texts, text)
	}
	end := len(texts) - 1
	return NewVocab(len(texts), func(token int) []byte { return texts[token] }, []int{end})
}

const orderSchema = `{"type":"object","required":["id","customer","lines","status","note"],"additionalProperties":false,"properties":{
	"id":{"type":"string","format":"uuid"},"customer":{"type":"object","required":["name","email","since"],"additionalProperties":false,
	"properties":{"name":{"type":"string","minLength":1,"maxLength":80},"email":{"type":"string","pattern":"^[a-z0-9.]+@[a-z0-9.]+$"},
	"since":{"type":"string","format":"date"}}},"lines":{"type":"array","minItems":1,"maxItems":20,"items":{"type":"object",
	"required":["sku","quantity","price"],"additionalProperties":false,"properties":{"sku":{"type":"string","maxLength":24},
	"quantity":{"type":"integer","minimum":1,"maximum":999},"price":{"type":"number"}}}},
	"status":{"enum":["open","paid","shipped","returned"]},"note":{"type":["string","null"]},"tags":{"type":"array","items":{"type":"string"}}}}`

// answer draws an answer of up to n tokens, and tells of the time of each mask.
func answer(t testing.TB, g *Grammar, seed uint64, n int, each func(m *Matcher, mask []uint32, took time.Duration)) {
	r, m := rand.New(rand.NewPCG(seed, 9)), g.Matcher()
	mask := make([]uint32, (g.v.size+31)/32)
	for range n {
		start := time.Now()
		m.Mask(mask)
		each(m, mask, time.Since(start))
		var may []int
		for token := range g.v.size {
			if mask[token/32]>>(token%32)&1 != 0 {
				may = append(may, token)
			}
		}
		token := may[r.IntN(len(may))]
		require.NoError(t, m.Accept(token))
		if slices.Contains(g.v.ends, token) {
			return
		}
	}
}

// A mask is what a walk over all tokens gives, in every place that answers of many schemas come to.
func TestMasksAreThoseOfAWalkOverAllTokens(t *testing.T) {
	if testing.Short() {
		t.Skip("values that one goroutine makes, with -short")
	}
	small, big := testVocab(), bigVocab()
	check := func(m *Matcher, mask []uint32, _ time.Duration) {
		want := make([]uint32, len(mask))
		for _, token := range m.g.v.all.walk(m.at, m.g.step, nil) {
			want[token/32] |= 1 << (token % 32)
		}
		if m.at.whole {
			for _, end := range m.g.v.ends {
				want[end/32] |= 1 << (end % 32)
			}
		}
		require.Equal(t, want, mask)
	}
	r := &random{Rand: rand.New(rand.NewPCG(5, 5))}
	for seed := range uint64(150) {
		schema, _ := r.schema()
		raw, err := json.Marshal(schema)
		require.NoError(t, err)
		g, err := small.Schema(raw)
		require.NoError(t, err, "%s", raw)
		answer(t, g, seed, 40, check)
	}
	for seed, schema := range []string{orderSchema, `{"type":"string","maxLength":20}`,
		`{"type":"string","minLength":3,"maxLength":9}`, `{"type":"object"}`, `{"type":"string","pattern":"^[^x]*$"}`,
		`{"anyOf":[{"const":"ab"},{"type":"string","maxLength":5}]}`} {
		g, err := big.Schema([]byte(schema))
		require.NoError(t, err)
		answer(t, g, uint64(seed), 20, check)
	}
}

// Beyond what a grammar remembers it forgets what tokens lead on from places, and finds them again.
func TestMasksThatWereForgottenAreFoundAgain(t *testing.T) {
	for _, v := range []*Vocab{testVocab(), bigVocab()} { // where a place's tokens are many words, and few
		g, err := v.Schema([]byte(orderSchema))
		require.NoError(t, err)
		mask := func() []uint32 {
			all := slices.Repeat([]uint32{1<<32 - 1}, (v.size+31)/32)
			g.Matcher().Mask(all)
			return all
		}
		want := mask()
		known := g.root.leads
		require.Equal(t, want, mask())
		require.Same(t, known, g.root.leads)
		answer(t, g, 1, 20, func(*Matcher, []uint32, time.Duration) {})
		require.Positive(t, g.bytes)
		g.bytes = mostBytes
		answer(t, g, 2, 200, func(*Matcher, []uint32, time.Duration) {})
		require.Less(t, g.bytes, mostBytes)
		require.NotSame(t, known, g.root.leads)
		require.Equal(t, want, mask())
	}
}

// Masks of 128k tokens along answers to a schema: as they are met first, and when an answer before was as long.
func BenchmarkMask(b *testing.B) {
	v := bigVocab()
	for _, c := range []struct{ name, schema string }{{"order", orderSchema}, {"object", `{"type":"object"}`}} {
		for _, known := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/known=%v", c.name, known), func(b *testing.B) {
				var all []time.Duration
				keep := func(_ *Matcher, _ []uint32, took time.Duration) { all = append(all, took) }
				g, err := v.Schema([]byte(c.schema))
				require.NoError(b, err)
				for b.Loop() {
					if known {
						answer(b, g, 1, 200, func(*Matcher, []uint32, time.Duration) {})
					} else {
						g, err = v.Schema([]byte(c.schema))
						require.NoError(b, err)
					}
					answer(b, g, 1, 200, keep)
				}
				sum := time.Duration(0)
				for _, took := range all {
					sum += took
				}
				slices.Sort(all)
				micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
				b.ReportMetric(micros(sum)/float64(len(all)), "µs/mask")
				b.ReportMetric(micros(all[len(all)*99/100]), "µs/p99")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
