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
	for _, member := range members {
		place := member.place
		switch member.kind {
		case "ByteLevel": // moves offsets, no ids
		case "TemplateProcessing":
			if templates++; templates > 1 {
				return fault(place, "a second template", "one at most")
			}
			if err := t.readTemplate(place, member.raw); err != nil {
				return err
			}
		case "BertProcessing", "RobertaProcessing":
			if templates++; templates > 1 {
				return fault(place, "a second template", "one at most")
			}
			if err := t.readPair(place, member.raw); err != nil {
				return err
			}
		default:
			return fault(place, quote(member.kind),
				"one of BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing")
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

// readPair reads the tokens around a text as BERT and RoBERTa write them: ["[CLS]", 101].
func (t *Tokenizer) readPair(place string, raw json.RawMessage) error {
	f, err := fields[struct {
		Before markJSON `json:"cls"`
		After  markJSON `json:"sep"`
	}](place, raw)
	if err != nil {
		return err
	}
	for _, id := range []int64{f.Before.id, f.After.id} {
		if id < 0 || id >= int64(len(t.tokens)) || !t.tokens[id].known {
			return fault(place, fmt.Sprintf("id %d", id), "the id of a token")
		}
	}
	t.before, t.after = []int{int(f.Before.id)}, []int{int(f.After.id)}
	return nil
}

// markJSON is ["token", id].
type markJSON struct{ id int64 }

func (m *markJSON) UnmarshalJSON(data []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil || len(pair) != 2 {
		return fault("token", quote(string(data)), "a list of a token and its id")
	}
	return json.Unmarshal(pair[1], &m.id)
}
