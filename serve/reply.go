package serve

import (
	"encoding/json"
	"net/http"
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

// choice is one entry of choices. Completions have Text, chats Message or, streamed, Delta.
type choice struct {
	Index    int      `json:"index"`
	Text     *string  `json:"text,omitempty"`
	Message  *message `json:"message,omitempty"`
	Delta    *message `json:"delta,omitempty"`
	Logprobs any      `json:"logprobs"`
	Finish   *string  `json:"finish_reason"`
}

type message struct {
	Role    string     `json:"role,omitempty"`
	Content *string    `json:"content,omitempty"`
	Calls   []toolCall `json:"tool_calls,omitempty"`
}

// body is an answer, or an event of one.
type body struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage"`
}

// reply makes the bodies of one answer.
type reply struct {
	t       *task
	c       *call
	choices int
	head    body
	next    []choice   // of the next body
	begun   []bool     // choices that have had their first text
	answers []answered // of each choice so far, where it may be a call
	offsets []int      // characters of each choice's tokens so far, where log-probabilities are wanted
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
	return &reply{t: t, c: c, choices: n, begun: make([]bool, n), offsets: make([]int, n), answers: make([]answered, n),
		s: s, head: body{ID: kind + c.id, Object: object, Created: c.start.Unix(), Model: s.o.Model}}
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

// add puts a choice's next text into the next body; why is nil while the choice goes on.
func (r *reply) add(i int, text string, scores []score, why *string) {
	c := choice{Index: i, Finish: why}
	switch {
	case !r.t.request.Logprobs:
	case r.t.chat:
		c.Logprobs = r.s.chatLogprobs(scores)
	default:
		c.Logprobs = r.s.completionLogprobs(scores, &r.offsets[i])
	}
	m := &message{Content: &text}
	if len(r.t.tools) > 0 {
		m = r.withCalls(i, text, &c)
	}
	switch {
	case !r.t.chat:
		c.Text = &text
	case !r.t.stream:
		m.Role = "assistant"
		c.Message = m
	default:
		if !r.begun[i] {
			m.Role = "assistant"
		}
		c.Delta = m
	}
	r.begun[i] = true
	r.next = append(r.next, c)
}

// body is the next body, with u (nil for null) as usage.
func (r *reply) body(u *usage) body {
	b := r.head
	b.Choices, b.Usage = r.next, u
	if b.Choices == nil {
		b.Choices = []choice{} // not null
	}
	r.next = nil
	return b
}

// usage is what was used so far; a prompt of n choices counts once. Reused tokens are known at a choice's end.
func (r *reply) usage() *usage {
	p, a := r.c.usage.Prompt, r.c.tokens
	return &usage{p, a, p + a, &promptDetails{r.c.usage.Reused}}
}

// writeJSON writes an answer as a whole.
func writeJSON(w http.ResponseWriter, status int, v any) *Error {
	data, err := json.Marshal(v)
	if err != nil {
		panic("BUG: an answer that is no JSON: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err != nil {
		return errGone
	}
	return nil
}
