package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// site is the server.
type site struct {
	url, key string // url ends with /v1
	client   *http.Client
}

var errFull = errors.New("the queue is full")

// answer is what came for a request.
type answer struct {
	Text     string
	Finish   string
	Tokens   int
	Events   int       // of a stream that have a choice
	Logprobs []float64 // of the answer's and, with echo, the prompt's tokens; the first one's of a prompt is absent
}

// completion is a whole answer, or an event of a stream.
type completion struct {
	Choices []struct {
		Text     string
		Finish   string `json:"finish_reason"`
		Logprobs *struct {
			Of []*float64 `json:"token_logprobs"`
		}
	}
	Usage *struct {
		Answer int `json:"completion_tokens"`
	}
	Error *struct{ Message string }
}

func (a *answer) add(c completion) error {
	if c.Error != nil {
		return errors.New(c.Error.Message)
	}
	if c.Usage != nil {
		a.Tokens = c.Usage.Answer
	}
	for _, choice := range c.Choices {
		a.Text += choice.Text
		a.Events++
		if choice.Finish != "" {
			a.Finish = choice.Finish
		}
		if choice.Logprobs != nil {
			for _, p := range choice.Logprobs.Of {
				if p != nil {
					a.Logprobs = append(a.Logprobs, *p)
				}
			}
		}
	}
	return nil
}

// ask sends a request, and checks the answer against it.
func (s *site) ask(ctx context.Context, q request) (a answer, err error) {
	body, err := json.Marshal(q.body)
	if err != nil {
		return a, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/completions", bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	id := fmt.Sprintf("soak-%d", q.number)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Request-Id", id)
	if s.key != "" {
		r.Header.Set("Authorization", "Bearer "+s.key)
	}
	got, err := s.client.Do(r)
	if err != nil {
		return a, err
	}
	defer got.Body.Close()
	data, err := io.ReadAll(got.Body)
	switch {
	case err != nil:
		return a, err
	case got.StatusCode == http.StatusTooManyRequests:
		return a, errFull
	case got.StatusCode != http.StatusOK:
		return a, fmt.Errorf("status %d: %s", got.StatusCode, data)
	case got.Header.Get("X-Request-Id") != id:
		return a, fmt.Errorf("the id is %q, want %q", got.Header.Get("X-Request-Id"), id)
	}
	if err := a.read(q, data); err != nil {
		return a, err
	}
	return a, a.check(q)
}

// read reads a whole answer or the events of a stream.
func (a *answer) read(q request, data []byte) error {
	var c completion
	if !q.stream {
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("%w: %s", err, data)
		}
		return a.add(c)
	}
	done := false
	for line := range strings.Lines(string(data)) {
		event, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok {
			continue
		}
		if done = event == "[DONE]"; done {
			continue
		}
		c = completion{}
		if err := json.Unmarshal([]byte(event), &c); err != nil {
			return fmt.Errorf("%w: %s", err, event)
		}
		if err := a.add(c); err != nil {
			return err
		}
	}
	if !done {
		return errors.New("the stream ends without [DONE]")
	}
	return nil
}

// check holds an answer against its request: the mark, the length, why it ended, and its form.
func (a *answer) check(q request) error {
	switch text := a.Text; {
	case q.echo && !strings.HasPrefix(text, q.prompt):
		return fmt.Errorf("it begins with %.80q, want its prompt %.80q", text, q.prompt)
	case q.whole && (a.Tokens != q.most || a.Finish != "length"):
		return fmt.Errorf("%d tokens that end by %q, want %d by length", a.Tokens, a.Finish, q.most)
	case a.Tokens > q.most || a.Finish != "stop" && (a.Finish != "length" || a.Tokens != q.most):
		return fmt.Errorf("%d tokens that end by %q, want at most %d", a.Tokens, a.Finish, q.most)
	case q.stream && q.whole && !q.echo && a.Events != a.Tokens:
		return fmt.Errorf("%d events of %d tokens, want one for each", a.Events, a.Tokens)
	case q.schema && a.Finish == "stop":
		if q.echo {
			text = text[len(q.prompt):]
		}
		var value struct {
			Name *string
			Ages []int
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&value); err != nil || value.Name == nil || value.Ages == nil || len(value.Ages) > 4 {
			return fmt.Errorf("it does not fit its schema (%v): %q", err, text)
		}
	}
	return nil
}

// metric is a figure of /metrics.
func (s *site) metrics() (map[string]float64, error) {
	got, err := s.client.Get(strings.TrimSuffix(s.url, "/v1") + "/metrics")
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	data, err := io.ReadAll(got.Body)
	if err != nil {
		return nil, err
	}
	if got.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %s; a key is taken from %s", got.Status, keyVariable)
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(data)) {
		var value float64
		name, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := fmt.Sscan(rest, &value); ok && err == nil && !strings.HasPrefix(line, "#") {
			all[name] = value
		}
	}
	return all, nil
}

const keyVariable = "MKGEN_API_KEY"

func newSite(url string, connections int) *site {
	return &site{url: strings.TrimSuffix(url, "/"), key: os.Getenv(keyVariable), client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: connections}}}
}
