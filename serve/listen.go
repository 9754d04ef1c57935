package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Serve answers connections of l until ctx ends, or until l fails. Then it takes no more, lets requests go on for
// Options.Drain, ends those that are left with an error that says so, and returns. It closes l, and is called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(s.o.Log.Handler(), slog.LevelWarn)}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	select {
	case err := <-failed:
		s.end(errDraining)
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	s.o.Log.Info("draining", "sequences", s.open.Load(), "most_seconds", s.o.Drain.Seconds())
	err := shutdown(h, s.o.Drain)
	s.end(errDraining)
	if errors.Is(err, context.DeadlineExceeded) {
		s.o.Log.Warn("ending requests", "sequences", s.open.Load())
		// Long enough to tell clients that read, beside one that does not.
		if err = shutdown(h, time.Second); errors.Is(err, context.DeadlineExceeded) {
			err = h.Close()
		}
	}
	return err
}

// shutdown waits for the requests of h for a while.
func shutdown(h *http.Server, most time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return h.Shutdown(ctx)
}
