package serve

import (
	"context"
	"net/http"
)

// events writes server-sent events. After the first error it writes nothing.
type events struct {
	w    http.ResponseWriter
	out  *http.ResponseController
	err  error
	sent bool

	memory []byte // of an event
}

func newEvents(w http.ResponseWriter) *events {
	return &events{w: w, out: http.NewResponseController(w)}
}

// write writes JSON as one event and flushes it.
func (e *events) write(data []byte) {
	if !e.sent {
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no") // proxies are to pass events on at once
		e.sent = true
	}
	if e.err == nil {
		e.memory = append(append(append(e.memory[:0], "data: "...), data...), "\n\n"...)
		_, e.err = e.w.Write(e.memory)
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

// streamed answers with one event a token; the last of a choice says how it ended. A choice of calls says so in an
// event of its own, behind that of the calls. A failure before the first event is an ordinary error, after it an event.
func (s *Server) streamed(ctx context.Context, w http.ResponseWriter, reply *reply, from <-chan event) *Error {
	out := newEvents(w)
	for left := reply.choices; left > 0; {
		e, err := waitFor(ctx, from)
		if err != nil {
			if out.sent {
				out.write(appendJSON(nil, err))
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
		reply.score(e.choice, e.scores)
		var u *usage
		if reply.t.continuousUsage {
			u = reply.usage()
		}
		late := reply.add(e.choice, reply.prefix(e.choice)+e.text, why)
		if out.write(reply.body(u)); late != nil {
			reply.put(e.choice, &message{}, late)
			out.write(reply.body(u))
		}
		if out.err != nil {
			return errGone
		}
	}
	if reply.t.usage {
		out.write(reply.body(reply.usage()))
	}
	return out.done()
}
