package serve

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
	"sync"

	"github.com/mkgen/mkgen/engine/grammar"
)

// grammars are those that answers have been kept to, over the tokens of the model.
type grammars struct {
	vocab     func() *grammar.Vocab
	mu        sync.Mutex
	known     map[[sha256.Size]byte]*grammar.Grammar // by the schema's hash: a schema may be as large as a body
	mostBytes int                                    // of those that are known; beyond it they are forgotten
}

// mostGrammars are remembered, and no more once they take mostGrammarBytes.
const mostGrammars, mostGrammarBytes = 64, 256 << 20

func newGrammars(o *Options) *grammars {
	known := map[[sha256.Size]byte]*grammar.Grammar{}
	return &grammars{known: known, mostBytes: mostGrammarBytes, vocab: sync.OnceValue(func() *grammar.Vocab {
		return grammar.NewVocab(o.Vocab, func(token int) []byte {
			if o.Text.Special(token) {
				return nil
			}
			text, _ := o.Text.Bytes(token)
			return text
		}, o.Ends)
	})}
}

// schema is the grammar of a schema. Other requests do not wait while a new one is made.
func (g *grammars) schema(raw json.RawMessage) (*grammar.Grammar, error) {
	key := sha256.Sum256(raw)
	if known := g.get(key); known != nil {
		return known, nil
	}
	made, err := g.vocab().Schema(raw)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.known[key]; known != nil { // another request was faster
		return known, nil
	}
	bytes := made.Bytes()
	for _, known := range g.known {
		bytes += known.Bytes()
	}
	if len(g.known) == mostGrammars || bytes > g.mostBytes {
		clear(g.known)
	}
	g.known[key] = made
	return made, nil
}

// get is the grammar of a schema that is known; nil for none.
func (g *grammars) get(key [sha256.Size]byte) *grammar.Grammar {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[key]
}

// format reads response_format.
func (s *Server) format(t *task, f *fields) {
	o := f.object("response_format")
	kind := o.text("type")
	var schema json.RawMessage
	switch kind {
	case "", "text":
		return
	case "json_object":
		schema = json.RawMessage(`{"type":"object"}`)
	case "json_schema":
		if schema = o.object("json_schema").raw["schema"]; schema == nil {
			f.refuse("response_format", "want json_schema: an object with a schema")
		}
	default:
		f.refuse("response_format", "found the type %s, want text, json_object or json_schema", quoted(kind))
	}
	s.keep(t, f, "response_format", schema)
}

// keep has answers fit a schema.
func (s *Server) keep(t *task, f *fields, field string, schema json.RawMessage) {
	switch {
	case f.err != nil:
		return
	case s.o.Text == nil || len(s.o.Ends) == 0:
		f.refuse(field, "the model comes without a tokenizer or without end tokens")
	case t.grammar != nil:
		f.refuse(field, "found both response_format and a tool_choice that forces a call")
	case t.request.IgnoreEnds || t.request.MinTokens > 0:
		f.refuse(field, "does not go with ignore_eos or min_tokens: the answer ends where its grammar does")
	}
	if f.err != nil {
		return
	}
	made, err := s.grammars.schema(schema)
	if err != nil {
		f.refuse(field, "the schema: %s", strings.TrimPrefix(err.Error(), "#: "))
		return
	}
	t.grammar = made
}
