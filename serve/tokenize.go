package serve

import "net/http"

// tokenized is the answer of /tokenize.
type tokenized struct {
	Count  int      `json:"count"`
	Length int      `json:"max_model_len"`
	Tokens []int    `json:"tokens"`
	Names  []string `json:"token_strs,omitempty"`
}

// textFields reads the body of a request that needs the tokenizer.
func (s *Server) textFields(w http.ResponseWriter, r *http.Request) (*fields, *Error) {
	body, err := s.read(w, r)
	if err != nil {
		return nil, err
	}
	if s.o.Text == nil {
		return nil, invalid("", "the model comes without a tokenizer")
	}
	return parseFields(body)
}

// tokenize gives the token ids of a prompt, or of a conversation by the chat template.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) *Error {
	f, err := s.textFields(w, r)
	if err != nil {
		return err
	}
	var ids []int
	if f.has("messages") {
		ids = s.conversation(&task{chat: true}, f)
	} else if !f.has("prompt") {
		f.refuse("prompt", "found none, want a text, or messages")
	} else {
		text, special := f.text("prompt"), f.flag("add_special_tokens", true)
		var fault error
		if ids, fault = s.o.Text.Encode(text, special); fault != nil {
			f.refuse("prompt", "%v", fault)
		}
	}
	out := tokenized{Count: len(ids), Length: s.o.Backend.KVTokens(), Tokens: append([]int{}, ids...)}
	if f.flag("return_token_strs", false) {
		for _, id := range ids {
			name, _ := s.o.Text.Token(id) // ids of the tokenizer have one
			out.Names = append(out.Names, name)
		}
	}
	if f.err != nil {
		return f.err
	}
	return writeJSON(w, http.StatusOK, out)
}

// detokenize gives the text of token ids, special ones as they are spelled.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) *Error {
	f, err := s.textFields(w, r)
	if err != nil {
		return err
	}
	var tokens ids
	if !f.read("tokens", &tokens, "a list of token ids") && f.err == nil {
		f.refuse("tokens", "found none, want a list of token ids")
	}
	for _, id := range tokens {
		if id < 0 || id >= s.o.Vocab {
			f.refuse("tokens", "found token %d, want 0 to %d", id, s.o.Vocab-1)
		}
	}
	if f.err != nil {
		return f.err
	}
	return writeJSON(w, http.StatusOK, map[string]string{"prompt": s.o.Text.Decode(tokens, false)})
}

// tokenizerInfo gives what clients without a tokenizer of their own ask for, as vLLM does: the names of special tokens.
func (s *Server) tokenizerInfo(w http.ResponseWriter, _ *http.Request) *Error {
	if s.o.Text == nil {
		return invalid("", "the model comes without a tokenizer")
	}
	info := map[string]any{"model_max_length": s.o.Backend.KVTokens()}
	for _, role := range []string{"bos_token", "eos_token", "pad_token"} {
		info[role] = nil
		if name, _, ok := s.o.Text.Named(role); ok {
			info[role] = name
		}
	}
	return writeJSON(w, http.StatusOK, info)
}
