package serve

import (
	"strconv"

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

// logprobs is the JSON of a choice's log-probabilities, of what has come of them and was not sent on.
type logprobs struct {
	s      *Server
	chat   bool
	tokens int
	offset int // in characters, from the beginning of the choice's text, of the next token's

	// lists without their brackets: /v1/chat/completions has one of objects
	content, names, chosen, top, offsets []byte
}

// add adds what has come.
func (l *logprobs) add(scores []score) {
	for _, at := range scores {
		if l.chat {
			l.addChat(at.of)
		} else {
			l.addText(at)
		}
		l.tokens++
	}
}

func (l *logprobs) addText(at score) {
	if l.tokens > 0 {
		l.names, l.chosen = append(l.names, ','), append(l.chosen, ',')
		l.top, l.offsets = append(l.top, ','), append(l.offsets, ',')
	}
	name := l.s.spelled(at.token)
	l.names = append(l.names, name.quoted...)
	if at.of == nil {
		l.chosen, l.top = append(l.chosen, "null"...), append(l.top, "null"...)
	} else {
		l.chosen, l.top = appendNumber(l.chosen, finite(at.of.Logprob.Logprob)), l.s.appendRanking(l.top, at.of)
	}
	l.offsets = strconv.AppendInt(l.offsets, int64(l.offset), 10)
	l.offset += name.shown
}

func (l *logprobs) addChat(of *sampling.Logprobs) {
	if l.tokens > 0 {
		l.content = append(l.content, ',')
	}
	l.content = append(l.s.appendToken(l.content, of.Logprob), `,"top_logprobs":[`...)
	for i, one := range of.Top {
		if i > 0 {
			l.content = append(l.content, ',')
		}
		l.content = append(l.s.appendToken(l.content, one), '}')
	}
	l.content = append(l.content, "]}"...)
}

// appendTo appends it, and begins anew behind it.
func (l *logprobs) appendTo(dst []byte) []byte {
	list := func(name string, of *[]byte) {
		dst = append(append(append(dst, name...), *of...), ']')
		*of = (*of)[:0]
	}
	if l.chat {
		list(`{"content":[`, &l.content)
	} else {
		list(`{"tokens":[`, &l.names)
		list(`,"token_logprobs":[`, &l.chosen)
		list(`,"top_logprobs":[`, &l.top)
		list(`,"text_offset":[`, &l.offsets)
	}
	l.tokens = 0
	return append(dst, '}')
}

// appendRanking appends an object of the most probable tokens and of the one that is there, in order. Of tokens that
// are spelled alike the first counts.
func (s *Server) appendRanking(dst []byte, l *sampling.Logprobs) []byte {
	names := make([]*spelled, 0, 1+sampling.MaxLogprobs)
	add := func(one sampling.Logprob) {
		name := s.spelled(one.Token)
		for _, before := range names {
			if before == name || before.name == name.name {
				return
			}
		}
		dst = append(append(append(dst, "{,"[min(len(names), 1)]), name.quoted...), ':')
		dst = appendNumber(dst, finite(one.Logprob))
		names = append(names, name)
	}
	for _, one := range l.Top {
		add(one)
	}
	add(l.Logprob)
	return append(dst, '}')
}

// appendToken appends a token of a chat and its log-probability, as an object that is still open.
func (s *Server) appendToken(dst []byte, l sampling.Logprob) []byte {
	name := s.spelled(l.Token)
	dst = append(append(append(dst, `{"token":`...), name.token...), `,"logprob":`...)
	dst = append(appendNumber(dst, finite(l.Logprob)), `,"bytes":`...)
	return append(dst, name.bytes...)
}
