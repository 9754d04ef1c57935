package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/mkgen/mkgen/engine"
)

// call is what is noted of a request.
type call struct {
	id      string
	start   time.Time
	stream  bool
	choices int
	usage   engine.Usage // prompt tokens, and sums over the choices
	tokens  int          // chosen, of all choices
	first   time.Time    // when the first was sent on
	m       *metrics
	last    time.Time // when the latest was
}

// token notes a token.
func (c *call) token(now time.Time) {
	if c.tokens++; c.tokens == 1 {
		c.first = now
		c.m.first.Observe(now.Sub(c.start).Seconds())
	} else if c.choices == 1 {
		c.m.between.Observe(now.Sub(c.last).Seconds())
	}
	c.last = now
	c.m.answerTokens.Inc()
}

type callKey struct{}

// callOf is the call of a request's context.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// writer remembers the status, and gives the client so long for every write.
type writer struct {
	http.ResponseWriter
	status  int
	patient time.Duration
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	// An error says that there are no deadlines.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.patient))
	return w.ResponseWriter.Write(data)
}

// around does for every endpoint what all have in common: the request's id, the method, the key, errors, the log
// and the metrics. method "" is any.
func (s *Server) around(path, method string, answer func(http.ResponseWriter, *http.Request) *Error) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c := &call{id: requestID(r.Header.Get("X-Request-Id")), start: time.Now(), m: s.m}
		w := &writer{ResponseWriter: rw, patient: s.o.WriteTimeout}
		w.Header().Set("X-Request-Id", c.id)
		err := failed(errPanicked)
		defer func() {
			if p := recover(); p != nil {
				s.o.Log.Error("panic", "id", c.id, "panic", p, "stack", string(debug.Stack()))
			}
			s.conclude(w, r, path, c, err)
		}()
		err = s.allowed(r, path, method)
		if err == nil {
			err = answer(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
		}
	})
}

// allowed refuses a wrong method and a wrong key.
func (s *Server) allowed(r *http.Request, path, method string) *Error {
	if path != "/health" && s.o.Key != "" {
		scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		ok := strings.EqualFold(scheme, "Bearer")                                // RFC 9110, 11.1
		have, want := sha256.Sum256([]byte(key)), sha256.Sum256([]byte(s.o.Key)) // of equal length, whatever the key's is
		if subtle.ConstantTimeCompare(have[:], want[:]) != 1 || !ok {
			return errKey
		}
	}
	if method != "" && r.Method != method && !(method == http.MethodGet && r.Method == http.MethodHead) {
		return &Error{http.StatusMethodNotAllowed, "found the method " + quoted(r.Method) + ", want " + method,
			"invalid_request_error", "", "method_not_allowed"}
	}
	return nil
}

// conclude writes the error, if there is one that the client can still be told, and notes the request.
func (s *Server) conclude(w *writer, r *http.Request, path string, c *call, err *Error) {
	status := w.status
	if err != nil {
		status = err.Status
		if w.status == 0 && err != errGone {
			if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
				w.Header().Set("Retry-After", "1")
			}
			if gone := writeJSON(w, status, err); gone != nil {
				status = statusGone
			}
		}
	}
	took := time.Since(c.start)
	s.m.request(path, status, c, took)
	s.log(r, status, c, took, err)
}

// log writes a line for a request; no text of it or of the answer is in the line.
func (s *Server) log(r *http.Request, status int, c *call, took time.Duration, err *Error) {
	level := slog.LevelInfo
	switch {
	case status >= 500:
		level = slog.LevelError
	case r.URL.Path == "/health" || r.URL.Path == "/metrics":
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{slog.String("id", c.id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", status),
		slog.String("client", r.RemoteAddr), slog.Float64("seconds", took.Seconds())}
	if c.choices > 0 {
		attrs = append(attrs, slog.Bool("stream", c.stream), slog.Int("choices", c.choices), slog.Int("prompt_tokens",
			c.usage.Prompt),
			slog.Int("cached_tokens", c.usage.Reused), slog.Int("tokens", c.tokens), slog.Int("preempted", c.usage.Preempted))
	}
	if c.tokens > 0 {
		attrs = append(attrs, slog.Float64("first_token_seconds", c.first.Sub(c.start).Seconds()))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Message))
	}
	s.o.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// requestID is the client's id for a request, where that is short and plain, else a new one.
func requestID(given string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
	}
	if given != "" && len(given) <= 128 && strings.IndexFunc(given, func(r rune) bool { return !plain(r) }) < 0 {
		return given
	}
	return strings.ToLower(rand.Text())
}
