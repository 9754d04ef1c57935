package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// readBPE fills the vocabulary and the merges. byteLevel says that pieces come as bytes.
func (t *Tokenizer) readBPE(raw json.RawMessage, byteLevel bool) (model, error) {
	f, err := fields[modelJSON]("model", raw)
	if err != nil {
		return nil, err
	}
	switch {
	case f.Dropout != nil && *f.Dropout != 0:
		return nil, fault("model.dropout", fmt.Sprint(*f.Dropout), "none: ids must not depend on chance")
	case f.Prefix != "" || f.Suffix != "":
		return nil, fault("model", "continuing_subword_prefix or end_of_word_suffix is set",
			"neither: characters are merged as they are")
	}
	if err := t.readVocab(f.Vocab); err != nil {
		return nil, err
	}
	b := &bpe{byteLevel: byteLevel, ignoreMerges: f.IgnoreMerges, fuse: f.FuseUnknown, unknown: none}
	if f.Unknown != nil {
		id, ok := t.byName[*f.Unknown]
		if !ok {
			return nil, fault("model.unk_token", quote(*f.Unknown), "a token of the vocabulary")
		}
		b.unknown = id
	}
	if f.ByteFallback {
		b.bytes = t.byteTokens()
	}
	b.spell(t.byName)
	b.merges, err = t.readMerges(f.Merges)
	return b, err
}

// spell fills what pieces are looked up in: by characters as tokens are spelled, or by the bytes these stand for.
func (b *bpe) spell(names map[string]int32) {
	b.ids, b.runes = make(map[string]int32, len(names)), map[rune]int32{}
	for i := range b.single {
		b.single[i] = none
	}
	for name, id := range names {
		if utf8.RuneCountInString(name) == 1 {
			r, _ := utf8.DecodeRuneInString(name)
			b.runes[r] = id
		}
		if !b.byteLevel {
			b.ids[name] = id
			continue
		}
		if text, ok := unmap(name); ok {
			b.ids[text] = id
			if len(text) == 1 {
				b.single[text[0]] = id
			}
		}
	}
}

func (t *Tokenizer) readVocab(vocab map[string]int64) error {
	if len(vocab) == 0 {
		return fault("model.vocab", "no tokens", "the vocabulary")
	}
	top := int64(0)
	for name, id := range vocab {
		if id < 0 || id >= maxID {
			return fault("model.vocab", fmt.Sprintf("%s has id %d", quote(name), id), fmt.Sprintf("0 to %d", maxID-1))
		}
		top = max(top, id)
	}
	t.tokens = make([]token, top+1)
	t.byName = make(map[string]int32, len(vocab))
	for name, id := range vocab {
		if name == "" {
			return fault("model.vocab", fmt.Sprintf("the empty token with id %d", id), "tokens of one byte or more")
		}
		if t.tokens[id].known {
			return fault("model.vocab", fmt.Sprintf("%s and another token have id %d", quote(name), id), "one token for an id")
		}
		t.tokens[id] = token{name: name, known: true}
		t.byName[name] = int32(id)
	}
	return nil
}

func (t *Tokenizer) readMerges(merges []mergeJSON) (map[pair]merge, error) {
	out := make(map[pair]merge, len(merges))
	for rank, m := range merges {
		left, leftOK := t.byName[m.left]
		right, rightOK := t.byName[m.right]
		id, ok := t.byName[m.left+m.right]
		if !leftOK || !rightOK || !ok {
			return nil, fault(fmt.Sprintf("model.merges %d", rank), quote(m.left+" "+m.right),
				"two tokens whose concatenation is a token too")
		}
		out[pair{left, right}] = merge{rank: int32(rank), id: id}
	}
	return out, nil
}

// readAdded adds the added tokens to the vocabulary, and to those that are looked for in texts.
func (t *Tokenizer) readAdded(list []addedJSON) error {
	for i, a := range list {
		place := fmt.Sprintf("added_tokens %d (%s)", i, quote(a.Content))
		id, taken := t.byName[a.Content]
		switch {
		case a.Content == "":
			return fault(place, "no content", "a token")
		case a.ID < 0 || a.ID >= maxID:
			return fault(place, fmt.Sprintf("id %d", a.ID), fmt.Sprintf("0 to %d", maxID-1))
		case taken && int64(id) != a.ID:
			return fault(place, fmt.Sprintf("ids %d and %d", id, a.ID), "one id for a token")
		case !taken && t.known(int(a.ID)):
			return fault(place, fmt.Sprintf("id %d, as %s has", a.ID, quote(t.tokens[a.ID].name)), "one token for an id")
		}
		if err := t.add(a); err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
	}
	return nil
}

// add adds a token. One that is looked for in normalized text is normalized itself.
func (t *Tokenizer) add(a addedJSON) error {
	id := int32(a.ID)
	if int(id) >= len(t.tokens) {
		t.tokens = append(t.tokens, make([]token, int(id)+1-len(t.tokens))...)
	}
	t.tokens[id] = token{name: a.Content, known: true, special: a.Special}
	t.byName[a.Content] = id
	if !a.Normalized {
		t.raw.insert(a.Content, id, a)
		return nil
	}
	spelling, err := t.normalizers.normalize(piece{a.Content, true})
	t.normalized.insert(spelling.text, id, a)
	return err
}
