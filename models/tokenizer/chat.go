package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mkgen/mkgen/models/tokenizer/jinja"
)

// ChatTemplate is a checkpoint's chat template. It may be used by many goroutines at once.
type ChatTemplate struct {
	template *jinja.Template
	toolUse  *jinja.Template // for conversations with tools; nil for the same one
	named    map[string]string
}

// Message is one message of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant", or what else the template knows
	Content string // text

	// JSON is the whole message as a JSON object, instead of Role and Content: for tool calls and for content in parts.
	// The order of its fields is kept.
	JSON json.RawMessage
}

// ChatOptions are what a template is told beside the messages. The zero value is Hugging Face's default.
type ChatOptions struct {
	AddGenerationPrompt bool                       // end with the header of the assistant's answer
	ContinueFinal       bool                       // end with the last message's content, which the model goes on with
	Tools               json.RawMessage            // a list of tool schemas; none when empty
	Variables           map[string]json.RawMessage // further variables, such as date_string
	Now                 time.Time                  // for strftime_now; the zero value is the present
}

// TemplateRefusal is the error of a template that called raise_exception: the conversation is not one that it can
// render.
type TemplateRefusal struct{ Message string }

func (r *TemplateRefusal) Error() string { return "the chat template refuses: " + r.Message }

// ChatTemplate gives the template with this name, "" for the default one, which gives way to one named tool_use, where
// there is one, in conversations with tools. Without a default template the error is ErrNoChatTemplate; a
// template that cannot be parsed is an error that says where.
func (t *Tokenizer) ChatTemplate(name string) (*ChatTemplate, error) {
	if name == "" {
		name = defaultTemplate
	}
	source, ok := t.config.templates[name]
	if !ok && name == defaultTemplate {
		return nil, ErrNoChatTemplate
	}
	if !ok {
		return nil, fault("chat_template", "no template "+quote(name), "a template of "+configFile)
	}
	c, err := NewChatTemplate(source, t.config.named)
	if source, ok := t.config.templates[toolTemplate]; ok && err == nil && name == defaultTemplate {
		if c.toolUse, err = jinja.Parse(source); err != nil {
			return nil, fmt.Errorf("chat template %s: %w", toolTemplate, err)
		}
	}
	return c, err
}

// NewChatTemplate parses a Jinja template as Hugging Face does, with trim_blocks and lstrip_blocks. named are the
// special tokens it may use: "bos_token" and so on. What package jinja does not know is refused.
func NewChatTemplate(source string, named map[string]string) (*ChatTemplate, error) {
	template, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return &ChatTemplate{template: template, named: named}, nil
}

// Render writes a conversation as the text that the model was trained on. It has the special tokens in it,
// begin-of-text too where the template puts it: encode it without addSpecial. What a message contains goes in as it is;
// a special token in it is one in the text too. The error is a *TemplateRefusal when the template says that the
// conversation is none it knows.
func (c *ChatTemplate) Render(messages []Message, options ChatOptions) (string, error) {
	values, err := c.variables(messages, options)
	if err != nil {
		return "", err
	}
	now := options.Now
	if now.IsZero() {
		now = time.Now()
	}
	template := c.template
	if c.toolUse != nil && values["tools"] != nil {
		template = c.toolUse
	}
	final := ""
	if options.ContinueFinal {
		if final, err = tagged(values["messages"].(*jinja.List)); err != nil {
			return "", err
		}
	}
	text, err := template.Render(values, jinja.Options{Now: now})
	var raised *jinja.Raised
	if errors.As(err, &raised) {
		return "", &TemplateRefusal{raised.Message}
	}
	if err != nil {
		return "", fmt.Errorf("chat template: %w", err)
	}
	if options.ContinueFinal {
		return upToTag(text, final)
	}
	return text, nil
}

// finalTag is put behind the text that the model goes on with, to find the place in the rendered conversation.
const finalTag = "CONTINUE_FINAL_MESSAGE_TAG "

// tagged puts finalTag behind the last message's content, or the last text in it, and returns that content without it.
func tagged(messages *jinja.List) (content string, err error) {
	if len(messages.Items) == 0 {
		return "", fault("conversation", "no message to continue", "at least one")
	}
	in, field := messages.Items[len(messages.Items)-1].(*jinja.Dict), "content"
	value, _ := in.Get(field)
	if parts, ok := value.(*jinja.List); ok {
		value = nil
		for _, part := range slices.Backward(parts.Items) {
			if part, ok := part.(*jinja.Dict); ok && value == nil {
				if text, ok := part.Get("text"); ok {
					in, field, value = part, "text", text
				}
			}
		}
	}
	content, ok := value.(string)
	if !ok {
		return "", fault("last message", "no text to continue", "one with content")
	}
	in.Set(field, content+finalTag)
	return content, nil
}

// upToTag cuts a rendered conversation off before finalTag, as transformers does for continue_final_message: without
// the spaces before it where the template has trimmed what content ends with.
func upToTag(text, content string) (string, error) {
	at := strings.LastIndex(text, strings.TrimSpace(finalTag))
	if at < 0 || !strings.Contains(text, strings.TrimFunc(content, pythonSpace)) {
		return "", fault("last message", "content that the chat template does not render as it is",
			"another message to continue")
	}
	if strings.HasPrefix(text[at:], finalTag) {
		return text[:at], nil
	}
	return strings.TrimRightFunc(text[:at], pythonSpace), nil
}

// pythonSpace reports what Python's strip takes for white space.
func pythonSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// variables are what the template sees, but for the functions.
func (c *ChatTemplate) variables(messages []Message, options ChatOptions) (map[string]any, error) {
	values := map[string]any{"add_generation_prompt": options.AddGenerationPrompt, "tools": nil, "documents": nil}
	for role, name := range c.named {
		values[role] = name
	}
	for name, raw := range options.Variables {
		value, err := jinja.FromJSON(raw)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
		values[name] = value
	}
	if len(options.Tools) > 0 {
		tools, err := jinja.FromJSON(options.Tools)
		if _, list := tools.(*jinja.List); err == nil && !list {
			err = fault("JSON", quote(string(options.Tools)), "a list")
		}
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		values["tools"] = tools
	}
	list := make([]any, len(messages))
	for i, m := range messages {
		value, err := m.value()
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		list[i] = value
	}
	values["messages"] = &jinja.List{Items: list}
	return values, nil
}

func (m Message) value() (*jinja.Dict, error) {
	if len(m.JSON) == 0 {
		if !utf8.ValidString(m.Role) || !utf8.ValidString(m.Content) {
			return nil, fault("role or content", "bytes that are not UTF-8", "UTF-8")
		}
		d := &jinja.Dict{}
		d.Set("role", m.Role)
		d.Set("content", m.Content)
		return d, nil
	}
	value, err := jinja.FromJSON(m.JSON)
	if err != nil {
		return nil, err
	}
	d, ok := value.(*jinja.Dict)
	if !ok {
		return nil, fault("JSON", quote(string(m.JSON)), "an object")
	}
	return tidied(d), nil
}

// tidied gives a message as transformers shows it to a template: without fields that are null, and with its reasoning
// under the names that templates of several families read.
func tidied(message *jinja.Dict) *jinja.Dict {
	out, reasoning := &jinja.Dict{}, any(nil)
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		if value, _ := message.Get(name); reasoning == nil {
			reasoning = value
		}
	}
	if reasoning != nil {
		out.Set("thinking", reasoning)
	}
	for key, value := range message.All() {
		if value != nil {
			out.Set(key, value)
		}
	}
	if reasoning != nil {
		out.Set("reasoning_content", reasoning)
	}
	return out
}
