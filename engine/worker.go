package engine

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/kv"
)

// Engine answers requests, many at a time with a kernel of several rows. See the package's documentation for its
// life cycle. Any number of goroutines may ask it at once.
//
// Requests start in the order in which they are submitted, MaxSequences at a time,
// and each ends by itself. Those that begin with the same tokens share the pages of
// the KV cache that hold them, also with requests that have ended. What a request is
// given does not depend on what runs beside it, but for the rounding of sums that are
// cut otherwise, and with Options.Pin not at all.
type Engine struct {
	o     Options
	sched *batch.Scheduler // the worker's

	end    context.CancelFunc // of the worker
	left   chan struct{}      // closed when the worker has left
	err    error              // of releasing, once left is closed
	wake   chan struct{}      // has something when the worker has something to look at
	news   atomic.Bool        // there is something that may be worth ending a launch for
	closer func() error       // gives the device back
	loaded runtime.LoadStats

	mu     sync.Mutex
	closed bool
	inbox  []*Stream // submitted, unknown to the scheduler
	load   Load
}

// Load is how busy an Engine is.
type Load struct {
	Running, Queued int // requests
	Pages           int // of the KV cache, the guard aside
	Free            int // of these, pages that hold nothing
	Idle            int // and pages that hold only what ended requests have left
}

// newEngine is an Engine over a stepper that is there already; release is called when
// it ends.
func newEngine(o Options, st batch.Stepper, release func() error) (*Engine, error) {
	page := o.Kernel.KV.Page
	e := &Engine{o: o, left: make(chan struct{}), wake: make(chan struct{}, 1), closer: release}
	var err error
	drafts := 0
	if o.Lookup {
		drafts = LookupRows
	}
	e.sched, err = batch.New(batch.Options{Stepper: st, Pool: o.pool((o.KVTokens + page - 1) / page), Page: page,
		Vocab: o.Kernel.Config.Vocab, Positions: o.positions(), MaxSequences: o.MaxSequences,
		Piece: o.piece(st), Beside: o.PrefillChunk, Short: o.Kernel.Config.ShortPositions(),
		StepsPerLaunch: o.TokensPerLaunch, DraftRows: drafts, Interrupt: e.interrupt})
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	e.end = end
	e.note()
	go e.work(ctx)
	return e, nil
}

// positions is how many tokens a sequence has at most: the model's, and with Pin what the kernel has room for alone.
func (o *Options) positions() int {
	n := o.Kernel.Config.MaxPositions
	if o.Pin > 0 && slices.ContainsFunc(o.Kernel.Classes(), func(c kv.Class) bool { return c.Window == 0 }) {
		limits := o.Kernel.Limits(0)
		n = min(n, limits.PinnedTokens(o.Pin))
	}
	return n
}

// piece is the tokens of a prompt that a launch takes whole, with Pin: the largest power of
// two that it has room for, so that pages and pieces end together; else 0.
func (o *Options) piece(st batch.Stepper) int {
	if o.Pin == 0 {
		return 0
	}
	rows := st.Rows()
	if p, ok := st.(batch.Prefiller); ok {
		rows = max(rows, p.PrefillRows())
	}
	if o.PrefillChunk != nil {
		rows = min(rows, o.PrefillChunk(0, 0, false))
	}
	return 1 << (bits.Len(uint(rows)) - 1)
}

// KVTokens is how many tokens a sequence can have in the cache when it is alone.
func (e *Engine) KVTokens() int { return e.sched.Limit() }

// Load is how busy the batch was after its last launch, and after each request that
// has ended.
func (e *Engine) Load() Load {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.load
	l.Queued += len(e.inbox)
	return l
}

// Submit takes a request behind those before it and returns at once. The answer
// comes through the Stream, also what goes wrong with it; ctx is for all of it. A
// request that makes no sense is refused here, and every one after Close, with
// ErrClosed.
func (e *Engine) Submit(ctx context.Context, r Request) (*Stream, error) {
	start := time.Now()
	prompt, err := e.o.encode(&r)
	if err != nil {
		return nil, err
	}
	s := newStream(ctx, e, prompt, e.o.answer(&r, prompt, start))
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		s.cancel()
		return nil, ErrClosed
	}
	e.inbox = append(e.inbox, s)
	s.unwatch = context.AfterFunc(s.ctx, e.rouse)
	e.rouse()
	return s, nil
}

// Generate is Submit that waits for the answer. each (nil for none) is called for
// every piece, on the caller's goroutine; when it returns false the request ends soon,
// Cancelled and without an error: the result may have a few tokens more.
func (e *Engine) Generate(ctx context.Context, r Request, each func(Piece) bool) (Result, error) {
	s, err := e.Submit(ctx, r)
	if err != nil {
		return Result{}, err
	}
	defer s.Cancel() // should each panic
	for p := range s.Pieces() {
		if each != nil && !each(p) {
			s.Cancel()
			res, err := s.Wait()
			if res.Finish == Cancelled && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
				err = nil
			}
			return res, err
		}
	}
	return s.Wait()
}

// Close ends all requests with ErrClosed, waits for the launch that runs, and
// releases everything, the device too. A page that was not given back is an error. A
// second Close does nothing.
func (e *Engine) Close() error {
	e.mu.Lock()
	again := e.closed
	e.closed = true
	e.mu.Unlock()
	if again {
		return nil
	}
	e.end()
	<-e.left
	return e.err
}

// rouse lets the worker look at its inbox and at whose context has ended, soon.
func (e *Engine) rouse() {
	e.news.Store(true)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// interrupt says whether a launch should end for what has come.
func (e *Engine) interrupt() bool { return e.news.Load() }

// work steps as long as there are requests, until ctx ends.
func (e *Engine) work(ctx context.Context) {
	defer close(e.left)
	for ctx.Err() == nil {
		e.accept()
		if e.sched.Busy() {
			_ = e.sched.Step(ctx) // those it concerns were told
			e.note()
			continue
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
		}
	}
	e.accept()
	e.err = errors.Join(e.sched.Close(ErrClosed), e.closer())
	e.note()
}

// accept hands what was submitted to the scheduler.
func (e *Engine) accept() {
	e.mu.Lock()
	e.news.Store(false) // under the lock: what comes later makes news again
	came := e.inbox
	e.inbox = nil
	e.mu.Unlock()
	for _, s := range came {
		e.sched.Add(s.prompt, client{s})
	}
	e.note()
}

// note keeps for others how busy the scheduler is.
func (e *Engine) note() {
	running, queued := e.sched.Counts()
	free, idle, all := e.sched.Pages()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.load = Load{Running: running, Queued: queued, Pages: all, Free: free, Idle: idle}
}
