package serve

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/engine"
)

// event is one token of a choice, or with end the last and how it ended.
type event struct {
	choice int
	token  bool    // there is a token in it
	text   string  // that may be shown
	scores []score // of the token, and with the first event of the prompt's, where they are wanted
	end    bool
	result engine.Result
	err    error
}

// start submits all choices of a task and returns the channel of what comes of them. Every choice
// sends events until its end; ctx must end when nobody receives any more.
func (s *Server) start(ctx context.Context, t *task) (<-chan event, *Error) {
	var answers []Answer
	for _, r := range t.choices() {
		a, err := s.o.Backend.Submit(ctx, r)
		if errors.Is(err, engine.ErrClosed) {
			return nil, errDraining
		} else if err != nil {
			return nil, failed(err)
		}
		answers = append(answers, a)
	}
	events := make(chan event)
	for i, a := range answers {
		go s.follow(ctx, t, i, a, events)
	}
	return events, nil
}

// follow sends what one answer gives, until its end or ctx's. Text that comes behind the last
// token joins it.
func (s *Server) follow(ctx context.Context, t *task, choice int, a Answer, to chan<- event) {
	last, first := event{choice: choice, end: true}, true
	for p, ok := a.Next(); ok; p, ok = a.Next() {
		e := event{choice: choice, token: p.Token != engine.NoToken, text: s.shown(p)}
		if t.none { // the token was needed for nothing but to have one
			e.token, e.text, p.Logprobs = false, "", nil
		}
		e.scores = t.scores(choice, p, first)
		first = false
		if p.Finish != "" || last.token || !e.token {
			last.token, last.text, last.scores = last.token || e.token, last.text+e.text, append(last.scores, e.scores...)
			continue
		}
		select {
		case to <- e:
		case <-ctx.Done():
		}
	}
	if last.result, last.err = a.Wait(); t.none {
		last.result.Finish = engine.Length
	}
	s.m.ended(last.result)
	select {
	case to <- last:
	case <-ctx.Done():
	}
}

// shown is the text of a piece; without a tokenizer the token's id.
func (s *Server) shown(p engine.Piece) string {
	if s.o.Text == nil && p.Token != engine.NoToken {
		return " " + strconv.Itoa(p.Token)
	}
	return p.Text
}

// textOf is the text of token ids.
func (s *Server) textOf(ids []int) string {
	if s.o.Text != nil {
		return s.o.Text.Decode(ids, true)
	}
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(" " + strconv.Itoa(id))
	}
	return b.String()
}

// finish is OpenAI's word for how a generation ended.
func finish(f engine.Finish) string {
	if f == engine.Length || f == engine.KVFull {
		return "length"
	}
	return "stop"
}

// refusal is the answer to a generation that failed; nil when it did not, or when it only had no more room.
func refusal(ctx context.Context, err error) *Error {
	var refused *Error
	var full *engine.FullError
	switch {
	case err == nil || errors.As(err, &full):
		return nil
	case errors.As(context.Cause(ctx), &refused):
		return refused
	case ctx.Err() != nil:
		return errGone
	case errors.Is(err, engine.ErrClosed):
		return errDraining
	}
	return failed(err)
}

// waitFor is the next event, or why there is none.
func waitFor(ctx context.Context, events <-chan event) (event, *Error) {
	select {
	case e := <-events:
		if e.end {
			return e, refusal(ctx, e.err)
		}
		return e, nil
	case <-ctx.Done():
		return event{}, refusal(ctx, ctx.Err())
	}
}

// generate answers a parsed request; w has not been written to.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, t *task) *Error {
	c := callOf(r.Context())
	choices := len(t.prompts) * t.n
	if err := s.admit(choices); err != nil {
		return err
	}
	defer s.dismiss(choices)
	ctx, cancel := s.limited(r.Context())
	defer cancel()
	c.stream, c.choices = t.stream, choices
	for _, p := range t.prompts {
		c.usage.Prompt += len(p.tokens)
	}
	reply := newReply(s, c, t)
	if t.none && !t.request.Logprobs {
		return s.nothing(w, reply)
	}
	events, err := s.start(ctx, t)
	if err != nil {
		return err
	}
	if t.stream {
		return s.streamed(ctx, w, reply, events)
	}
	return s.together(ctx, w, reply, events)
}

// together answers in one piece.
func (s *Server) together(ctx context.Context, w http.ResponseWriter, reply *reply, events <-chan event) *Error {
	texts := make([]strings.Builder, reply.choices)
	finishes := make([]string, reply.choices)
	for left := reply.choices; left > 0; {
		e, err := waitFor(ctx, events)
		if err != nil {
			return err
		}
		texts[e.choice].WriteString(e.text)
		reply.score(e.choice, e.scores) // while the next tokens come
		if reply.count(e); e.end {
			finishes[e.choice] = finish(e.result.Finish)
			left--
		}
	}
	for i := range texts {
		reply.add(i, reply.prefix(i)+texts[i].String(), &finishes[i])
	}
	return writeBody(w, http.StatusOK, reply.body(reply.usage()))
}

// nothing echoes prompts and generates no token.
func (s *Server) nothing(w http.ResponseWriter, reply *reply) *Error {
	length := "length"
	for i := range reply.choices {
		reply.add(i, reply.prefix(i), &length)
	}
	if !reply.t.stream {
		return writeBody(w, http.StatusOK, reply.body(reply.usage()))
	}
	e := newEvents(w)
	e.write(reply.body(nil))
	if reply.t.usage {
		e.write(reply.body(reply.usage()))
	}
	return e.done()
}
