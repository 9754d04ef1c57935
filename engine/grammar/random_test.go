package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// testVocab has every byte as a token, many texts of several, one token twice and an end token.
func testVocab() *Vocab {
	var texts []string
	for b := range 256 {
		texts = append(texts, string([]byte{byte(b)}))
	}
	texts = append(texts, `{"`, `":`, `": `, `, "`, `",`, `"}`, `}}`, `]}`, `[1`, `[[`, `true`, `fals`, `null`, `nul`,
		`12`, `0.5`, `e+`, `-1`, `abc`, `a"`, `\n`, `\u00`, `é`, "\xc3", "漢字", "\xe6\xbc", "\"\n", "\n  ", " ", "name",
		"a\": ", "abc", "2024-", ":00", "<end>")
	v := NewVocab(len(texts), func(token int) []byte { return []byte(texts[token]) }, []int{len(texts) - 1})
	return v
}

// random makes a schema of the subset and a value that fits it, in the form that is generated.
type random struct {
	*rand.Rand
	depth int
}

func pick[T any](r *random, all ...T) T { return all[r.IntN(len(all))] }

func (r *random) text() string {
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteRune(pick(r, 'a', 'b', '"', '\\', '\n', 'é', '漢', '😀', ' ', '{'))
	}
	return b.String()
}

func (r *random) schema() (schema map[string]any, value any) {
	r.depth++
	defer func() { r.depth-- }()
	n := 13
	if r.depth > 3 {
		n = 9
	}
	switch r.IntN(n) {
	case 0:
		return map[string]any{"type": "boolean", "title": r.text()}, r.IntN(2) == 0
	case 1:
		return map[string]any{"type": pick[any](r, "null", []string{"null", "integer"})}, nil
	case 2:
		return map[string]any{"type": "integer"}, r.IntN(2000) - 1000
	case 3:
		lo := r.IntN(3000) - 1500
		hi := lo + r.IntN(1200)
		return map[string]any{"type": "integer", pick(r, "minimum", "minimum"): lo, "exclusiveMaximum": float64(hi) + 0.5},
			lo + r.IntN(hi-lo+1)
	case 4:
		lo := r.IntN(300) - 150
		hi := lo + 1 + r.IntN(200)
		return map[string]any{"type": "number", "minimum": lo, "maximum": hi}, json.Number(fmt.Sprintf("%d", hi))
	case 5:
		return map[string]any{"type": "number"}, pick(r, 0, 1.5, -2e10, 1e-7, 100)
	case 6:
		s := r.text()
		n := len([]rune(s))
		return map[string]any{"type": "string", "minLength": max(0, n-r.IntN(3)), "maxLength": n + r.IntN(3)}, s
	case 7:
		of := pick(r, [2]string{`^a[bc]{1,3}(d|\d+)?$`, "abc12"}, [2]string{`"\\?x`, `"x`}, [2]string{`^(?i)Yes|no$`, "yEs"},
			[2]string{`^[^a-z]+$`, "É\t漢"})
		return map[string]any{"type": "string", "pattern": of[0]}, of[1]
	case 8:
		v := []any{r.text(), r.IntN(9), nil, true, map[string]any{"a": []any{1, "x"}}}
		if r.IntN(2) == 0 {
			v := pick(r, v...)
			return map[string]any{"const": v}, v
		}
		return map[string]any{"enum": v}, pick(r, v...)
	case 9:
		return r.array()
	case 10:
		a, x := r.schema()
		b, y := r.schema()
		return map[string]any{"anyOf": []any{a, b}}, pick(r, x, y)
	case 11:
		if r.IntN(2) == 0 {
			return map[string]any{}, map[string]any{"k": []any{1, nil, "x", map[string]any{}}}
		}
		s, v := r.schema()
		return map[string]any{"type": "object", "additionalProperties": s}, map[string]any{r.text(): v, "b": v}
	}
	return r.object()
}

func (r *random) array() (map[string]any, any) {
	s, v := r.schema()
	n := r.IntN(4)
	list := []any{}
	for range n {
		list = append(list, v)
	}
	if r.IntN(3) == 0 {
		p, x := r.schema()
		return map[string]any{"prefixItems": []any{p, s}, "items": pick[any](r, false, s), "type": "array"}, []any{x, v}
	}
	return map[string]any{"type": "array", "items": s, "minItems": max(0, n-1), "maxItems": n + r.IntN(3)}, list
}

// ordered is an object whose members keep their order.
type ordered struct {
	names  []string
	values map[string]any
}

func (o ordered) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, name := range o.names {
		b.WriteByte("{,"[min(i, 1)])
		k, _ := json.Marshal(name)
		v, err := json.Marshal(o.values[name])
		if err != nil {
			return nil, err
		}
		b.Write(append(append(k, ':'), v...))
	}
	if len(o.names) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (r *random) object() (map[string]any, any) {
	properties, value := ordered{values: map[string]any{}}, ordered{values: map[string]any{}}
	required := []string{}
	for range 1 + r.IntN(4) {
		name := fmt.Sprint(pick(r, "name", "é", "a\"b", "x/y"), len(properties.names))
		s, v := r.schema()
		properties.names = append(properties.names, name)
		properties.values[name] = s
		need := r.IntN(2) == 0
		if need {
			required = append(required, name)
		}
		if need || r.IntN(2) == 0 {
			value.names = append(value.names, name)
			value.values[name] = v
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false},
		value
}

// sample draws an answer; ok is false when it has not come to its end.
func sample(t *testing.T, v *Vocab, g *Grammar, r *rand.Rand) (text []byte, ok bool) {
	m := g.Matcher()
	allowed := make([]uint32, (v.size+31)/32)
	for n := range 3000 {
		m.Mask(allowed)
		var all, closing []int
		for token := range v.size {
			if allowed[token/32]>>(token%32)&1 == 0 {
				continue
			}
			all = append(all, token)
			if b := v.bytes[token]; len(b) > 0 && len(b) < 3 && bytes.ContainsAny(b[:1], "\"}],0") || len(b) == 0 {
				closing = append(closing, token)
			}
		}
		require.NotEmpty(t, all, "nothing may follow %q", text)
		if len(closing) > 0 && (r.IntN(2) == 0 || n > 100) {
			all = closing
		}
		token := all[r.IntN(len(all))]
		require.NoError(t, m.Accept(token))
		if token == v.ends[0] {
			return text, true
		}
		text = append(text, v.bytes[token]...)
	}
	return text, false
}

// accepts reports whether a text is of the grammar, token by token, and whole.
func accepts(g *Grammar, text []byte) bool {
	m := g.Matcher()
	for _, b := range text {
		if m.Accept(int(b)) != nil { // the first tokens are the bytes
			return false
		}
	}
	return m.Whole()
}

func validator(t *testing.T, schema []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("schema.json", doc))
	s, err := c.Compile("schema.json")
	require.NoError(t, err, string(schema))
	return s
}

func valid(s *jsonschema.Schema, text []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(doc)
}

// Whatever is sampled under a schema is JSON and fits the schema, as another library sees it; and a value that fits is
// accepted, with and without spaces.
func TestWhatIsSampledFitsTheSchema(t *testing.T) {
	v := testVocab()
	whole := 0
	for seed := range uint64(400) {
		r := &random{Rand: rand.New(rand.NewPCG(seed, 1))}
		schema, value := r.schema()
		raw, err := json.Marshal(schema)
		require.NoError(t, err)
		check := validator(t, raw)
		g, err := v.Schema(raw)
		require.NoError(t, err, string(raw))
		for range 4 {
			text, ok := sample(t, v, g, r.Rand)
			if !ok {
				continue
			}
			whole++
			require.True(t, json.Valid(text), "%s\n%q", raw, text)
			require.NoError(t, valid(check, text), "%s\n%q", raw, text)
		}
		plain, err := json.Marshal(value)
		require.NoError(t, err)
		require.NoError(t, valid(check, plain), "the test's own value %s of %s", plain, raw)
		var indented bytes.Buffer
		require.NoError(t, json.Indent(&indented, plain, "", "  "))
		require.True(t, accepts(g, plain), "%s\n%s", raw, plain)
		require.True(t, accepts(g, indented.Bytes()), "%s\n%s", raw, indented.Bytes())
	}
	require.Greater(t, whole, 1000)
}
