package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"
)

// admit takes places for n sequences, or refuses the request: with 429 when others have them, with 400
// when there never are as many.
func (s *Server) admit(n int) *Error {
	all := int64(s.o.Sequences + s.o.Queue)
	if int64(n) > all {
		return invalid("n", "found %d sequences (prompts times n), want at most %d", n, all)
	}
	if s.open.Add(int64(n)) > all {
		s.open.Add(-int64(n))
		return &Error{http.StatusTooManyRequests, fmt.Sprintf("the queue is full: %d sequences run and %d wait at most",
			s.o.Sequences, s.o.Queue),
			"rate_limit_error", "", "queue_full"}
	}
	return nil
}

// dismiss gives places back.
func (s *Server) dismiss(n int) { s.open.Add(-int64(n)) }

// limited is the context of a generation: it ends with the client's connection, the time limit and the server.
func (s *Server) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(s.over, func() { cancel(context.Cause(s.over)) })
	var timer *time.Timer
	if s.o.Requests > 0 {
		timer = time.AfterFunc(s.o.Requests, func() { cancel(errTimeout) })
	}
	return ctx, func() {
		unwatch()
		if timer != nil {
			timer.Stop()
		}
		cancel(nil)
	}
}

// expected is how many bytes of a body have memory before they come: a client may send fewer than it says.
const expected = 256 << 10

// read reads a request's body, in the time and of the size that are allowed.
func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, *Error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, errMedia // which also keeps forms of other sites' pages out
	}
	// Not every ResponseWriter has deadlines; one that has none has no slow client either.
	deadlines := http.NewResponseController(w)
	_ = deadlines.SetReadDeadline(time.Now().Add(s.o.BodyTimeout))
	body := bytes.NewBuffer(make([]byte, 0, bytes.MinRead+min(max(0, r.ContentLength), expected)))
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, s.o.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", large.Limit),
			"invalid_request_error", "", "body_too_large"}
	case err != nil:
		return nil, &Error{http.StatusRequestTimeout, "the body did not come: " + err.Error(), "invalid_request_error", "",
			"body_incomplete"}
	}
	// From here on the connection is read only to see the client go.
	_ = deadlines.SetReadDeadline(time.Time{})
	return body.Bytes(), nil
}
