package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mkgen/mkgen/engine/runtime"
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
// time is from the choice of the one before it, by the device's clock; the first
// of a launch has none, unless the launch chooses no other: then it has its.
type SessionRunner struct {
	Session   *runtime.Sequence
	Device    Device // the session's
	PerLaunch int    // how many tokens a launch chooses, at least 1
	Choice    Choice // how
}

// firstToken is what every round feeds first.
const firstToken = 1

// token is the i-th of those that are fed, of n.
func token(i, vocab int) int { return (firstToken + i) % vocab }

// Tokens decodes n tokens. The cache holds whatever it holds, FillKV's numbers
// say; no earlier token is fed.
func (r *SessionRunner) Tokens(ctx context.Context, cached, n int) (round Round, err error) {
	rules := r.Choice.rules(1, r.Session.Vocab())
	if err := errors.Join(r.Session.Skip(cached), r.Session.SetDraw(rules[0])); err != nil {
		return round, err
	}
	r.Session.SetNextMask(r.Choice.masks(rules))
	defer r.Session.SetNextMask(nil)
	begin := time.Now()
	next := []int{token(0, r.Session.Vocab())}
	for len(round.Chosen) < n {
		want := min(r.PerLaunch, n-len(round.Chosen))
		from := r.Session.Pos()
		chosen, err := r.Session.Stream(ctx, next, want, func(int) bool { return true })
		if err != nil {
			return round, err
		}
		if len(chosen) != want {
			return round, fmt.Errorf("a launch chose %d tokens, want %d", len(chosen), want)
		}
		round.Device += r.Device.Elapsed()
		stamps, err := r.Session.Times(from, want)
		if err != nil {
			return round, err
		}
		if want == 1 {
			round.Each = append(round.Each, r.Device.Elapsed())
		}
		round.Each = append(round.Each, apart(stamps)...)
		round.Chosen = append(round.Chosen, chosen...)
		next = chosen[want-1:]
	}
	round.Wall = time.Since(begin)
	return round, nil
}

// apart are the times between stamps, nanoseconds modulo 2³², of tokens chosen by
// one launch.
func apart(stamps []uint32) (each []time.Duration) {
	for i := 1; i < len(stamps); i++ {
		each = append(each, time.Duration(stamps[i]-stamps[i-1]))
	}
	return each
}

// kvBlock is how many bytes of synthetic KV are made; they repeat.
const kvBlock = 16 << 20

// FillKV fills bytes (even) of the buffer "kv" with synthetic keys and values, the
// same at every call: random signs, magnitudes from 0.5 to 1.
func FillKV(dev runtime.Device, bytes int64) error {
	return refillKV(dev, syntheticKV(bytes), 0, bytes)
}

// syntheticKV is what FillKV repeats in a cache of n bytes.
func syntheticKV(bytes int64) []byte {
	block := make([]byte, min(bytes, kvBlock))
	random := rand.New(rand.NewPCG(1, 2))
	for i := 0; i+8 <= len(block); i += 8 {
		binary.LittleEndian.PutUint64(block[i:], random.Uint64()&0x807f_807f_807f_807f|0x3f00_3f00_3f00_3f00)
	}
	return block
}

// refillKV writes what FillKV did to bytes of the cache from byte at on.
func refillKV(dev runtime.Device, block []byte, at, bytes int64) error {
	for end := at + bytes; at < end; {
		part := block[at%int64(len(block)):]
		part = part[:min(int64(len(part)), end-at)]
		if err := dev.Write("kv", at, part); err != nil {
			return err
		}
		at += int64(len(part))
	}
	return nil
}
