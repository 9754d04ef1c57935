package tokenizer

import (
	"encoding/json"
	"fmt"
)

type templateJSON struct {
	Single []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		}
		Sequence *struct {
			ID string `json:"id"`
		}
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
}

// readProcessor fills before and after: the ids that Encode puts around a text. An absent post-processor puts none.
func (t *Tokenizer) readProcessor(raw json.RawMessage) error {
	members, err := flatten("post_processor", "processors", raw)
	if err != nil {
		return err
	}
	templates := 0
	for i, member := range members {
		place := fmt.Sprintf("post_processor %d", i)
		name, err := kind(place, member)
		if err != nil {
			return err
		}
		switch name {
		case "ByteLevel": // moves offsets, no ids
		case "TemplateProcessing":
			if templates++; templates > 1 {
				return fault(place, "a second TemplateProcessing", "one at most")
			}
			if err := t.readTemplate(place, member); err != nil {
				return err
			}
		default:
			return fault(place, quote(name), `"TemplateProcessing", "ByteLevel" or a Sequence of them`)
		}
	}
	return nil
}

func (t *Tokenizer) readTemplate(place string, raw json.RawMessage) error {
	var template templateJSON
	if err := json.Unmarshal(raw, &template); err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	texts := 0
	for _, piece := range template.Single {
		if piece.SpecialToken == nil {
			if piece.Sequence == nil || piece.Sequence.ID != "A" {
				return fault(place+".single", "a piece that is neither", `a SpecialToken or the Sequence "A"`)
			}
			texts++
			continue
		}
		token, ok := template.SpecialTokens[piece.SpecialToken.ID]
		if !ok {
			return fault(place+".single", "special token "+quote(piece.SpecialToken.ID), "one listed in special_tokens")
		}
		for _, id := range token.IDs {
			if id < 0 || id >= int64(len(t.tokens)) || !t.tokens[id].known {
				return fault(place+".special_tokens", fmt.Sprintf("id %d", id), "the id of a token")
			}
			if texts == 0 {
				t.before = append(t.before, int(id))
			} else {
				t.after = append(t.after, int(id))
			}
		}
	}
	if texts != 1 {
		return fault(place+".single", fmt.Sprintf("%d texts", texts), `exactly one Sequence "A"`)
	}
	return nil
}
