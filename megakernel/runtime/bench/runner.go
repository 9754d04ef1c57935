package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"sync/atomic"
	"time"

	"github.com/mkgen/mkgen/megakernel/runtime"
)

// Runner decodes at batch 1 for a measurement. Not safe for concurrent use.
type Runner interface {
	// Tokens decodes n tokens (at least 1) one after the other, the first with
	// cached tokens in the KV cache. The same call again must choose the same
	// tokens.
	Tokens(ctx context.Context, cached, n int) (Round, error)
}

// Round is what a Runner measured.
type Round struct {
	Device time.Duration   // by the device's clock, of all tokens together
	Wall   time.Duration   // by the host's, from asking for the first to having the last
	Each   []time.Duration // of each token, as far as the runner can tell
	Chosen []int           // the n tokens
}

// Device is a runtime.Device that knows how long its last launch took by its own
// clock.
type Device interface {
	runtime.Device
	Elapsed() time.Duration
}

// SessionRunner is the Runner over a session that has no end tokens. A token's
// time is from the arrival of the one before it at the host, or from asking for
// the first, to its own; tokens that the host finds at the same look share their
// time evenly.
type SessionRunner struct {
	Session   *runtime.Session
	Device    Device // the session's
	PerLaunch int    // how many tokens a launch chooses, at least 1
}

// firstToken is what every round feeds first.
const firstToken = 1

// Tokens decodes n tokens. The cache holds whatever it holds, FillKV's numbers
// say; no earlier token is fed.
func (r *SessionRunner) Tokens(ctx context.Context, cached, n int) (round Round, err error) {
	if err := r.Session.Skip(cached); err != nil {
		return round, err
	}
	defer keepAwake()()
	begin := time.Now()
	arrived := []time.Time{begin}
	next := []int{firstToken}
	for len(round.Chosen) < n {
		want := min(r.PerLaunch, n-len(round.Chosen))
		chosen, err := r.Session.Stream(ctx, next, want, func(int) bool {
			arrived = append(arrived, time.Now())
			return true
		})
		if err != nil {
			return round, err
		}
		if len(chosen) != want {
			return round, fmt.Errorf("a launch chose %d tokens, want %d", len(chosen), want)
		}
		round.Device += r.Device.Elapsed()
		round.Chosen = append(round.Chosen, chosen...)
		next = chosen[want-1:]
	}
	round.Wall = time.Since(begin)
	round.Each = apart(arrived)
	return round, nil
}

// sameLook is how close behind each other the host hands out tokens of one look.
const sameLook = 5 * time.Microsecond

// apart are the times between arrivals, of which the first is no token's. Tokens
// less than sameLook behind another were found at the same look.
func apart(arrived []time.Time) (each []time.Duration) {
	last := arrived[0]
	for i := 1; i < len(arrived); {
		end := i + 1
		for end < len(arrived) && arrived[end].Sub(arrived[end-1]) < sameLook {
			end++
		}
		for range end - i {
			each = append(each, arrived[i].Sub(last)/time.Duration(end-i))
		}
		last, i = arrived[i], end
	}
	return each
}

// keepAwake keeps one of Go's processors from sleeping until it is called off: an
// idle Go program notices its timers, by which a session looks for tokens, up to
// a millisecond late.
func keepAwake() (off func()) {
	var done atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !done.Load() {
			goruntime.Gosched()
		}
	}()
	return func() {
		done.Store(true)
		<-ended
	}
}

// kvBlock is how many bytes of synthetic KV are made; they repeat.
const kvBlock = 16 << 20

// FillKV fills bytes (even) of the buffer "kv" with synthetic keys and values, the
// same at every call: random signs, magnitudes from 0.5 to 1.
func FillKV(dev runtime.Device, bytes int64) error {
	block := make([]byte, min(bytes, kvBlock))
	random := rand.New(rand.NewPCG(1, 2))
	for i := 0; i+8 <= len(block); i += 8 {
		binary.LittleEndian.PutUint64(block[i:], random.Uint64()&0x807f_807f_807f_807f|0x3f00_3f00_3f00_3f00)
	}
	for at := int64(0); at < bytes; at += int64(len(block)) {
		if err := dev.Write("kv", at, block[:min(int64(len(block)), bytes-at)]); err != nil {
			return err
		}
	}
	return nil
}
