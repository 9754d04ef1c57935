package serve

import (
	"encoding/json"
	"math"

	"github.com/mkgen/mkgen/engine"
)

// defaultMaxTokens is how many tokens a completion has where nothing is said, as OpenAI has it.
const defaultMaxTokens = 16

// mostPrompts is how many prompts a request has at most.
const mostPrompts = 1024

// completion parses the body of /v1/completions.
func (s *Server) completion(body []byte) (*task, *Error) {
	f, err := parseFields(body)
	if err != nil {
		return nil, err
	}
	if err := refuseUnsupported(f); err != nil {
		return nil, err
	}
	t := &task{}
	most := t.common(f)
	t.echo = f.flag("echo", false)
	t.logprobsOf(f)
	s.format(t, f)
	t.prompts = s.promptsOf(f, t.echo)
	if f.err != nil {
		return nil, f.err
	}
	switch {
	case most < 0:
		most = max(defaultMaxTokens, t.request.MinTokens)
	case most == 0 && !t.echo:
		return nil, invalid("max_tokens", "max_tokens: found 0, want at least 1, or echo: true")
	}
	t.none = most == 0
	return t, s.complete(t, most)
}

// promptsOf reads a text, a list of texts, a list of token ids or a list of such lists.
func (s *Server) promptsOf(f *fields, echo bool) []prompt {
	const want = "a text, a list of texts, a list of token ids or a list of lists of token ids"
	if !f.has("prompt") {
		f.refuse("prompt", "found none, want %s", want)
		return nil
	}
	raw := f.raw["prompt"]
	all := []json.RawMessage{raw}
	if raw[0] == '[' {
		if tokens, ok := f.ids("prompt"); ok && len(tokens) > 0 {
			p, err := s.promptOfIDs(tokens, echo)
			if err != nil {
				f.refuse("prompt", "%s", err.Message)
			}
			return []prompt{p}
		}
		all = nil // json.Unmarshal would write into raw
		if err := json.Unmarshal(raw, &all); err != nil {
			panic("BUG: a list in JSON that is none: " + err.Error())
		}
		if i := strangeID(all); i > 0 {
			f.refuse("prompt", "found %s behind token ids, want %s", short(all[i]), want)
			return nil
		}
	}
	if len(all) == 0 || len(all) > mostPrompts {
		f.refuse("prompt", "found a list of %d, want 1 to %d", len(all), mostPrompts)
		return nil
	}
	var prompts []prompt
	for _, one := range all {
		p, err := s.promptOf(one, echo, want)
		if err != nil {
			f.refuse("prompt", "%s", err.Message)
			return nil
		}
		prompts = append(prompts, p)
	}
	return prompts
}

// strangeID is the first of a list that is no whole number, where those before it are; 0 where there is none.
func strangeID(all []json.RawMessage) int {
	for i, one := range all {
		if _, end := plainID(one, 0); end == len(one) {
			continue
		}
		var id *int
		if json.Unmarshal(one, &id) != nil || id == nil {
			return i
		}
	}
	return 0
}

// promptOf reads one prompt.
func (s *Server) promptOf(raw json.RawMessage, echo bool, want string) (prompt, *Error) {
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		if s.o.Text == nil {
			return prompt{}, invalid("prompt", "found a text, but the model comes without a tokenizer; want token ids")
		}
		tokens, err := s.o.Text.Encode(text, true)
		if err != nil {
			return prompt{}, invalid("prompt", "%v", err)
		}
		return checked(prompt{tokens, text}, s.o.Vocab)
	}
	tokens, ok := idsOf(raw)
	if !ok {
		return prompt{}, invalid("prompt", "found %s, want %s", short(raw), want)
	}
	return s.promptOfIDs(tokens, echo)
}

// promptOfIDs is a prompt of token ids, with their text where that is to be echoed.
func (s *Server) promptOfIDs(tokens ids, echo bool) (prompt, *Error) {
	p, err := checked(prompt{tokens: tokens}, s.o.Vocab)
	if err == nil && echo {
		p.text = s.textOf(tokens)
	}
	return p, err
}

// checked refuses a prompt without tokens, and with tokens that are none.
func checked(p prompt, vocab int) (prompt, *Error) {
	if len(p.tokens) == 0 {
		return p, invalid("prompt", "found no tokens, want at least one")
	}
	for _, id := range p.tokens {
		if id < 0 || id >= vocab {
			return p, invalid("prompt", "found token %d, want 0 to %d", id, vocab-1)
		}
	}
	return p, nil
}

// complete sets how many tokens each sequence has at most (-1 for as many as fit), and refuses what
// never fits and what is of another model.
func (s *Server) complete(t *task, most int) *Error {
	if t.model != "" && t.model != s.o.Model {
		return s.missing(t.model)
	}
	if s.o.Text == nil && len(t.request.Stop) > 0 {
		return invalid("stop", "stop: the model comes without a tokenizer")
	}
	limit, longest := s.o.Backend.KVTokens(), 0
	for _, p := range t.prompts {
		longest = max(longest, len(p.tokens))
	}
	// Added in 64 bits: max_tokens goes up to 2^31 - 1.
	if need := int64(longest) + int64(max(most, 1)); need > int64(limit) && !t.none || longest > limit {
		e := invalid("prompt", "the context has room for %d tokens; the prompt has %d and %d are to be generated", limit,
			longest, max(most, 1))
		if t.chat {
			e.Param = "messages"
		}
		e.Code = "context_length_exceeded"
		return e
	}
	if most < 0 {
		most = limit - longest
	}
	if t.request.MinTokens > most {
		return invalid("min_tokens", "min_tokens: found %d, want at most max_tokens, which is %d", t.request.MinTokens, most)
	}
	t.request.MaxTokens = max(most, 1)         // of none the log-probabilities of the prompt may be wanted
	for id := range t.request.Penalties.Bias { // all else is read from a range
		if id < 0 || id >= s.o.Vocab {
			return invalid("logit_bias", "logit_bias: found token %d, want 0 to %d", id, s.o.Vocab-1)
		}
	}
	for _, id := range t.request.StopTokens {
		if id < 0 || id >= s.o.Vocab {
			return invalid("stop_token_ids", "stop_token_ids: found token %d, want 0 to %d", id, s.o.Vocab-1)
		}
	}
	return nil
}

// choices are the requests of a task, n for each prompt, in the order of their index.
func (t *task) choices() []engine.Request {
	var all []engine.Request
	for _, p := range t.prompts {
		for i := range t.n {
			r := t.request
			r.Tokens = p.tokens
			if t.grammar != nil {
				r.Mask = t.grammar.Matcher()
			}
			r.Sampling.Seed += uint64(i)
			if r.Sampling.Greedy() {
				r.Sampling.Seed = 0
			}
			all = append(all, r)
		}
	}
	return all
}

// quoted is a name for a message, cut where it is long.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil || len(s) > math.MaxInt8 {
		return "(a long name)"
	}
	return string(b)
}
