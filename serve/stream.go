package serve

import (
	"context"
	"encoding/json"
	"net/http"
)

// events writes server-sent events. After the first error it writes nothing.
type events struct {
	w    http.ResponseWriter
	out  *http.ResponseController
	err  error
	sent bool
}

func newEvents(w http.ResponseWriter) *events {
	return &events{w: w, out: http.NewResponseController(w)}
}

// send writes a value as one event and flushes it.
func (e *events) send(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic("BUG: an event that is no JSON: " + err.Error())
	}
	e.write(data)
}

func (e *events) write(data []byte) {
	if !e.sent {
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // proxies are to pass events on at once
		e.sent = true
	}
	if e.err == nil {
		_, e.err = e.w.Write(append(append([]byte("data: "), data...), "\n\n"...))
	}
	if e.err == nil {
		e.err = e.out.Flush()
	}
}

// done ends the stream.
func (e *events) done() *Error {
	e.write([]byte("[DONE]"))
	if e.err != nil {
		return errGone
	}
	return nil
}

// streamed answers with one event a token; the last of a choice says how it ended. A failure before the first
// event is an ordinary error, after it an event.
func (s *Server) streamed(ctx context.Context, w http.ResponseWriter, reply *reply, from <-chan event) *Error {
	out := newEvents(w)
	for left := reply.choices; left > 0; {
		e, err := waitFor(ctx, from)
		if err != nil {
			if out.sent {
				out.send(err)
				out.done()
			}
			return err
		}
		reply.count(e)
		var why *string
		if e.end {
			f := finish(e.result.Finish)
			why = &f
			left--
		}
		reply.add(e.choice, reply.prefix(e.choice)+e.text, e.scores, why)
		var u *usage
		if reply.t.continuousUsage {
			u = reply.usage()
		}
		if out.send(reply.body(u)); out.err != nil {
			return errGone
		}
	}
	if reply.t.usage {
		out.send(reply.body(reply.usage()))
	}
	return out.done()
}
