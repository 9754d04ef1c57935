package tokenizer

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
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
	Template, Name, Text, Error string
	Messages                    []json.RawMessage
	Prompt                      bool `json:"add_generation_prompt"`
	Tools                       json.RawMessage
	IDs                         []int
	variables                   map[string]json.RawMessage
}

func (c *chatCase) UnmarshalJSON(data []byte) error {
	type plain chatCase
	if err := json.Unmarshal(data, (*plain)(c)); err != nil {
		return err
	}
	if err := json.Unmarshal(data, &c.variables); err != nil {
		return err
	}
	for _, known := range []string{"template", "name", "text", "error", "messages", "add_generation_prompt", "tools", "ids"} {
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
		if json.Unmarshal(raw, &fields) == nil && len(fields) == 2 && json.Unmarshal(raw, &simple) == nil && simple.Content != nil {
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
			text, err := template.Render(c.messages(), ChatOptions{AddGenerationPrompt: c.Prompt, Tools: c.Tools, Variables: c.variables, Now: g.Now})
			if c.Error != "" {
				var refusal *TemplateRefusal
				require.ErrorAs(t, err, &refusal)
				require.Equal(t, c.Error, refusal.Message)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.Text, text)
			ids, err := tok.Encode(text, false)
			require.NoError(t, err)
			require.Equal(t, c.IDs, ids)
		})
	}
}
