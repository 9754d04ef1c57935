package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"github.com/mkgen/mkgen/models"
)

// GenerationFile holds settings for generating text. Of those only the end tokens are read: instruct models list there
// those that end an answer, of which their config.json may know but one.
const GenerationFile = "generation_config.json"

// EndTokens returns the tokens that end a text: those of config.json, then those that generation_config.json adds. None
// is listed twice; nil when neither file names one.
func (c *Checkpoint) EndTokens() []int { return slices.Clone(c.ends) }

// endTokens reads them; a generation_config.json that is not there adds none.
func (p place) endTokens(config models.Config) ([]int, error) {
	ends := slices.Clone(config.EOS)
	text, err := p.text(GenerationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return ends, nil
	} else if err != nil {
		return nil, err
	}
	more, err := parseGeneration(text, config.Vocab)
	for _, id := range more {
		if !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	return ends, err
}

// parseGeneration returns eos_token_id of generation_config.json: an id, a list of ids, null or absent.
func parseGeneration(text []byte, vocab int) ([]int, error) {
	t, err := newJSONText(GenerationFile, text)
	if err != nil {
		return nil, err
	}
	var ids []int
	err = t.object("", func(name string) (err error) {
		var raw json.RawMessage
		if name != "eos_token_id" {
			return t.skip()
		} else if err = t.Decode(&raw); err == nil {
			ids, err = endIDs(raw, vocab)
		}
		return err
	})
	return ids, err
}

func endIDs(raw json.RawMessage, vocab int) ([]int, error) {
	list := []json.RawMessage{raw}
	if string(raw) == "null" {
		return nil, nil
	} else if raw[0] == '[' {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
	}
	if len(list) > models.MaxEOS {
		return nil, wrongEnd(fmt.Sprintf("%d ids", len(list)), vocab)
	}
	var ids []int
	for _, text := range list {
		id, err := strconv.ParseUint(string(text), 10, 31)
		if err != nil || id >= uint64(vocab) {
			return nil, wrongEnd(shorten(string(text)), vocab)
		}
		ids = append(ids, int(id))
	}
	return ids, nil
}

func wrongEnd(found string, vocab int) error {
	return &Problem{File: GenerationFile, Tensor: "eos_token_id", Found: found,
		Want: fmt.Sprintf("null, or one to %d ids from 0 to %d", models.MaxEOS, vocab-1)}
}
