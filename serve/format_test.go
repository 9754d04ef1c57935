package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/grammar"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// fits validates an answer by another library.
func fits(t *testing.T, schema, text string) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(schema)))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("s.json", doc))
	s, err := c.Compile("s.json")
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
	require.NoError(t, err, "%q", text)
	require.NoError(t, s.Validate(value), "%q", text)
}

const petSchema = `{"type":"object","properties":{"name":{"type":"string","maxLength":6},"age":{"type":"integer","minimum":0,"maximum":30},
	"kind":{"enum":["dog","cat"]},"toys":{"type":"array","items":{"type":"boolean"},"maxItems":2}},"required":["name","age","kind"],"additionalProperties":false}`

// However it is drawn, an answer of the bundled model that comes to its end fits the schema.
func TestAnAnswerFitsItsSchema(t *testing.T) {
	s := onTiny(t, nil)
	format := `"response_format":{"type":"json_schema","json_schema":{"name":"pet","strict":true,"schema":` + petSchema +
		`}}`
	ended := 0
	for seed, temperature := range deep.Most([]float64{0, 1.2}, 1) {
		for _, ask := range []string{
			fmt.Sprintf(`"prompt":"A pet:","n":2,"temperature":%v,"seed":%d,"max_tokens":150,`, temperature, seed),
			fmt.Sprintf(`"messages":[{"role":"user","content":"A pet?"}],"temperature":%v,"seed":%d,"max_tokens":150,`,
				temperature, seed),
		} {
			path := "/v1/completions"
			if bytes.Contains([]byte(ask), []byte("messages")) {
				path = "/v1/chat/completions"
			}
			for _, c := range s.must(path, "{"+ask+format+"}").Choices {
				text := c.Text
				if c.Message != nil {
					text = c.Message.Content
				}
				if *c.Finish == "stop" {
					ended++
					fits(t, petSchema, *text)
				}
			}
		}
	}
	require.Greater(t, ended, deep.Count(3, 1))
}

func TestJSONModeGivesAnObject(t *testing.T) {
	s := onTiny(t, nil)
	ended := 0
	for seed := range 2 {
		c := s.must("/v1/completions", fmt.Sprintf(`{"prompt":"{","temperature":1,"seed":%d,"max_tokens":60,
			"response_format":{"type":"json_object"}}`, seed)).Choices[0]
		if *c.Finish == "stop" {
			ended++
			fits(t, `{"type":"object"}`, *c.Text)
		} else {
			require.Equal(t, byte('{'), (*c.Text)[0])
		}
	}
	t.Log(ended, "of 2 came to their end")
}

const weather = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"enum":["Rome","Oslo"]}},
	"required":["city"],"additionalProperties":false}}},{"type":"function","function":{"name":"now"}}]`

// A call that must be made is made, streamed or not, and its arguments fit.
func TestACallThatIsRequiredIsMade(t *testing.T) {
	s := onTiny(t, nil)
	for _, choice := range deep.Most([]string{`"required"`, `{"type":"function","function":{"name":"weather"}}`}, 1) {
		body := `"messages":[{"role":"user","content":"hi"}],"temperature":0.8,"seed":3,"max_tokens":120,"tool_choice":` +
			choice + `,` + weather
		whole := s.must("/v1/chat/completions", "{"+body+"}").Choices[0]
		require.Equal(t, "tool_calls", *whole.Finish, "%+v", whole.Message)
		require.NotEmpty(t, whole.Message.Calls)
		require.Nil(t, whole.Message.Content)
		for _, call := range whole.Message.Calls {
			require.Contains(t, []string{"weather", "now"}, call.Function.Name)
			if call.Function.Name == "weather" {
				fits(t, `{"properties":{"city":{"enum":["Rome","Oslo"]}},"required":["city"]}`, call.Function.Arguments)
			} else {
				require.JSONEq(t, "{}", call.Function.Arguments)
			}
		}
		var streamed []toolCall
		text, finish := "", ""
		for _, e := range s.events("/v1/chat/completions", "{"+body+`,"stream":true}`) {
			c := e.Choices[0]
			streamed = append(streamed, c.Delta.Calls...)
			if c.Delta.Content != nil {
				text += *c.Delta.Content
			}
			if c.Finish != nil {
				finish = *c.Finish
				require.Empty(t, c.Delta.Calls, "OpenAI's client tells of the end of calls at the event behind them")
			}
		}
		require.Empty(t, text)
		require.Equal(t, "tool_calls", finish)
		require.Len(t, streamed, len(whole.Message.Calls))
		for i, call := range streamed {
			require.Equal(t, i, *call.Index)
			require.Equal(t, whole.Message.Calls[i].Function, call.Function)
		}
	}
}

// Arguments are kept to what the parameters mean alone: references lead within them, however many functions there are,
// and arguments are an object where the parameters do not say so.
func TestParametersMeanWhatTheyDoAlone(t *testing.T) {
	v := grammar.NewVocab(256, func(token int) []byte { return []byte{byte(token)} }, []int{0})
	pets := func(kind string) json.RawMessage {
		return json.RawMessage(`{"$defs":{"pet":{"enum":["` + kind + `"]}},"properties":{"pet":{"$ref":"#/$defs/pet"},
			"friend":{"anyOf":[{"$ref":"#"},{"type":"null"}]}}}`)
	}
	for parameters, want := range map[string][2][]string{
		string(pets("cat")): {{`{"pet":"cat","friend":{"friend":null}}`, `{}`}, {`{"pet":"dog"}`, `{"friend":[]}`, `null`}},
		"":                  {{`{}`}, {`{"a":1}`, `"a"`}},
		"null":              {{`{}`}, {`{"a":1}`, `"a"`}},
		"true":              {{`{}`, `{"a":1}`}, {`"a"`, `null`}},
		"{}":                {{`{}`, `{"a":1}`}, {`"a"`, `null`}},
		` {"title":"x"} `:   {{`{}`, `{"a":1}`}, {`"a"`, `null`}},
		`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}},"$id":"#a"}`: {{`{"a":1}`}, {`"a"`, `null`}},
	} {
		var all [2]tool
		all[0].Function.Name, all[0].Function.Parameters = "other", pets("dog")
		all[1].Function.Name, all[1].Function.Parameters = "this", json.RawMessage(parameters)
		g, err := v.Schema(callSchema(all[:], true))
		require.NoError(t, err, parameters)
		for i, some := range want {
			for _, arguments := range some {
				m := g.Matcher()
				var err error
				for _, b := range []byte(`[{"name":"this","arguments":` + arguments + `}]`) {
					if err = m.Accept(int(b)); err != nil {
						break
					}
				}
				require.Equal(t, i == 0, err == nil, "%s: %s", parameters, arguments)
			}
		}
	}
}

// OpenAI calls a named function once, and with parallel_tool_calls of false no two at a time.
func TestHowManyCallsAnAnswerMayHave(t *testing.T) {
	f := newFake(t, func(engine.Request) []engine.Piece { return script("a") })
	s := listening(t, f.options(), nil)
	for body, several := range map[string]bool{`"tool_choice":"required"`: true,
		`"tool_choice":"required","parallel_tool_calls":true`:         true,
		`"tool_choice":"required","parallel_tool_calls":false`:        false,
		`"tool_choice":{"type":"function","function":{"name":"now"}}`: false} {
		s.must("/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],`+weather+`,`+body+`}`)
		tokens, err := s.o.Text.Encode(`[{"name": "now", "arguments": {}}, {`, false)
		require.NoError(t, err)
		mask := f.asked[len(f.asked)-1].Mask
		for _, token := range tokens {
			if err = mask.Accept(token); err != nil {
				break
			}
		}
		require.Equal(t, several, err == nil, "%s: %v", body, err)
	}
}

// The forms in which models write calls, however the text is cut into tokens.
func TestCallsInTheFormsOfModels(t *testing.T) {
	rome := []functionCall{{"weather", `{"city":"Rome"}`}}
	for _, c := range []struct {
		answer, text string
		calls        []functionCall
	}{
		{"<tool_call>\n{\"name\":\"weather\",\"arguments\":{\"city\":\"Rome\"}}\n</tool_call>", "", rome},
		{"Let me see. \n<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Rome\"}}</tool_call>\n<tool_call>{\"name\":\"now\"}", "Let me see.",
			append(rome, functionCall{"now", "{}"})},
		{`{"name":"weather","parameters":{"city":"Rome"}}`, "", rome},
		{` {"name":"weather","parameters":{"city":"Rome"}}; {"name":"now","parameters":{}}`, "",
			append(rome, functionCall{"now", "{}"})},
		{`[{"name":"weather","arguments":{"city":"Rome"}}]`, "", rome},
		{`{"name":"elsewhere","parameters":{}}`, `{"name":"elsewhere","parameters":{}}`, nil},
		{`{"city":"Rome"}`, `{"city":"Rome"}`, nil},
		{`[1, 2]`, `[1, 2]`, nil},
		{`<tool_call>{"name":"weather","arg`, `<tool_call>{"name":"weather","arg`, nil},
		{"It is 1 < 2 <tool, \n\n and so on ", "It is 1 < 2 <tool, \n\n and so on ", nil},
	} {
		text, got := calls(c.answer, []string{"weather", "now"})
		require.Equal(t, c.text, text, c.answer)
		require.Equal(t, c.calls, got, c.answer)
		for _, size := range []int{0, 2, 7} {
			var parts []string
			for rest := c.answer; rest != ""; {
				n := min(size+1, len(rest))
				parts, rest = append(parts, rest[:n]), rest[n:]
			}
			fake := newFake(t, func(engine.Request) []engine.Piece { return script(parts...) })
			s := listening(t, fake.options(), nil)
			streamed, found := "", []functionCall(nil)
			for _, e := range s.events("/v1/chat/completions",
				`{"messages":[{"role":"user","content":"hi"}],"max_tokens":5,"stream":true,`+weather+`}`) {
				if d := e.Choices[0].Delta; d.Content != nil {
					streamed += *d.Content
				}
				for _, call := range e.Choices[0].Delta.Calls {
					found = append(found, call.Function)
				}
			}
			require.Equal(t, c.text, streamed, c.answer)
			require.Equal(t, c.calls, found, c.answer)
		}
	}
}

func TestCallsOfTheConversationAreObjectsForTheTemplate(t *testing.T) {
	m, why := messageOf(json.RawMessage(
		`{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}}]}`))
	require.Empty(t, why)
	require.JSONEq(t, `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"weather","arguments":{"city":"Rome"}}}]}`, string(m.JSON))
}

// Schemas that take much memory are not all remembered, however few they are.
func TestLargeGrammarsAreForgotten(t *testing.T) {
	g := newGrammars(&onTiny(t, nil).o)
	g.mostBytes = 2 << 20
	one, other := `{"type":"string","maxLength":9000}`, `{"type":"string","maxLength":8000}`
	first, err := g.schema([]byte(one))
	require.NoError(t, err)
	require.InDelta(t, 1<<20, first.Bytes(), 1<<19) // 982 KiB by the runtime's count
	_, err = g.schema([]byte(other))
	require.NoError(t, err)
	again, err := g.schema([]byte(one))
	require.NoError(t, err)
	require.Same(t, first, again)
	_, err = g.schema([]byte(`{"type":"string","maxLength":12000}`))
	require.NoError(t, err)
	require.Len(t, g.known, 1)
}
