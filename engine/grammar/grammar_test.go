package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

func TestWhatIsNotSupportedIsRefusedByName(t *testing.T) {
	v := testVocab()
	for schema, want := range map[string]string{
		strings.Repeat(`{"items":`, 300) + "{}" + strings.Repeat("}", 300): "more than 200 schemas within each other",
		`{`:                               "#: it is no JSON",
		`7`:                               "#: found 7, want an object or true",
		`false`:                           "#: found false, want an object or true",
		`{"type":"text"}`:                 `#: type: found "text", want object, array`,
		`{"type":[]}`:                     "empty list",
		`{"multipleOf":2}`:                "#: multipleOf is not supported",
		`{"properties":{"a":{"not":{}}}}`: "#/properties/a: not is not supported",
		`{"items":{"type":"string","minProperties":1}}`:                                  "#/items: minProperties is not supported",
		`{"type":"string","minimum":1}`:                                                  "found minimum with type",
		`{"type":"string","minLength":3,"maxLength":2}`:                                  "minLength 3 is above maxLength 2",
		`{"type":"string","minLength":-1}`:                                               "minLength: found -1",
		`{"type":"string","format":"email"}`:                                             `format "email" is not supported`,
		`{"type":"string","pattern":"("}`:                                                "pattern: error parsing regexp",
		`{"type":"string","pattern":"a^b"}`:                                              "^ within a text",
		`{"type":"string","pattern":"\\bb"}`:                                             "WordBoundary is not supported",
		`{"type":"string","pattern":"a","minLength":1}`:                                  "together are not supported",
		`{"type":"integer","minimum":2,"maximum":1}`:                                     "no integer is within its bounds",
		`{"type":"number","minimum":0.5}`:                                                "not whole",
		`{"type":"number","exclusiveMinimum":0}`:                                         "exclusiveMinimum of a number",
		`{"type":"object","properties":{"a":{}},"additionalProperties":{"type":"null"}}`: "a schema beside properties",
		`{"type":"object","required":["a"]}`:                                             `required: "a" is not among the properties`,
		`{"oneOf":[{"type":"integer"},{"type":"number"}]}`:                               "oneOf: schemas 0 and 1 may fit",
		`{"oneOf":[{"type":"object"},{"type":"object"}]}`:                                "oneOf: schemas 0 and 1 may fit",
		`{"allOf":[{},{}]}`:                                                              "allOf: found 2 schemas",
		`{"anyOf":[{}],"minLength":1}`:                                                   "found minLength beside anyOf",
		`{"anyOf":[]}`:                                                                   "anyOf: found []",
		`{"$ref":"#/nowhere"}`:                                                           "is not in the schema",
		`{"$ref":"http://x/y"}`:                                                          "want # or #/ and a path",
		`{"$ref":"#"}`:                                                                   "no value fits it",
		`{"anyOf":[{"$ref":"#"},{"type":"null"}]}`:                                       "back to itself before there is any value",
		`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`:             "no value fits it",
		`{"enum":[]}`:                                 "enum: found [], want a list of values",
		`{"enum":["a"],"type":"integer"}`:             "no value of enum or const is of type",
		`{"type":"array","items":false,"minItems":1}`: "items are not allowed",
		`{"type":"array","items":{"type":"string","maxLength":1000000},"maxItems":1000000}`: "more than 200000 states",
	} {
		_, err := v.Schema(json.RawMessage(schema))
		require.ErrorContains(t, err, want, schema)
		require.ErrorAs(t, err, new(*Error), schema)
	}
}

// Schemas as clients write them: references, recursion, alternatives told apart by a property, notes.
func TestSchemasOfClients(t *testing.T) {
	v := testVocab()
	for _, c := range []struct {
		schema    string
		good, bad []string
	}{
		{`{"$defs":{"node":{"type":"object","properties":{"value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
			"required":["value","next"],"additionalProperties":false}},"$ref":"#/$defs/node","title":"a list"}`,
			[]string{`{"value": 1, "next": {"value": 2, "next": null}}`},
			[]string{`{"value": 1}`, `{"value":1,"next":{}}`, `null`}},
		{`{"discriminator":{"propertyName":"kind"},"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind"]},
			{"type":"object","properties":{"kind":{"enum":["b","c"]}},"required":["kind"]}]}`,
			[]string{`{"kind":"a","x":3}`, `{"kind":"c"}`}, []string{`{"kind":"b","x":3}`, `{}`}},
		// References are relative to the nearest schema with an $id that is no anchor.
		{`{"$defs":{"a":{"const":1}},"type":"array","items":{"$id":"x","$defs":{"a":{"const":2}},"type":"object","properties":{
			"$id":{"$ref":"#/$defs/a"},"x":{"$id":"#x","$ref":"#/$defs/a"},"more":{"$ref":"#"}}}}`,
			[]string{`[{"$id":2,"x":2,"more":{"x":2,"more":{}}}]`},
			[]string{`[{"$id":1}]`, `[{"x":1}]`, `[{"more":[]}]`, `[{"more":{"x":1}}]`}},
		// So they are where a path leads through it from outside.
		{`{"$defs":{"a":{"const":1},"b":{"$id":"x","$defs":{"a":{"const":2},"c":{"items":{"$ref":"#/$defs/a"}}}}},
			"properties":{"x":{"$ref":"#/$defs/b/$defs/c"},"y":{"anyOf":[{"$ref":"#/$defs/b/$defs/c"},{"$ref":"#/$defs/a"}]}}}`,
			[]string{`{"x":[2],"y":[2,2]}`, `{"y":1}`}, []string{`{"x":[1]}`, `{"y":2}`}},
		// A name with a slash is no path.
		{`{"properties":{"a":{"items":{"items":{"const":1}}},"a/items":{"items":{"const":2}}}}`,
			[]string{`{"a":[[1]],"a/items":[2]}`}, []string{`{"a/items":[1]}`, `{"a":[[2]]}`}},
		{`{"type":["string","null"],"format":"date"}`, []string{`"2024-02-28"`, `null`},
			[]string{`"2024-02-30"`, `"24-01-01"`}},
		{`{"type":"string","format":"date-time"}`, []string{`"2024-12-31T23:59:59.5+01:00"`},
			[]string{`"2024-12-31T24:00:00Z"`}},
		{`{"type":"array","items":{"type":"array","items":{"type":"boolean"},"minItems":1},"minItems":1,"maxItems":2}`,
			[]string{`[[true],[false,true]]`, "[\n [\n  true\n ]\n]"}, []string{`[]`, `[[]]`, `[[true],[true],[true]]`}},
		{`{"properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["b"]}`,
			[]string{`{"a":1,"b":2}`, `{"b":2}`}, []string{`{"a":1}`, `{"b":2,"a":1}`, `{,"b":2}`, `{"a":1,}`}},
		{`{"type":"object"}`, []string{`{}`, `{"a": [1, 2.5e3, {"b": null}], "c": "\ud83d\ude00é"}`},
			[]string{`[]`, `{"a":"\ud83d"}`, "{\"a\":\"\n\"}", `{"a":01}`}},
		{`true`, []string{`-0`, `"x"`, `[[[]]]`}, []string{``, ` `, `tru`}},
		{`{"type":"integer","minimum":-12,"maximum":103}`, []string{`-12`, `-1`, `0`, `7`, `99`, `100`, `103`},
			[]string{`-13`, `104`, `-0`, `00`, `1.0`}},
		{`{"type":"number","minimum":0,"maximum":1}`, []string{`0`, `0.25`, `1`, `1.0`}, []string{`1.01`, `-0.1`, `2`}},
	} {
		g, err := v.Schema(json.RawMessage(c.schema))
		require.NoError(t, err, c.schema)
		for _, text := range c.good {
			require.True(t, accepts(g, []byte(text)), "%s\n%s", c.schema, text)
		}
		for _, text := range c.bad {
			require.False(t, accepts(g, []byte(text)), "%s\n%s", c.schema, text)
		}
	}
}

// Every whole number of a range, and no other near it.
func TestRangesOfWholeNumbersAreExact(t *testing.T) {
	v := testVocab()
	r := rand.New(rand.NewPCG(4, 4))
	for range 40 {
		lo := r.IntN(400) - 200
		hi := lo + r.IntN(300)
		g, err := v.Schema(json.RawMessage(fmt.Sprintf(`{"type":"integer","minimum":%d,"maximum":%d}`, lo, hi)))
		require.NoError(t, err)
		for x := lo - 20; x < hi+20; x++ {
			require.Equal(t, x >= lo && x <= hi, accepts(g, []byte(fmt.Sprint(x))), "%d of %d to %d", x, lo, hi)
		}
	}
}

// The mask, worked out over the trie, is what trying every token says.
func TestMasksAreWhatTryingEveryTokenSays(t *testing.T) {
	v := testVocab()
	allowed := make([]uint32, (v.size+31)/32)
	for seed := range uint64(30) {
		r := &random{Rand: rand.New(rand.NewPCG(seed, 2))}
		schema, _ := r.schema()
		raw, err := json.Marshal(schema)
		require.NoError(t, err)
		g, err := v.Schema(raw)
		require.NoError(t, err)
		m := g.Matcher()
		for range 30 {
			m.Mask(allowed)
			var all []int
			for token := range v.size {
				try := *m
				bit := allowed[token/32]>>(token%32)&1 == 1
				require.Equal(t, bit, try.Accept(token) == nil, "%s, token %q", raw, v.bytes[token])
				if bit && token != v.ends[0] {
					all = append(all, token)
				}
			}
			if len(all) == 0 {
				break
			}
			require.NoError(t, m.Accept(all[r.IntN(len(all))]))
		}
	}
}

// A pattern with thousands of ways to go on at once is refused: its masks took 100 ms and more. One that is only long
// is not.
func TestPatternsOfTooManyWaysAtOnceAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("values that one goroutine makes, with -short")
	}
	for pattern, taken := range map[string]bool{`^(.?){500}$`: false, `^(.?.?){250}$`: false, `^a(b|.?){300}$`: false,
		`^((.?){500})*$`: false, `^(.*){400}$`: false, `^\pL$`: true, `^(\pL|\pN)+$`: true, `^(()*)*$`: true, `^(.?){10}$`: true, `^([a-z]?){100}$`: true,
		`^.{0,500}$`: true, `^\pL{0,50}$`: true, `^(a|b|cd|ef){300}$`: true, `^.*a.{300}$`: true} {
		raw, err := json.Marshal(map[string]string{"type": "string", "pattern": pattern})
		require.NoError(t, err)
		_, err = testVocab().Schema(raw)
		if taken {
			require.NoError(t, err, pattern)
			continue
		}
		require.ErrorContains(t, err, "too many ways to go on, over 2048", pattern)
	}
}

func TestNothingFollowsTheEnd(t *testing.T) {
	v := testVocab()
	m := v.Object().Matcher()
	require.Error(t, m.Accept(v.ends[0]))
	require.NoError(t, m.Accept('{'))
	require.NoError(t, m.Accept('}'))
	require.True(t, m.Whole())
	require.NoError(t, m.Accept(v.ends[0]))
	require.Error(t, m.Accept('{'))
	require.Error(t, m.Accept(-1))
}

// Deep values make ever new places: what is remembered is bounded, and answers that go on are not disturbed.
func TestManyAnswersShareAGrammar(t *testing.T) {
	v := testVocab()
	g := v.Object()
	deep := strings.Repeat(`{"a":[`, 2500) + "1" + strings.Repeat("]}", 2500)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 3 {
				if !accepts(g, []byte(deep)) {
					t.Error("a deep value is refused")
				}
			}
			r := rand.New(rand.NewPCG(uint64(i), 1))
			if text, ok := sample(t, v, g, r); ok && !json.Valid(text) {
				t.Errorf("%q is no JSON", text)
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, len(g.places), mostPlaces)
}

// No schema is a panic, and what is sampled of one that is taken is JSON that fits it.
// refs is a schema in which each of n names refers to the next w times, how says in which form; the last is end.
func refs(n, w int, how, end string) string {
	var b strings.Builder
	b.WriteString(`{"$defs":{`)
	for i := range n {
		one := strings.Replace(how, "REF", fmt.Sprintf(`{"$ref":"#/$defs/a%d"}`, i+1), 1)
		fmt.Fprintf(&b, `"a%d":{"anyOf":[%s]},`, i, strings.TrimSuffix(strings.Repeat(one+",", w), ","))
	}
	fmt.Fprintf(&b, `"a%d":%s},`, n, end)
	return b.String()
}

// Schemas whose references fan out take no time and no memory that grows with the product of their widths.
func TestReferencesThatFanOutAreBounded(t *testing.T) {
	v := testVocab()
	for _, w := range []int{2, 8} {
		g, err := v.Schema(json.RawMessage(refs(60, w, "REF", `{"type":"null"}`) + `"$ref":"#/$defs/a0"}`))
		require.NoError(t, err)
		require.Empty(t, g.frames, "calls with nothing behind them")
		require.Less(t, len(g.root.items), 3)
		_, err = v.Schema(json.RawMessage(refs(12, w, "REF", `{"type":"integer"}`) +
			`"oneOf":[{"$ref":"#/$defs/a0"},{"type":"string"}]}`))
		require.ErrorContains(t, err, "may fit the same value", "what lies so deep is taken for any type")
	}

	// 2^n ways to read n brackets: the rest is left out, and what is kept fits.
	g, err := v.Schema(json.RawMessage(refs(40, 2, `{"type":"array","items":REF}`, `{"type":"null"}`) +
		`"$ref":"#/$defs/a0"}`))
	require.NoError(t, err)
	p := g.root
	for range 40 {
		p = g.step(p, '[')
		require.NotNil(t, p)
		require.LessOrEqual(t, len(p.items), len(g.net.states)+mostWays)
	}
	for _, b := range []byte("null" + strings.Repeat("]", 40)) {
		p = g.step(p, b)
		require.NotNil(t, p)
	}
	require.True(t, p.whole)
	require.LessOrEqual(t, g.items, mostItems)
	require.Less(t, len(g.frames), 2*mostFrames)
}

func FuzzSchema(f *testing.F) {
	for seed := range uint64(20) {
		r := &random{Rand: rand.New(rand.NewPCG(seed, 5))}
		schema, _ := r.schema()
		raw, err := json.Marshal(schema)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add([]byte(`{"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"}]}},"items":{"$ref":"#"}}`))
	f.Add([]byte(refs(20, 3, "REF", `{"type":"null"}`) + `"oneOf":[{"$ref":"#/$defs/a0"},{"type":"string"}]}`))
	v := testVocab()
	f.Fuzz(func(t *testing.T, raw []byte) {
		g, err := v.Schema(raw)
		if err != nil {
			return
		}
		text, ok := sample(t, v, g, rand.New(rand.NewPCG(1, 1)))
		if !ok {
			return
		}
		require.True(t, json.Valid(text), "%q", text)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
		if err != nil {
			return
		}
		c := jsonschema.NewCompiler()
		if c.AddResource("s.json", doc) != nil {
			return
		}
		if s, err := c.Compile("s.json"); err == nil {
			require.NoError(t, valid(s, text), "%s\n%q", raw, text)
		}
	})
}

// Alternatives are read once each, and not for each other one: 400 of them took 7 s.
func TestManyAlternativesAreComparedQuickly(t *testing.T) {
	v := NewVocab(256, func(token int) []byte { return []byte{byte(token)} }, []int{0})
	schema := func(n int) []byte {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"type":"object","properties":{"k":{"const":%d}},"required":["k"]}`, i))
		}
		return []byte(`{"oneOf":[` + strings.Join(all, ",") + `]}`)
	}
	begin := time.Now()
	_, err := v.Schema(schema(mostExclusive))
	require.NoError(t, err)
	require.Less(t, time.Since(begin), 3*time.Second)
	_, err = v.Schema(schema(mostExclusive + 1))
	require.ErrorContains(t, err, "oneOf: found 501 schemas, want at most 500, or anyOf")
}
