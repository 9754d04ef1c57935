package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/stretchr/testify/require"
)

// soaked is a request and what it gives alone.
type soaked struct {
	body  string
	alone string
}

// Many clients at once, with more requests than the queue takes, of which some leave in the middle: every answer that
// comes is
// that of its request alone, to the character, and in the end no row, page, place or goroutine is missing.
func TestSoak(t *testing.T) {
	b, o := tiny(t)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	before := runtime.NumGoroutine()
	s := listening(t, o, func(o *Options) { o.Queue = 4 })
	random := rand.New(rand.NewPCG(3, 4))
	var requests []soaked
	for i := range 24 {
		body := map[string]any{"prompt": strings.Repeat("The dog ran. ", random.IntN(4)) + fmt.Sprint("Once ", i),
			"max_tokens":  1 + random.IntN(12),
			"temperature": []float64{0, 0.8, 1.5}[i%3], "seed": i, "top_p": 0.95, "ignore_eos": i%4 == 0, "stream": false}
		if i%5 == 0 {
			body["stop"] = []string{"e"}
		}
		switch i % 6 { // what the host chooses for
		case 1:
			body["logprobs"], body["echo"] = 2, true
		case 3:
			body["frequency_penalty"], body["logit_bias"] = 1.5, map[string]int{"65": 3}
		case 5:
			body["response_format"] = json.RawMessage(`{"type":"json_schema","json_schema":{"schema":` + petSchema + `}}`)
		}
		data, err := json.Marshal(body)
		require.NoError(t, err)
		requests = append(requests, soaked{string(data), *s.must("/v1/completions", string(data)).Choices[0].Text})
	}
	var answered, refused, left atomic.Int64
	var all sync.WaitGroup
	for client := range uint64(12) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(client, 9))
			for range deep.Count(40, 6) {
				one := requests[r.IntN(len(requests))]
				leave := time.Duration(0)
				if r.IntN(4) == 0 {
					leave = time.Duration(r.IntN(100)) * time.Millisecond
				}
				switch err := s.soak(one, r.IntN(2) == 0, leave); {
				case err == nil:
					answered.Add(1)
				case err == errFull:
					refused.Add(1)
					time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
				case leave > 0 && strings.Contains(err.Error(), context.DeadlineExceeded.Error()):
					left.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d answered, %d refused, %d left", answered.Load(), refused.Load(), left.Load())
	require.Positive(t, answered.Load())
	require.Positive(t, refused.Load())
	require.Positive(t, left.Load())
	eventually(t, func() bool {
		l := b.Load()
		return s.open.Load() == 0 && l.Running+l.Queued == 0 && l.Free+l.Idle == l.Pages
	})
	http.DefaultClient.CloseIdleConnections()
	eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }) // the listener's
}

var errFull = fmt.Errorf("the queue is full")

// soak asks and compares; leave other than 0 is when the client goes.
func (s *site) soak(one soaked, stream bool, leave time.Duration) error {
	ctx, cancel := context.Background(), func() {}
	if leave > 0 {
		ctx, cancel = context.WithTimeout(ctx, leave)
	}
	defer cancel()
	body := one.body
	if stream {
		body = strings.Replace(body, `"stream":false`, `"stream":true`, 1)
	}
	r, err := s.post(ctx, body)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		return err
	case r.StatusCode == http.StatusTooManyRequests:
		return errFull
	case r.StatusCode != http.StatusOK:
		return fmt.Errorf("%d: %s", r.StatusCode, data)
	}
	text := ""
	if stream {
		for _, e := range eventsOf(s.t, string(data)) {
			text += *e.Choices[0].Text
		}
	} else {
		text = *read(s.t, string(data)).Choices[0].Text
	}
	if text != one.alone {
		return fmt.Errorf("%s gave %q, alone %q", one.body, text, one.alone)
	}
	return nil
}
