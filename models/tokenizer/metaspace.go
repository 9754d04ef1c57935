package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// metaspace replaces spaces by a sign, puts one before a text, and splits before each: SentencePiece's way.
type metaspace struct {
	sign   string // one character, "▁" in most files
	prefix string // "always", "first" (only where the whole text begins) or "never"
	cut    bool
}

func readSigns(place string, raw json.RawMessage) (metaspace, error) {
	f, err := fields[struct {
		Replacement    string `json:"replacement"`
		AddPrefixSpace *bool  `json:"add_prefix_space"` // in older files
		Scheme         string `json:"prepend_scheme"`
		Split          *bool  `json:"split"`
	}](place, raw)
	if err != nil {
		return metaspace{}, err
	}
	m := metaspace{sign: f.Replacement, prefix: f.Scheme, cut: f.Split == nil || *f.Split}
	if m.prefix == "" {
		m.prefix = "always"
	}
	switch {
	case utf8.RuneCountInString(m.sign) != 1:
		return m, fault(place+".replacement", quote(m.sign), "one character")
	case m.prefix != "always" && m.prefix != "first" && m.prefix != "never":
		return m, fault(place+".prepend_scheme", quote(m.prefix), "always, first or never")
	case f.AddPrefixSpace != nil && !*f.AddPrefixSpace && m.prefix != "never":
		return m, fault(place+".add_prefix_space", "false beside prepend_scheme "+quote(m.prefix), "prepend_scheme never")
	}
	return m, nil
}

func readMetaspace(place string, raw json.RawMessage) (preTokenizer, error) {
	return readSigns(place, raw)
}

func readMetaspaceDecoder(place string, raw json.RawMessage) (decoder, error) {
	return readSigns(place, raw)
}

func (m metaspace) split(p piece, s *scratch, yield func(piece) error) error {
	p.text = strings.ReplaceAll(p.text, " ", m.sign)
	if m.prefix == "always" || m.prefix == "first" && p.first {
		if !strings.HasPrefix(p.text, m.sign) {
			p.text = m.sign + p.text
		}
	}
	if !m.cut {
		return yield(p)
	}
	return splitter{literal(m.sign), withAfter, false}.split(p, s, yield)
}

func (m metaspace) joins() bool { return false }

// start gives the decoder: signs become spaces, and those of the first token nothing unless none was put there.
func (m metaspace) start(joined bool) stage {
	return &metaspaceStage{metaspace: m, joined: joined, first: true}
}

type metaspaceStage struct {
	metaspace
	joined, first bool
}

func (m *metaspaceStage) add(token string, emit func(string)) {
	space := " "
	if m.first && m.prefix != "never" {
		space = ""
	}
	m.first = m.joined
	emit(strings.ReplaceAll(token, m.sign, space))
}

func (m *metaspaceStage) flush(func(string)) {}
