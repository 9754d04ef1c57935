package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// templates reads chat templates that lie in files of their own, as transformers does: chat_template.jinja is the
// default one, the files of a folder have names, and all of them together go before those of tokenizer_config.json.
// Where there is none at all, chat_template.json has it.
func (o opener) templates(t *Tokenizer) error {
	found := map[string]string{}
	names, err := o.namedTemplates()
	if err != nil {
		return err
	}
	for _, name := range names {
		template, err := o.read(templateDir + "/" + name)
		if err != nil {
			return err
		}
		found[strings.TrimSuffix(name, ".jinja")] = string(template)
	}
	template, err := o.readOptional(templateFile)
	if err != nil {
		return err
	}
	if template != nil {
		found[defaultTemplate] = string(template)
	}
	if len(found) > 0 {
		t.config.templates = found
	}
	if len(t.config.templates) > 0 {
		return nil
	}
	return o.processorTemplate(t)
}

// namedTemplates lists the files of the folder of named templates; none where there is no such folder.
func (o opener) namedTemplates() (names []string, err error) {
	f, err := o(templateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil || !info.IsDir() {
		return nil, err
	}
	dir, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, fault(templateDir, "a folder that cannot be listed", "one that can")
	}
	entries, err := dir.ReadDir(-1)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".jinja") {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// processorTemplate reads the template of a multimodal model's processor.
func (o opener) processorTemplate(t *Tokenizer) error {
	data, err := o.readOptional(processorFile)
	if err != nil || data == nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err = json.Unmarshal(data, &fields); err == nil {
		err = t.readTemplates(fields["chat_template"])
	}
	if err != nil {
		return fmt.Errorf("%s: %w", processorFile, err)
	}
	return nil
}
