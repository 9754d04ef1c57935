package tokenizer

import (
	"encoding/json"
	"fmt"
)

// Names of templates that mean something to transformers, too.
const (
	defaultTemplate = "default"
	toolTemplate    = "tool_use"
)

// roles are the named special tokens of tokenizer_config.json, as its fields and as variables of chat templates.
var roles = [...]string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// config is tokenizer_config.json.
type config struct {
	named     map[string]string // by role; only those that are set
	templates map[string]string // by name; most checkpoints have only the default one
}

func (t *Tokenizer) parseConfig(data []byte) error {
	t.config = config{named: map[string]string{}, templates: map[string]string{}}
	if len(data) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	for _, role := range roles {
		name, err := tokenName(fields[role])
		if err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		if name == "" {
			continue
		}
		if _, ok := t.byName[name]; !ok {
			return fault(role, quote(name), "a token of "+tokenizerFile)
		}
		t.config.named[role] = name
	}
	return t.readTemplates(fields["chat_template"])
}

// tokenName reads a token: a string, an object with its content, or nothing.
func tokenName(raw json.RawMessage) (string, error) {
	if absent(raw) {
		return "", nil
	}
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return name, nil
	}
	var object struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(raw, &object); err != nil || object.Content == "" {
		return "", fault("value", quote(string(raw)), "a string or an object with content")
	}
	return object.Content, nil
}

// readTemplates reads chat_template: a string, a list of objects with name and template, or nothing.
func (t *Tokenizer) readTemplates(raw json.RawMessage) error {
	if absent(raw) {
		return nil
	}
	var source string
	if json.Unmarshal(raw, &source) == nil {
		t.config.templates[defaultTemplate] = source
		return nil
	}
	var list []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return fault("chat_template", quote(string(raw)), "a string or a list of objects with name and template")
	}
	for _, entry := range list {
		t.config.templates[entry.Name] = entry.Template
	}
	return nil
}

// Named is the token in a role of tokenizer_config.json: "bos_token", "eos_token", "pad_token"; false when it has none.
func (t *Tokenizer) Named(role string) (name string, id int, ok bool) {
	name, ok = t.config.named[role]
	return name, int(t.byName[name]), ok
}

// BOS is the id of the token that begins a text; false when tokenizer_config.json names none.
func (t *Tokenizer) BOS() (id int, ok bool) {
	_, id, ok = t.Named("bos_token")
	return id, ok
}

// EOS is the id of the token that ends an answer; false when tokenizer_config.json names none. A checkpoint's
// generation_config.json may list more than this one.
func (t *Tokenizer) EOS() (id int, ok bool) {
	_, id, ok = t.Named("eos_token")
	return id, ok
}
