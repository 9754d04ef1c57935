package serve

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// usage is OpenAI's object of that name.
type usage struct {
	Prompt  int            `json:"prompt_tokens"`
	Answer  int            `json:"completion_tokens"`
	Total   int            `json:"total_tokens"`
	Details *promptDetails `json:"prompt_tokens_details,omitempty"`
}

type promptDetails struct {
	Cached int `json:"cached_tokens"`
}

// message is what a chat's choice says.
type message struct {
	role    string // "" where it was said before
	content *string
	calls   []toolCall
}

func (m *message) appendTo(dst []byte) []byte {
	dst = append(dst, '{')
	if m.role != "" {
		dst = append(appendString(append(dst, `"role":`...), m.role), ',')
	}
	if dst = append(dst, `"content":`...); m.content == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, *m.content)
	}
	if len(m.calls) > 0 {
		dst = appendJSON(append(dst, `,"tool_calls":`...), m.calls)
	}
	return append(dst, '}')
}

// reply makes the bodies of one answer.
type reply struct {
	t       *task
	c       *call
	choices int
	head    []byte     // of each body
	next    []byte     // choices of the next body
	memory  []byte     // of the last one
	begun   []bool     // choices that have had their first text
	answers []answered // of each choice so far, where it may be a call
	scores  []logprobs // of each choice, where they are wanted
	s       *Server
}

func newReply(s *Server, c *call, t *task) *reply {
	kind, object := "cmpl-", "text_completion"
	if t.chat {
		kind, object = "chatcmpl-", "chat.completion"
		if t.stream {
			object += ".chunk"
		}
	}
	n := len(t.prompts) * t.n
	r := &reply{t: t, c: c, choices: n, begun: make([]bool, n), answers: make([]answered, n), s: s}
	r.head = appendString([]byte(`{"id":`), kind+c.id)
	r.head = appendString(append(r.head, `,"object":`...), object)
	r.head = strconv.AppendInt(append(r.head, `,"created":`...), c.start.Unix(), 10)
	r.head = append(appendString(append(r.head, `,"model":`...), s.o.Model), `,"choices":[`...)
	if t.request.Logprobs {
		r.scores = slices.Repeat([]logprobs{{s: s, chat: t.chat}}, n)
	}
	return r
}

// score adds what has come of a choice's log-probabilities.
func (r *reply) score(i int, scores []score) {
	if len(scores) > 0 {
		r.scores[i].add(scores)
	}
}

// count notes an event in what the request has used so far.
func (r *reply) count(e event) {
	if e.token {
		r.c.token(time.Now())
	}
	if e.end {
		if e.choice%r.t.n == 0 { // the other choices of a prompt find what the first has left
			r.c.usage.Reused += e.result.Usage.Reused
		}
		r.c.usage.Preempted += e.result.Usage.Preempted
	}
}

// prefix is what a choice's first text begins with: the prompt, with echo.
func (r *reply) prefix(i int) string {
	if r.begun[i] || !r.t.echo {
		return ""
	}
	return r.t.prompts[i/r.t.n].text
}

// add puts a choice's next text into the next body; why is nil while the choice goes on. In a stream an event of calls
// does not say why the choice ended, since OpenAI's client tells of their end at the next one: late is what that says.
func (r *reply) add(i int, text string, why *string) (late *string) {
	m := &message{content: &text}
	if len(r.t.tools) > 0 {
		if m, why = r.withCalls(i, text, why); r.t.stream && len(m.calls) > 0 {
			why, late = nil, why
		}
	}
	r.put(i, m, why)
	return late
}

// put puts a choice's message into the next body, with the scores that have come.
func (r *reply) put(i int, m *message, why *string) {
	if len(r.next) > 0 {
		r.next = append(r.next, ',')
	}
	if r.t.chat && !(r.t.stream && r.begun[i]) {
		m.role = "assistant"
	}
	r.begun[i] = true
	r.next = strconv.AppendInt(append(r.next, `{"index":`...), int64(i), 10)
	switch {
	case !r.t.chat:
		r.next = appendString(append(r.next, `,"text":`...), *m.content)
	case r.t.stream:
		r.next = m.appendTo(append(r.next, `,"delta":`...))
	default:
		r.next = m.appendTo(append(r.next, `,"message":`...))
	}
	if r.next = append(r.next, `,"logprobs":`...); r.scores == nil {
		r.next = append(r.next, "null"...)
	} else {
		r.next = r.scores[i].appendTo(r.next)
	}
	if r.next = append(r.next, `,"finish_reason":`...); why == nil {
		r.next = append(r.next, "null"...)
	} else {
		r.next = appendString(r.next, *why)
	}
	r.next = append(r.next, '}')
}

// body is the next body, with u (nil for null) as usage; valid until the next.
func (r *reply) body(u *usage) []byte {
	b := append(append(append(r.memory[:0], r.head...), r.next...), `],"usage":`...)
	b = append(appendJSON(b, u), '}')
	r.next, r.memory = r.next[:0], b
	return b
}

// usage is what was used so far; a prompt of n choices counts once. Reused tokens are known at a choice's end.
func (r *reply) usage() *usage {
	p, a := r.c.usage.Prompt, r.c.tokens
	return &usage{p, a, p + a, &promptDetails{r.c.usage.Reused}}
}

// writeJSON writes an answer as a whole.
func writeJSON(w http.ResponseWriter, status int, v any) *Error {
	return writeBody(w, status, appendJSON(nil, v))
}

// writeBody writes an answer that is JSON.
func writeBody(w http.ResponseWriter, status int, data []byte) *Error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err != nil {
		return errGone
	}
	return nil
}
