package serve

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mkgen/mkgen/models/tokenizer"
)

// The defaults of Options.
const (
	DefaultQueue        = 256
	DefaultMaxBody      = 16 << 20
	DefaultBodyTimeout  = 30 * time.Second
	DefaultWriteTimeout = 30 * time.Second
	DefaultDrain        = 30 * time.Second
)

// Options are what a Server is made of.
type Options struct {
	Backend   Backend              // required; the caller closes it
	Text      *tokenizer.Tokenizer // nil where the model has none: then prompts are token ids and so is text
	Model     string               // required: the name that clients ask for
	Vocab     int                  // required: token ids are below it
	Sequences int                  // required: how many sequences the backend runs at a time
	Ends      []int                // tokens that end an answer; without any none is kept to a grammar

	Queue    int           // sequences that wait beside those that run; 0 for DefaultQueue, negative for none
	MaxBody  int64         // bytes of a request's body; 0 for DefaultMaxBody
	Key      string        // API key that clients must show, but for /health; "" for none
	Requests time.Duration // how long a request may take, its wait in the queue too; 0 for ever
	// BodyTimeout and WriteTimeout are how long a client may take to send its body, and to take
	// one write of the answer; 0 for the defaults.
	BodyTimeout, WriteTimeout time.Duration
	// how long requests may go on when Serve's context has ended; 0 for DefaultDrain
	Drain time.Duration
	Log   *slog.Logger // nil for none
}

// Server answers HTTP requests. It is an http.Handler, for any number of goroutines.
type Server struct {
	o        Options
	m        *metrics
	handler  http.Handler
	grammars *grammars
	names    spellings
	created  int64
	open     atomic.Int64 // sequences that run or wait
	draining atomic.Bool
	over     context.Context // ends when requests must
	end      context.CancelCauseFunc
}

// New makes a Server, or says which option is wrong.
func New(o Options) (*Server, error) {
	if o.Backend == nil || o.Model == "" || o.Vocab < 1 || o.Sequences < 1 {
		return nil, errors.New("serve: options: Backend, Model, Vocab and Sequences are required")
	}
	o.Queue = max(0, cmp.Or(o.Queue, DefaultQueue))
	o.MaxBody = cmp.Or(o.MaxBody, DefaultMaxBody)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, DefaultBodyTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, DefaultWriteTimeout)
	o.Drain = cmp.Or(o.Drain, DefaultDrain)
	if o.Requests < 0 || o.BodyTimeout < 0 || o.WriteTimeout < 0 || o.Drain < 0 || o.MaxBody < 0 {
		return nil, errors.New("serve: options: a limit is negative")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, created: time.Now().Unix(), names: make(spellings, o.Vocab)}
	s.over, s.end = context.WithCancelCause(context.Background())
	s.m = newMetrics(s)
	s.grammars = newGrammars(&s.o)
	s.handler = s.routes()
	return s, nil
}

// routes are the endpoints.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	on := func(method, path string, answer func(http.ResponseWriter, *http.Request) *Error) {
		mux.Handle(path, s.around(path, method, answer))
	}
	on("POST", "/v1/completions", s.generates(s.completion))
	on("POST", "/v1/chat/completions", s.generates(s.chatTask))
	on("GET", "/v1/models", s.models)
	on("GET", "/v1/models/{model...}", s.model)
	on("GET", "/server_info", s.info)
	on("POST", "/tokenize", s.tokenize)
	on("POST", "/detokenize", s.detokenize)
	on("GET", "/tokenizer_info", s.tokenizerInfo)
	on("GET", "/health", s.health)
	on("GET", "/metrics", s.m.write)
	on("", "/", func(_ http.ResponseWriter, r *http.Request) *Error {
		return &Error{http.StatusNotFound, "there is no " + quoted(r.URL.Path), "invalid_request_error", "", "not_found"}
	})
	return mux
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// generates answers with what a parsed body asks for.
func (s *Server) generates(parse func([]byte) (*task, *Error)) func(http.ResponseWriter, *http.Request) *Error {
	return func(w http.ResponseWriter, r *http.Request) *Error {
		if s.draining.Load() {
			return errDraining
		}
		body, err := s.read(w, r)
		if err != nil {
			return err
		}
		t, err := parse(body)
		if err != nil {
			return err
		}
		return s.generate(w, r, t)
	}
}

// health is 200 while requests are taken.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) *Error {
	if s.draining.Load() {
		return errDraining
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}
