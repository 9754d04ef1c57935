package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	settings "github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

const (
	maxTemplate = 128 << 10 // bytes of a template; the largest known one has 25 KB. It bounds how deep expressions nest.
	maxRendered = 64 << 20  // bytes of a rendered conversation
	maxDepth    = 100       // macros that call macros
	depthName   = "__depth" // the variable that counts them
)

// ChatTemplate is a checkpoint's chat template. It may be used by many goroutines at once.
type ChatTemplate struct {
	template *exec.Template
	named    map[string]string
}

// Message is one message of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant", or what else the template knows
	Content string // text

	// JSON is the whole message as a JSON object, instead of Role and Content: for tool calls and for content in parts. The order of its
	// fields is kept.
	JSON json.RawMessage
}

// ChatOptions are what a template is told beside the messages. The zero value is Hugging Face's default.
type ChatOptions struct {
	AddGenerationPrompt bool                       // end with the header of the assistant's answer
	Tools               json.RawMessage            // a list of tool schemas; none when empty
	Variables           map[string]json.RawMessage // further variables, such as date_string
	Now                 time.Time                  // for strftime_now; the zero value is the present
}

// TemplateRefusal is the error of a template that called raise_exception: the conversation is not one that it can render.
type TemplateRefusal struct{ Message string }

func (r *TemplateRefusal) Error() string { return "the chat template refuses: " + r.Message }

// ChatTemplate gives the template with this name, "" for the default one. Without a default template the error is ErrNoChatTemplate; a
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
	return NewChatTemplate(source, t.config.named)
}

// NewChatTemplate parses a Jinja template as Hugging Face does, with trim_blocks and lstrip_blocks. named are the special tokens it may use:
// "bos_token" and so on. A template that reads files or other templates, or has recursive loops, is refused.
func NewChatTemplate(source string, named map[string]string) (c *ChatTemplate, err error) {
	if len(source) > maxTemplate {
		return nil, fault("chat template", fmt.Sprintf("%d bytes", len(source)), fmt.Sprintf("at most %d", maxTemplate))
	}
	if at := notUTF8(source); at >= 0 {
		return nil, fault("chat template", fmt.Sprintf("byte %#02x at offset %d is not UTF-8", source[at], at), "UTF-8")
	}
	defer recovered("parsing the chat template", &err)
	dialect := settings.New()
	dialect.TrimBlocks, dialect.LeftStripBlocks = true, true
	loader, err := loaders.NewMemoryLoader(map[string]string{"/chat": source})
	if err != nil {
		return nil, err
	}
	template, err := exec.NewTemplate("/chat", dialect, loader, newEnvironment())
	if err != nil {
		return nil, fmt.Errorf("chat template: %s", strings.ReplaceAll(err.Error(), "failed to parse template '"+source+"': ", ""))
	}
	return &ChatTemplate{template: template, named: named}, nil
}

// Render writes a conversation as the text that the model was trained on. It has the special tokens in it, begin-of-text too where the
// template puts it: encode it without addSpecial. What a message contains goes in as it is; a special token in it is one in the text too.
// The error is a *TemplateRefusal when the template says that the conversation is none it knows.
func (c *ChatTemplate) Render(messages []Message, options ChatOptions) (text string, err error) {
	values, err := c.variables(messages, options)
	if err != nil {
		return "", err
	}
	now := options.Now
	if now.IsZero() {
		now = time.Now()
	}
	var refusal *TemplateRefusal
	values["raise_exception"] = func(message string) (string, error) {
		refusal = &TemplateRefusal{message}
		return "", refusal
	}
	values["strftime_now"] = func(format string) (string, error) { return strftime(now, format) }
	values[depthName] = new(int)
	defer recovered("rendering the chat template", &err)
	var out limited
	if err := c.template.Execute(&out, exec.NewContext(values)); err != nil {
		if refusal != nil {
			return "", refusal
		}
		return "", fmt.Errorf("chat template: %w", err)
	}
	return out.String(), nil
}

// variables are what the template sees, but for the functions.
func (c *ChatTemplate) variables(messages []Message, options ChatOptions) (map[string]any, error) {
	values := map[string]any{"add_generation_prompt": options.AddGenerationPrompt, "tools": nil, "documents": nil}
	for role, name := range c.named {
		values[role] = name
	}
	for name, raw := range options.Variables {
		value, err := fromJSON(raw)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", name, err)
		}
		values[name] = value
	}
	if len(options.Tools) > 0 {
		tools, err := fromJSON(options.Tools)
		if _, list := tools.([]any); err == nil && !list {
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
	values["messages"] = list
	return values, nil
}

func (m Message) value() (*exec.Dict, error) {
	if len(m.JSON) == 0 {
		if !utf8.ValidString(m.Role) || !utf8.ValidString(m.Content) {
			return nil, fault("role or content", "bytes that are not UTF-8", "UTF-8")
		}
		d := exec.NewDict()
		put(d, "role", m.Role)
		put(d, "content", m.Content)
		return d, nil
	}
	value, err := fromJSON(m.JSON)
	if err != nil {
		return nil, err
	}
	d, ok := value.(*exec.Dict)
	if !ok {
		return nil, fault("JSON", quote(string(m.JSON)), "an object")
	}
	return d, nil
}

// limited is the text being rendered.
type limited struct{ strings.Builder }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxRendered {
		return 0, fault("rendered text", fmt.Sprintf("more than %d bytes", maxRendered), "a shorter one")
	}
	return l.Builder.Write(p)
}

// WriteString keeps the limit where the template engine looks for this method.
func (l *limited) WriteString(s string) (int, error) { return l.Write([]byte(s)) }

// recovered turns a panic of the template engine into an error: templates come from outside.
func recovered(what string, err *error) {
	if r := recover(); r != nil {
		*err = errors.Join(*err, fmt.Errorf("%s: the template engine failed: %v", what, r))
	}
}
