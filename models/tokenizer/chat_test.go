package tokenizer

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type chatGolden struct {
	Now   time.Time
	Chats []chatCase
}

// chatCase is one rendering: keys other than these are variables.
type chatCase struct {
	Template, Name, Text string
	Error, Failure       string // what raise_exception said; what else went wrong
	Messages             []json.RawMessage
	Prompt               bool `json:"add_generation_prompt"`
	Tools                json.RawMessage
	IDs                  []int
	variables            map[string]json.RawMessage
}

func (c *chatCase) UnmarshalJSON(data []byte) error {
	type plain chatCase
	if err := json.Unmarshal(data, (*plain)(c)); err != nil {
		return err
	}
	if err := json.Unmarshal(data, &c.variables); err != nil {
		return err
	}
	for _, known := range []string{"template", "name", "text", "error", "failure", "messages", "add_generation_prompt",
		"tools", "ids"} {
		delete(c.variables, known)
	}
	return nil
}

func (c *chatCase) messages() []Message {
	var list []Message
	for _, raw := range c.Messages {
		var simple struct {
			Role    string
			Content *string
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) == nil && len(fields) == 2 && json.Unmarshal(raw, &simple) == nil &&
			simple.Content != nil {
			list = append(list, Message{Role: simple.Role, Content: *simple.Content})
		} else {
			list = append(list, Message{JSON: raw})
		}
	}
	return list
}

func readChats(t *testing.T, path string) chatGolden {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var g chatGolden
	require.NoError(t, json.Unmarshal(data, &g))
	require.NotEmpty(t, g.Chats)
	return g
}

var (
	chatsFile     = flag.String("chats", "testdata/chat_golden.json", "what transformers made of the conversations")
	chatTemplates = flag.String("chat-templates", "testdata/templates", "folder of the templates that -chats names")
)

func TestChatsEqualHuggingFace(t *testing.T) {
	tok := open(t)
	g := readChats(t, *chatsFile)
	for _, c := range g.Chats {
		t.Run(c.Template+"/"+c.Name, func(t *testing.T) {
			source, err := os.ReadFile(filepath.Join(*chatTemplates, c.Template))
			require.NoError(t, err)
			template, err := NewChatTemplate(string(source), tok.config.named)
			require.NoError(t, err)
			text, err := template.Render(c.messages(),
				ChatOptions{AddGenerationPrompt: c.Prompt, Tools: c.Tools, Variables: c.variables, Now: g.Now})
			if c.Failure != "" {
				require.Error(t, err)
				return
			}
			if c.Error != "" {
				var refusal *TemplateRefusal
				require.ErrorAs(t, err, &refusal)
				require.Equal(t, c.Error, refusal.Message)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.Text, text)
			if c.IDs == nil {
				return
			}
			ids, err := tok.Encode(text, false)
			require.NoError(t, err)
			require.Equal(t, orEmpty(c.IDs), orEmpty(ids))
		})
	}
}

func TestTemplatesByName(t *testing.T) {
	source, _ := files(t)
	tok, err := Parse([]byte(source),
		[]byte(`{"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}, {"name": "broken", "template": "{{"}]}`))
	require.NoError(t, err)
	for name, want := range map[string]string{"": "D", "default": "D", "tool_use": "T"} {
		template, err := tok.ChatTemplate(name)
		require.NoError(t, err)
		text, err := template.Render(nil, ChatOptions{})
		require.NoError(t, err)
		require.Equal(t, want, text)
	}
	template, err := tok.ChatTemplate("")
	require.NoError(t, err)
	text, err := template.Render(nil, ChatOptions{Tools: []byte("[]")})
	require.NoError(t, err)
	require.Equal(t, "T", text, "transformers takes tool_use where tools are given")
	_, err = tok.ChatTemplate("rag")
	require.ErrorContains(t, err, `chat_template: no template "rag"; want a template of tokenizer_config.json`)
	_, err = tok.ChatTemplate("broken")
	require.ErrorContains(t, err, "chat template: line 1: a tag that does not end; want }}")
}

func TestMistakesInConversationsAreNamed(t *testing.T) {
	template, err := NewChatTemplate("{{ messages | length }}", nil)
	require.NoError(t, err)
	render := func(m Message, options ChatOptions) error {
		_, err := template.Render([]Message{{Role: "user"}, m}, options)
		return err
	}
	require.NoError(t, render(Message{}, ChatOptions{}))
	require.ErrorContains(t, render(Message{Content: "\xff"}, ChatOptions{}),
		"message 1: role or content: bytes that are not UTF-8; want UTF-8")
	require.ErrorContains(t, render(Message{JSON: []byte(`[1]`)}, ChatOptions{}), `message 1: JSON: "[1]"; want an object`)
	require.ErrorContains(t, render(Message{JSON: []byte(`{"a":`)}, ChatOptions{}),
		"message 1: unexpected end of JSON input")
	require.ErrorContains(t, render(Message{JSON: []byte("{\"a\": \"\xff\"}")}, ChatOptions{}),
		"message 1: bytes that are not UTF-8")
	require.ErrorContains(t, render(Message{JSON: []byte(`{"a": 99999999999999999999}`)}, ChatOptions{}),
		"want an integer of 64 bits")
	require.ErrorContains(t, render(Message{}, ChatOptions{Tools: []byte(`{}`)}), `tools: JSON: "{}"; want a list`)
	require.ErrorContains(t, render(Message{}, ChatOptions{Variables: map[string]json.RawMessage{"v": []byte("x")}}),
		"variable v: invalid character")
}

func TestTheLastMessageIsContinuedAsTransformersDoes(t *testing.T) {
	const plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
	const trims = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}"
	for _, c := range []struct{ template, content, want string }{
		{plain, "Once upon", "<user>Once upon</s><assistant>Once upon"}, // of several, the last
		{plain, " a b \n", "<user>Once upon</s><assistant> a b \n"},
		{trims, " a b \n", "<user>Once upon</s><assistant>a b"},
		{plain, "", "<user>Once upon</s><assistant>"},
		{plain, "s", "<user>Once upon</s><assistant>s"}, // and not what the template writes behind it
		{trims, "\x1c s \x1f", "<user>Once upon</s><assistant>s"},
	} {
		template, err := NewChatTemplate(c.template, nil)
		require.NoError(t, err)
		text, err := template.Render([]Message{{Role: "user", Content: "Once upon"}, {Role: "assistant", Content: c.content}},
			ChatOptions{ContinueFinal: true})
		require.NoError(t, err)
		require.Equal(t, c.want, text)
	}
	parts, err := NewChatTemplate("{{ messages[0].content[1].text }}.", nil)
	require.NoError(t, err)
	text, err := parts.Render([]Message{{JSON: []byte(`{"content": [{"text": "a"}, {"text": "b"}]}`)}},
		ChatOptions{ContinueFinal: true})
	require.NoError(t, err)
	require.Equal(t, "b", text)
	text, err = parts.Render([]Message{{JSON: []byte(`{"content": [{}, {"text": "b"}, {"type": "image"}]}`)}},
		ChatOptions{ContinueFinal: true})
	require.NoError(t, err)
	require.Equal(t, "b", text, "the last part with text")
	for message, want := range map[string]string{
		`{"content": [{}, {"text": 7}]}`:                             "no text to continue",
		`{"content": [{}, {"type": "image"}]}`:                       "no text to continue",
		`{"content": [{}, {"text": "a"}, {"text": "not in there"}]}`: "does not render as it is",
	} {
		_, err = parts.Render([]Message{{JSON: []byte(message)}}, ChatOptions{ContinueFinal: true})
		require.ErrorContains(t, err, want)
	}
	none, err := NewChatTemplate("", nil)
	require.NoError(t, err)
	_, err = none.Render(nil, ChatOptions{ContinueFinal: true})
	require.ErrorContains(t, err, "no message to continue")
}

func TestTheClockIsReadWhenNoTimeIsGiven(t *testing.T) {
	template, err := NewChatTemplate("{{ strftime_now('%Y') }}", nil)
	require.NoError(t, err)
	before := time.Now().Year()
	text, err := template.Render(nil, ChatOptions{})
	require.NoError(t, err)
	year, err := strconv.Atoi(text)
	require.NoError(t, err)
	require.True(t, before <= year && year <= time.Now().Year())
}
