package serve

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// tool is a function that the model may call.
type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// toolCall is a call in an answer.
type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in streams
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

// tools reads tools and tool_choice. The template tells the model of the tools; an answer that must be a call is kept
// to the schema of calls.
func (s *Server) tools(t *task, f *fields) json.RawMessage {
	if f.empty("tools") {
		if choice := f.raw["tool_choice"]; f.has("tool_choice") && string(choice) != `"none"` && string(choice) != `"auto"` {
			f.refuse("tool_choice", "goes with tools")
		}
		return nil
	}
	var all []tool
	f.read("tools", &all, "a list of functions")
	for i, one := range all {
		if one.Type != "function" || one.Function.Name == "" {
			f.refuse("tools", "tool %d: want the type function, and a function with a name", i)
		}
	}
	var choice string
	var named tool
	raw, several := f.raw["tool_choice"], f.flag("parallel_tool_calls", true)
	switch {
	case f.err != nil:
		return nil
	case !f.has("tool_choice"):
		choice = "auto"
	case json.Unmarshal(raw, &choice) == nil:
	case json.Unmarshal(raw, &named) == nil && named.Type == "function":
		choice, several = "required", false
		all = slices.DeleteFunc(all, func(one tool) bool { return one.Function.Name != named.Function.Name })
	}
	switch {
	case choice == "none":
		return nil
	case choice != "auto" && choice != "required" || len(all) == 0:
		f.refuse("tool_choice", `found %s, want "none", "auto", "required" or a function of tools`, short(raw))
		return nil
	case choice == "required":
		s.keep(t, f, "tool_choice", callSchema(all, several))
	}
	t.forced = choice == "required"
	for _, one := range all {
		t.tools = append(t.tools, one.Function.Name)
	}
	return f.raw["tools"]
}

// callSchema is the schema of a call of one of some functions, or of several calls.
func callSchema(all []tool, several bool) json.RawMessage {
	type object = map[string]any
	var calls []any
	for _, one := range all {
		// A list of pairs keeps the order, which a map would not.
		name, err := json.Marshal(one.Function.Name)
		if err != nil {
			panic("BUG: a string that is no JSON: " + err.Error())
		}
		calls = append(calls, object{"type": "object", "required": []string{"name", "arguments"},
			"properties": json.RawMessage(
				fmt.Sprintf(`{"name":{"const":%s},"arguments":%s}`, name, argumentsSchema(one.Function.Parameters)))})
	}
	list := object{"type": "array", "minItems": 1, "items": object{"anyOf": calls}}
	if !several {
		list["maxItems"] = 1
	}
	schema, err := json.Marshal(list)
	if err != nil {
		panic("BUG: a schema that is no JSON: " + err.Error())
	}
	return schema
}

// argumentsSchema is the schema of a call's arguments as a part of callSchema's. Arguments are an object, also where a
// function's parameters do not say so, and references in parameters lead within them, which an $id makes so.
func argumentsSchema(parameters json.RawMessage) json.RawMessage {
	const kind = `"type":"object"`
	var in map[string]json.RawMessage
	switch parameters = bytes.TrimSpace(parameters); {
	case len(parameters) == 0 || string(parameters) == "null":
		return json.RawMessage("{" + kind + `,"additionalProperties":false}`)
	case string(parameters) == "true" || string(parameters) == "{}":
		return json.RawMessage("{" + kind + "}")
	case json.Unmarshal(parameters, &in) != nil || len(in) == 0:
		return parameters // package grammar says what is wrong
	}
	more := `,"$id":"arguments"}` // the last $id counts
	if !slices.ContainsFunc([]string{"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"},
		func(name string) bool { return in[name] != nil }) {
		more = "," + kind + more
	}
	return append(slices.Clone(parameters[:len(parameters)-1]), more...)
}

// callTag begins a call in the form of Hermes, Qwen and others.
const callTag, callEnd = "<tool_call>", "</tool_call>"

// calls finds calls of the named functions in an answer, and the text before them. Models write a call as a JSON object
// of name and arguments or parameters: within tags, or as all of the answer, alone or in a list. An answer in another
// form is text.
func calls(answer string, names []string) (text string, all []functionCall) {
	if len(names) == 0 {
		return answer, nil
	}
	before, rest, tagged := strings.Cut(answer, callTag)
	if !tagged {
		if all = callsOf(answer, names); all == nil {
			return answer, nil
		}
		return "", all
	}
	for tagged {
		var body string
		body, rest, _ = strings.Cut(rest, callEnd) // the last end may be missing
		some := callsOf(body, names)
		if some == nil {
			return answer, nil
		}
		all = append(all, some...)
		_, rest, tagged = strings.Cut(rest, callTag)
	}
	return strings.TrimRight(before, " \n"), all
}

// callsOf reads an object, a list of objects, or several with semicolons between them; nil where they are not all
// calls.
func callsOf(text string, names []string) (all []functionCall) {
	type call struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	d := json.NewDecoder(strings.NewReader(text))
	for {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil
		}
		list := []call{{}}
		if json.Unmarshal(raw, &list[0]) != nil && json.Unmarshal(raw, &list) != nil {
			return nil
		}
		for _, one := range list {
			arguments := one.Arguments
			if arguments == nil {
				arguments = one.Parameters
			}
			var object map[string]json.RawMessage
			if !slices.Contains(names, one.Name) || arguments != nil && json.Unmarshal(arguments, &object) != nil {
				return nil
			}
			if arguments == nil {
				arguments = json.RawMessage("{}")
			}
			all = append(all, functionCall{one.Name, string(arguments)})
		}
		rest := strings.TrimLeft(text[d.InputOffset():], " \t\r\n;")
		if rest == "" {
			return all
		}
		text, d = rest, json.NewDecoder(strings.NewReader(rest))
	}
}

// shows is how much of an answer so far is text in any case, not perhaps the beginning of a call.
func shows(answer string, names []string) int {
	if len(names) == 0 {
		return len(answer)
	}
	if begin := strings.TrimLeft(answer, " \t\r\n"); begin == "" || strings.ContainsAny(begin[:1], "{[") {
		return 0
	}
	if i := strings.Index(answer, callTag); i >= 0 {
		return len(strings.TrimRight(answer[:i], " \n"))
	}
	for n := min(len(answer), len(callTag)-1); n > 0; n-- {
		if strings.HasSuffix(answer, callTag[:n]) {
			return len(strings.TrimRight(answer[:len(answer)-n], " \n"))
		}
	}
	return len(strings.TrimRight(answer, " \n"))
}

// answered is what a choice has said and how much of that was sent on.
type answered struct {
	said string
	sent int
}

// withCalls makes the message of what comes of a choice: text that is in no case a call, and at the end the calls, if
// it is some. It also returns why the choice has ended, which calls are a reason of their own for.
func (r *reply) withCalls(i int, text string, why *string) (*message, *string) {
	a := &r.answers[i]
	a.said += text
	show, found := a.said[:max(a.sent, shows(a.said, r.t.tools))], []functionCall(nil)
	if why != nil {
		if show, found = calls(a.said, r.t.tools); found != nil && *why == "stop" {
			called := "tool_calls"
			why = &called
		}
	}
	m := &message{}
	if more := show[min(a.sent, len(show)):]; more != "" || found == nil {
		m.content = &more
	}
	a.sent = len(show)
	for k, one := range found {
		call := toolCall{ID: "call_" + strings.ToLower(rand.Text()), Type: "function", Function: one}
		if r.t.stream {
			call.Index = &k
		}
		m.calls = append(m.calls, call)
	}
	return m, why
}
