package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/serve"
	"github.com/spf13/cobra"
)

// serveFlags are what mkgen serve is told; what it has in common with mkgen run is run's.
type serveFlags struct {
	runFlags
	listen   string
	name     string
	keyFile  string
	queue    count
	maxBody  count
	requests patience
	drain    patience
	quiet    bool
}

// keyVariable is where the API key is found beside --api-key-file; a flag would show it to every user.
const keyVariable = "MKGEN_API_KEY"

// defaultServeRows is how many sequences run at a time where nothing is said.
const defaultServeRows = 8

// newServe is mkgen serve.
func newServe() *cobra.Command {
	s := serveFlags{runFlags: runFlags{device: defaultDevice, many: true, serves: true}, queue: serve.DefaultQueue,
		maxBody: serve.DefaultMaxBody, drain: patience(serve.DefaultDrain)}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer OpenAI's HTTP interface, on a GPU or on the CPU",
		Long: `serve answers /v1/completions, /v1/chat/completions, /v1/models, /tokenize,
/detokenize, /health and /metrics. As many sequences run at a time as a step has
rows (--rows); more wait, and beyond --queue they are refused with 429. The log
goes to standard error, a JSON object a line. SIGTERM or Ctrl-C lets what runs
come to its end for --drain; a second one ends the program at once.

Clients must show the API key that ` + keyVariable + ` or --api-key-file has, if
there is one.`,
		Example: `  mkgen serve --model tiny
  mkgen serve --checkpoint path/to/Llama-3.2-1B-Instruct --device cuda --rows 16 --listen 0.0.0.0:8000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.serve(cmd) },
	}
	f := cmd.Flags()
	s.choice.flags(cmd)
	s.machineFlag(cmd)
	s.weights.flags(cmd)
	s.engineFlags(f)
	f.StringVar(&s.listen, "listen", "127.0.0.1:8000", "`address` to listen on; port 0 takes a free one")
	f.StringVar(&s.name, "served-name", "", "`name` of the model for clients (default the model's own)")
	f.StringVar(&s.keyFile, "api-key-file", "", "`file` with the API key that clients must show")
	f.Var(&s.queue, "queue", "sequences that wait at most, beside those that run")
	f.Var(&s.maxBody, "max-body", "bytes of a request at most")
	f.Var(&s.requests, "request-timeout", "end a request after so long, 0 for never (default 0s)")
	f.Var(&s.drain, "drain", "how long requests may go on after SIGTERM")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "log warnings and errors only")
	f.BoolVarP(&s.verbose, "verbose", "v", false,
		"log requests for /health and /metrics, too, and print figures of loading")
	s.unsaid(f)
	return cmd
}

// serve does what the flags say.
func (s *serveFlags) serve(cmd *cobra.Command) error {
	key, err := s.key()
	if err != nil {
		return err
	}
	switch {
	case s.opts.Tokens == 0:
		s.opts.Tokens = defaultServeRows
	case s.opts.Tokens < 2:
		return usagef("serve goes with --rows of 2 to %d, found %d", kv.MaxRows, s.opts.Tokens)
	}
	if err := s.settle(cmd); err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", s.listen) // before the weights, which take a while to load
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	opened, err := s.open(ctx, cmd)
	if err != nil {
		return interrupted(ctx, errors.Join(err, l.Close()))
	}
	b := opened.Engine
	log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: s.level()}))
	server, err := serve.New(serve.Options{Backend: serve.FromEngine(b), Text: opened.tokenizer, Model: cmp.Or(s.name,
		opened.model.Name),
		Vocab: opened.model.Vocab, Ends: opened.model.EOS, Sequences: s.opts.Tokens, Queue: int(s.queue),
		MaxBody: int64(s.maxBody), Key: key,
		Requests: time.Duration(s.requests), Drain: cmp.Or(time.Duration(s.drain), math.MaxInt64), Log: log})
	if err != nil {
		return errors.Join(err, l.Close(), b.Close())
	}
	s.greet(cmd, log, l.Addr(), cmp.Or(s.name, opened.model.Name), key)
	return errors.Join(server.Serve(ctx, l), b.Close())
}

// greet says where the server is, and warns of one that anybody can reach.
func (s *serveFlags) greet(cmd *cobra.Command, log *slog.Logger, at net.Addr, model, key string) {
	fmt.Fprintf(cmd.ErrOrStderr(), "mkgen: %s at http://%s/v1\n", model, at)
	if tcp, ok := at.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && key == "" {
		log.Warn("anybody who reaches this address can use the server; give an API key", "address", at.String())
	}
}

// key is the API key, "" for none.
func (s *serveFlags) key() (string, error) {
	if s.keyFile == "" {
		return os.Getenv(keyVariable), nil
	}
	data, err := os.ReadFile(s.keyFile)
	if err != nil {
		return "", fmt.Errorf("--api-key-file: %w", err)
	}
	key := strings.TrimSpace(string(bytes.TrimPrefix(data, []byte("\ufeff"))))
	if key == "" || strings.ContainsAny(key, " \t\r\n") {
		return "", fmt.Errorf("--api-key-file %s: found no key or several words, want one word", s.keyFile)
	}
	return key, nil
}

func (s *serveFlags) level() slog.Level {
	switch {
	case s.quiet:
		return slog.LevelWarn
	case s.verbose:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
