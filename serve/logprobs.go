package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/sampling"
)

// score is a token and its log-probabilities; nil for the prompt's first token, which follows nothing.
type score struct {
	token int
	of    *sampling.Logprobs
}

// scores are those that come with a piece of a choice: with the first one the prompt's, then its own.
func (t *task) scores(choice int, p engine.Piece, first bool) (all []score) {
	if first && t.request.PromptLogprobs {
		all = append(all, score{token: t.prompts[choice/t.n].tokens[0]})
	}
	for i := range p.PromptLogprobs {
		all = append(all, score{p.PromptLogprobs[i].Token, &p.PromptLogprobs[i]})
	}
	if p.Logprobs != nil {
		all = append(all, score{p.Token, p.Logprobs})
	}
	return all
}

// finite keeps a log-probability a number of JSON, as OpenAI does.
func finite(x float64) float64 { return max(x, -9999) }

// spelling is a token's text; what is no text alone is spelled in bytes.
func (s *Server) spelling(token int) string {
	if s.o.Text == nil {
		return s.textOf([]int{token})
	}
	b, _ := s.o.Text.Bytes(token)
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	out.WriteString("bytes:")
	for _, x := range b {
		fmt.Fprintf(&out, `\x%02x`, x)
	}
	return out.String()
}

// completionLogprobs is logprobs of a choice of /v1/completions.
type completionLogprobs struct {
	Tokens  []string   `json:"tokens"`
	Chosen  []*float64 `json:"token_logprobs"`
	Top     []*ranking `json:"top_logprobs"`
	Offsets []int      `json:"text_offset"` // in characters, from the beginning of the choice's text
}

// completionLogprobs makes it of what has come of a choice; offset is moved behind it.
func (s *Server) completionLogprobs(scores []score, offset *int) *completionLogprobs {
	all := &completionLogprobs{[]string{}, []*float64{}, []*ranking{}, []int{}}
	for _, at := range scores {
		name := s.spelling(at.token)
		var chosen *float64
		var top *ranking
		if at.of != nil {
			x := finite(at.of.Logprob.Logprob)
			chosen, top = &x, s.ranking(at.of)
		}
		all.Tokens, all.Chosen = append(all.Tokens, name), append(all.Chosen, chosen)
		all.Top, all.Offsets = append(all.Top, top), append(all.Offsets, *offset)
		*offset += utf8.RuneCountInString(name)
	}
	return all
}

// ranking is an object of tokens and their log-probabilities, in order.
type ranking []namedLogprob

type namedLogprob struct {
	name    string
	logprob float64
}

// ranking is of the most probable tokens and of the one that is there. Of tokens that are spelled alike the first
// counts.
func (s *Server) ranking(l *sampling.Logprobs) *ranking {
	all := ranking{}
	for _, one := range append(slices.Clone(l.Top), l.Logprob) {
		name := s.spelling(one.Token)
		if !slices.ContainsFunc(all, func(n namedLogprob) bool { return n.name == name }) {
			all = append(all, namedLogprob{name, finite(one.Logprob)})
		}
	}
	return &all
}

// MarshalJSON keeps the order, which a map would not.
func (r ranking) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	for i, one := range r {
		name, err := json.Marshal(one.name)
		if err != nil {
			return nil, err
		}
		number, err := json.Marshal(one.logprob)
		if err != nil {
			return nil, err
		}
		out.WriteByte("{,"[min(i, 1)])
		out.Write(append(append(name, ':'), number...))
	}
	if len(r) == 0 {
		out.WriteByte('{')
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// chatLogprobs is logprobs of a choice of /v1/chat/completions.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func (s *Server) chatLogprobs(scores []score) *chatLogprobs {
	all := &chatLogprobs{Content: []chatLogprob{}}
	for _, at := range scores {
		one := chatLogprob{s.tokenLogprob(at.of.Logprob), []tokenLogprob{}}
		for _, l := range at.of.Top {
			one.Top = append(one.Top, s.tokenLogprob(l))
		}
		all.Content = append(all.Content, one)
	}
	return all
}

func (s *Server) tokenLogprob(l sampling.Logprob) tokenLogprob {
	text, _ := s.o.Text.Bytes(l.Token) // chats need a tokenizer
	one := tokenLogprob{strings.ToValidUTF8(string(text), "\ufffd"), finite(l.Logprob), make([]int, len(text))}
	for i, b := range text {
		one.Bytes[i] = int(b)
	}
	return one
}
