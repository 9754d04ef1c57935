package engine

import (
	"context"
	"sync"
)

// use lets one caller at a time in, and nobody after shut.
type use struct {
	mu     sync.Mutex
	now    *visit // who is in, or nil
	closed bool   // shut was called
}

// visit is what one caller does between enter and leave.
type visit struct {
	cancel  context.CancelCauseFunc
	calling bool // it is calling out: waiting for it might be waiting for oneself
	left    chan struct{}
	err     error // of releasing, once left is closed
}

// enter lets the caller in until leave. The context ends with ctx, and when
// somebody calls shut, which then is its cause: ErrClosed.
func (u *use) enter(ctx context.Context) (context.Context, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		return nil, ErrClosed
	case u.now != nil:
		return nil, ErrBusy
	}
	ctx, cancel := context.WithCancelCause(ctx)
	u.now = &visit{cancel: cancel, left: make(chan struct{})}
	return ctx, nil
}

// leave ends a visit, and releases when shut was called during it.
func (u *use) leave(release func() error) {
	u.mu.Lock()
	v, last := u.now, u.closed
	u.now = nil // with closed set, nobody enters any more
	u.mu.Unlock()
	v.cancel(nil)
	if last {
		v.err = release()
	}
	close(v.left)
}

// outside runs f, which may call anything.
func (u *use) outside(f func()) {
	u.set(true)
	defer u.set(false)
	f()
}

func (u *use) set(calling bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now.calling = calling
}

// shut lets nobody in from now on, ends a visit and waits for it, unless it is
// calling out. It releases, or lets the visitor do it. The second call does
// nothing.
func (u *use) shut(release func() error) error {
	u.mu.Lock()
	v, again := u.now, u.closed
	u.closed = true
	calling := v != nil && v.calling
	u.mu.Unlock()
	switch {
	case again:
		return nil
	case v == nil:
		return release()
	}
	v.cancel(ErrClosed)
	if calling {
		return nil
	}
	<-v.left
	return v.err
}
