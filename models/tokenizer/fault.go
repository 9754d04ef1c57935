package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

// Names of the files that make up a tokenizer, as errors name them.
const (
	tokenizerFile = "tokenizer.json"
	configFile    = "tokenizer_config.json"
	templateFile  = "chat_template.jinja"
	templateDir   = "additional_chat_templates" // files NAME.jinja of named templates
	processorFile = "chat_template.json"        // of multimodal models, written by transformers 4
)

// otherFiles are formats that are not read: SentencePiece or tiktoken, Mistral's, GPT-2's.
var otherFiles = [...]string{"tokenizer.model", "tekken.json", "vocab.json", "spiece.model", "qwen.tiktoken"}

// fault is a user's mistake: where, what is there, and what is wanted there.
func fault(place, has, wants string) error {
	return fmt.Errorf("%s: %s; want %s", place, has, wants)
}

// quote shows a piece of a file in an error, shortened to about 60 bytes.
func quote(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:57], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}

// ErrNoChatTemplate says that a checkpoint has no chat template; base models have none.
var ErrNoChatTemplate = errors.New("the checkpoint has no chat template (neither " + templateFile +
	" nor chat_template in " + configFile + " or " + processorFile + ")")
