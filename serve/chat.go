package serve

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/mkgen/mkgen/models/tokenizer"
)

// chatTask parses the body of /v1/chat/completions.
func (s *Server) chatTask(body []byte) (*task, *Error) {
	f, err := parseFields(body)
	if err != nil {
		return nil, err
	}
	if err := refuseUnsupported(f); err != nil {
		return nil, err
	}
	t := &task{chat: true}
	most := t.common(f)
	t.logprobsOf(f)
	s.format(t, f)
	tokens := s.conversation(t, f)
	if f.err != nil {
		return nil, f.err
	}
	if most == 0 {
		return nil, invalid("max_completion_tokens", "max_completion_tokens: found 0, want at least 1")
	}
	t.prompts = []prompt{{tokens: tokens}}
	return t, s.complete(t, most)
}

// conversation renders the messages by the model's chat template and encodes them.
func (s *Server) conversation(t *task, f *fields) []int {
	if f.err != nil {
		return nil
	}
	if s.o.Text == nil {
		f.refuse("messages", "the model comes without a tokenizer; want /v1/completions with token ids")
		return nil
	}
	template, err := s.o.Text.ChatTemplate("")
	if err != nil {
		f.refuse("messages", "the model cannot chat: %v; want /v1/completions", err)
		return nil
	}
	messages, continues := messagesOf(f), f.flag("continue_final_message", false)
	options := tokenizer.ChatOptions{
		AddGenerationPrompt: f.flag("add_generation_prompt", !continues),
		ContinueFinal:       continues,
		Tools:               s.tools(t, f),
	}
	if options.AddGenerationPrompt && continues {
		f.refuse("continue_final_message", "found true beside add_generation_prompt, want one of them")
	}
	f.read("chat_template_kwargs", &options.Variables, "an object")
	if f.err != nil {
		return nil
	}
	text, err := template.Render(messages, options)
	if refusal := (*tokenizer.TemplateRefusal)(nil); errors.As(err, &refusal) {
		f.refuse("messages", "the chat template refuses them: %s", refusal.Message)
	} else if err != nil {
		f.refuse("messages", "%v", err)
	}
	tokens, err := s.o.Text.Encode(text, false) // begin-of-text is in it
	if err != nil {
		f.refuse("messages", "%v", err)
	} else if len(tokens) == 0 {
		f.refuse("messages", "found no tokens, want at least one")
	}
	return tokens
}

// messagesOf reads the conversation.
func messagesOf(f *fields) []tokenizer.Message {
	var raw []json.RawMessage
	f.read("messages", &raw, "a list of messages")
	if len(raw) == 0 {
		f.refuse("messages", "found none, want at least one message")
		return nil
	}
	var all []tokenizer.Message
	for i, one := range raw {
		m, why := messageOf(one)
		if why != "" {
			f.refuse("messages", "message %d: %s", i, why)
			return nil
		}
		all = append(all, m)
	}
	return all
}

// messageOf reads a message; why says what is wrong with it. Content in parts of text is joined by line
// breaks. What has more than role and content goes to the template as it is.
func messageOf(raw json.RawMessage) (m tokenizer.Message, why string) {
	in := &fields{}
	if json.Unmarshal(raw, &in.raw) != nil || in.raw == nil {
		return m, "found " + short(raw) + ", want an object"
	}
	if m.Role = in.text("role"); in.err != nil || m.Role == "" {
		return m, "want a role, a string that is not empty"
	}
	content, why := contentOf(in.raw["content"])
	if why != "" {
		return m, why
	}
	m.Content = content
	if in.empty("tool_calls") && in.empty("tool_call_id") && in.empty("name") {
		if !in.has("content") {
			return m, "want content"
		}
		return m, ""
	}
	if err := objectsOf(in, "tool_calls"); err != "" {
		return m, err
	}
	if in.has("content") {
		in.raw["content"], _ = json.Marshal(content) // a string is always JSON
	}
	whole, err := json.Marshal(in.raw)
	if err != nil {
		return m, err.Error()
	}
	return tokenizer.Message{JSON: whole}, ""
}

// contentOf reads a text or a list of parts of type text.
func contentOf(raw json.RawMessage) (text, why string) {
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &text) == nil {
		return text, ""
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", "content: found " + short(raw) + ", want a string or a list of parts"
	}
	var all []string
	for _, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return "", "content: found a part of type " + quoted(p.Type) + ", want text: the model takes nothing else"
		}
		all = append(all, *p.Text)
	}
	return strings.Join(all, "\n"), ""
}

// objectsOf makes the arguments of calls objects, as templates want them; clients send them as text.
func objectsOf(in *fields, name string) (why string) {
	if in.empty(name) {
		return ""
	}
	var all []map[string]json.RawMessage
	if json.Unmarshal(in.raw[name], &all) != nil {
		return name + ": found " + short(in.raw[name]) + ", want a list of calls"
	}
	for _, call := range all {
		var function map[string]json.RawMessage
		var text string
		if json.Unmarshal(call["function"], &function) != nil || json.Unmarshal(function["arguments"], &text) != nil {
			continue // not a call of OpenAI's form, or an object already: the template sees what it is
		}
		if text == "" {
			text = "{}"
		}
		if !json.Valid([]byte(text)) {
			return name + ": arguments: found " + short(function["arguments"]) + ", want JSON"
		}
		function["arguments"] = json.RawMessage(text)
		var err error
		if call["function"], err = json.Marshal(function); err != nil {
			return err.Error()
		}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return err.Error()
	}
	in.raw[name] = raw
	return ""
}
