package tokenizer

import (
	"encoding/json"
	"fmt"
)

// readModel fills the vocabulary and the merges.
func (t *Tokenizer) readModel(raw json.RawMessage) error {
	var model modelJSON
	if err := json.Unmarshal(raw, &model); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	switch {
	case model.Dropout != nil && *model.Dropout != 0:
		return fault("model.dropout", fmt.Sprint(*model.Dropout), "none: ids must not depend on chance")
	case model.Prefix != "" || model.Suffix != "":
		return fault("model", "continuing_subword_prefix or end_of_word_suffix is set", "neither: bytes are merged as they are")
	case len(model.Vocab) == 0:
		return fault("model.vocab", "no tokens", "the vocabulary")
	}
	t.bpe.ignoreMerges = model.IgnoreMerges
	if err := t.readVocab(model.Vocab); err != nil {
		return err
	}
	return t.readMerges(model.Merges)
}

func (t *Tokenizer) readVocab(vocab map[string]int64) error {
	top := int64(0)
	for name, id := range vocab {
		if id < 0 || id >= maxID {
			return fault("model.vocab", fmt.Sprintf("%s has id %d", quote(name), id), fmt.Sprintf("0 to %d", maxID-1))
		}
		top = max(top, id)
	}
	t.tokens = make([]token, top+1)
	t.byName = make(map[string]int32, len(vocab))
	t.bpe.ids = make(map[string]int32, len(vocab))
	for i := range t.bpe.single {
		t.bpe.single[i] = none
	}
	for name, id := range vocab {
		if name == "" {
			return fault("model.vocab", fmt.Sprintf("the empty token with id %d", id), "tokens of one byte or more")
		}
		if t.tokens[id].known {
			return fault("model.vocab", fmt.Sprintf("%s and another token have id %d", quote(name), id), "one token for an id")
		}
		text, ok := unmap(name)
		if ok {
			t.bpe.ids[text] = int32(id)
		} else {
			text = name
		}
		if ok && len(text) == 1 {
			t.bpe.single[text[0]] = int32(id)
		}
		t.tokens[id] = token{name: name, bytes: text, known: true}
		t.byName[name] = int32(id)
	}
	return nil
}

func (t *Tokenizer) readMerges(merges []mergeJSON) error {
	t.bpe.merges = make(map[pair]merge, len(merges))
	for rank, m := range merges {
		left, leftOK := t.byName[m.left]
		right, rightOK := t.byName[m.right]
		id, ok := t.byName[m.left+m.right]
		if !leftOK || !rightOK || !ok {
			return fault(fmt.Sprintf("model.merges %d", rank), quote(m.left+" "+m.right), "two tokens whose concatenation is a token too")
		}
		t.bpe.merges[pair{left, right}] = merge{rank: int32(rank), id: id}
	}
	return nil
}

// readAdded adds the added tokens to the vocabulary, and to those that are looked for in texts.
func (t *Tokenizer) readAdded(list []addedJSON) error {
	for i, a := range list {
		place := fmt.Sprintf("added_tokens %d (%s)", i, quote(a.Content))
		id, taken := t.byName[a.Content]
		switch {
		case a.Content == "":
			return fault(place, "no content", "a token")
		case a.SingleWord || a.LStrip || a.RStrip:
			return fault(place, "single_word, lstrip or rstrip is set", "none of them")
		case a.ID < 0 || a.ID >= maxID:
			return fault(place, fmt.Sprintf("id %d", a.ID), fmt.Sprintf("0 to %d", maxID-1))
		case taken && int64(id) != a.ID:
			return fault(place, fmt.Sprintf("ids %d and %d", id, a.ID), "one id for a token")
		case !taken && t.known(int(a.ID)):
			return fault(place, fmt.Sprintf("id %d, as %s has", a.ID, quote(t.tokens[a.ID].name)), "one token for an id")
		}
		t.add(a)
	}
	return nil
}

func (t *Tokenizer) add(a addedJSON) {
	if a.ID >= int64(len(t.tokens)) {
		t.tokens = append(t.tokens, make([]token, int(a.ID)+1-len(t.tokens))...)
	}
	text, ok := unmap(a.Content)
	if !ok {
		text = a.Content
	}
	t.tokens[a.ID] = token{name: a.Content, bytes: text, known: true, special: a.Special}
	t.byName[a.Content] = int32(a.ID)
	if a.Normalized {
		t.normalized.insert(a.Content, int32(a.ID))
	} else {
		t.raw.insert(a.Content, int32(a.ID))
	}
}
