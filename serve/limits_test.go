package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mkgen/mkgen/engine"
	"github.com/stretchr/testify/require"
)

// soon is how long something may take that should come at once.
const soon = 10 * time.Second

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	require.Eventually(t, is, soon, time.Millisecond)
}

// held is a fake whose answers are n tokens long and take one each time something is sent to hold.
func held(t *testing.T, n int) *fake {
	f := newFake(t, func(engine.Request) []engine.Piece {
		return script(strings.Split(strings.Repeat("x ", n-1)+"x", " ")...)
	})
	f.hold = make(chan struct{})
	return f
}

// post begins a request that ctx may end.
func (s *site) post(ctx context.Context, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(r)
}

const one = `{"prompt":[1],"max_tokens":3}`

func TestAFullQueueIsRefusedAndEmptiesAgain(t *testing.T) {
	f := held(t, 2)
	s := listening(t, f.options(), nil)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			r, err := s.post(context.Background(), one)
			if err != nil || r.StatusCode != http.StatusOK {
				t.Error(r, err)
			}
		})
	}
	eventually(t, func() bool { return f.running() == 3 })
	status, data := s.ask("/v1/completions", one)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Equal(t, "queue_full", *read(t, data).Error.Code)
	status, data = s.ask("/v1/completions", `{"prompt":[1],"n":4}`)
	require.Equal(t, http.StatusBadRequest, status, data) // never fits
	close(f.hold)
	all.Wait()
	eventually(t, func() bool { return s.open.Load() == 0 })
	s.must("/v1/completions", one)
}

func TestAClientThatLeavesEndsItsSequences(t *testing.T) {
	for _, stream := range []string{"", `,"stream":true`} {
		f := held(t, 5)
		s := listening(t, f.options(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			if r, err := s.post(ctx, `{"prompt":[1],"n":2`+stream+`}`); err == nil {
				_, _ = io.Copy(io.Discard, r.Body)
			}
		}()
		f.hold <- struct{}{}
		eventually(t, func() bool { return f.running() == 2 })
		cancel()
		eventually(t, func() bool { return f.running() == 0 && s.open.Load() == 0 })
		<-left
	}
}

// On the executor: the rows of a client that leaves are free while another sequence goes on.
func TestAClientThatLeavesFreesItsRows(t *testing.T) {
	s := onTiny(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.post(ctx, `{"prompt":"Once","max_tokens":200,"temperature":0,"ignore_eos":true,"stream":true}`)
	require.NoError(t, err)
	_, err = bufio.NewReader(r.Body).ReadString('\n') // it runs
	require.NoError(t, err)
	require.Equal(t, 1, shared.Load().Running)
	cancel()
	eventually(t, func() bool { l := shared.Load(); return l.Running == 0 && l.Free+l.Idle == l.Pages })
}

// A client that reads nothing at all stops at its connection's buffers; others go on, and it loses its request.
func TestASlowReaderHoldsNobodyUpAndIsGivenUp(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	f := newFake(t, func(r engine.Request) []engine.Piece {
		if r.Tokens[0] == 2 {
			return script("quick")
		}
		return script(strings.Split(strings.Repeat(big+" ", 40), " ")...)
	})
	s := listening(t, f.options(), func(o *Options) { o.WriteTimeout = 300 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	body := `{"prompt":[1],"stream":true}`
	_, err = io.WriteString(conn,
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n"+body)
	require.NoError(t, err)
	eventually(t, func() bool { return f.running() == 1 })
	require.Equal(t, "quick", *s.must("/v1/completions", `{"prompt":[2]}`).Choices[0].Text)
	eventually(t, func() bool { return f.running() == 0 && s.open.Load() == 0 })
}

func TestARequestThatTakesTooLongEnds(t *testing.T) {
	f := held(t, 5)
	s := listening(t, f.options(), func(o *Options) { o.Requests = 50 * time.Millisecond })
	status, data := s.ask("/v1/completions", one)
	require.Equal(t, http.StatusGatewayTimeout, status)
	require.Equal(t, "timeout", *read(t, data).Error.Code)
	eventually(t, func() bool { return f.running() == 0 })
}

func TestAFailureIsAnErrorOrAnEvent(t *testing.T) {
	f := newFake(t, func(engine.Request) []engine.Piece { return []engine.Piece{{Text: "a"}} })
	f.fail = errors.New("the launch failed")
	s := listening(t, f.options(), nil)
	status, data := s.ask("/v1/completions", one)
	require.Equal(t, http.StatusInternalServerError, status)
	require.Equal(t, "the launch failed", read(t, data).Error.Message)
	status, data = s.ask("/v1/completions", `{"prompt":[1],"stream":true}`)
	require.Equal(t, http.StatusOK, status) // the first token was there before
	events := eventsOf(t, data)
	require.Equal(t, "the launch failed", events[len(events)-1].Error.Message)
}

func TestABodyThatIsTooLargeIsRefused(t *testing.T) {
	s := listening(t, held(t, 1).options(), func(o *Options) { o.MaxBody = 100 })
	status, data := s.ask("/v1/completions", `{"prompt":"`+strings.Repeat("x", 100)+`"}`)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Equal(t, "body_too_large", *read(t, data).Error.Code)
}

func TestABodyThatDoesNotComeIsGivenUp(t *testing.T) {
	s := listening(t, held(t, 1).options(), func(o *Options) { o.BodyTimeout = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn,
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n{")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(soon)))
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "408")
}

// A body's time limit ends with the body: an answer may take longer.
func TestAnAnswerMayTakeLongerThanABody(t *testing.T) {
	f := held(t, 2)
	s := listening(t, f.options(), func(o *Options) { o.BodyTimeout = 20 * time.Millisecond })
	go func() {
		for range 2 {
			time.Sleep(50 * time.Millisecond)
			f.hold <- struct{}{}
		}
	}()
	require.Equal(t, "xx", *s.must("/v1/completions", one).Choices[0].Text)
}

func TestOnlyTheKeyOpens(t *testing.T) {
	s := listening(t, newFake(t, func(engine.Request) []engine.Piece { return script("a") }).options(),
		func(o *Options) { o.Key = "sesame" })
	for key, want := range map[string]int{"": 401, "Bearer ": 401, "Bearer sesam": 401, "sesame": 401,
		"Bearer sesame": 200, "bearer sesame": 200, "Basic sesame": 401} {
		for _, path := range []string{"/v1/models", "/metrics"} {
			r, err := http.NewRequest(http.MethodGet, s.url+path, nil)
			require.NoError(t, err)
			r.Header.Set("Authorization", key)
			got, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, got.Body.Close())
			require.Equal(t, want, got.StatusCode, "%q %s", key, path)
		}
	}
	status, _ := s.ask("/v1/completions", one)
	require.Equal(t, http.StatusUnauthorized, status)
	r, err := http.Get(s.url + "/health")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusOK, r.StatusCode)
}

// serving starts Serve on a port of its own.
func serving(t *testing.T, o Options) (s *site, stop context.CancelFunc, done <-chan error) {
	t.Helper()
	server, err := New(o)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()
	return &site{t, "http://" + l.Addr().String(), server}, stop, ended
}

func TestAStopLetsRequestsComeToTheirEnd(t *testing.T) {
	f := held(t, 3)
	s, stop, done := serving(t, f.options())
	answered := make(chan string, 1)
	go func() {
		r, err := s.post(context.Background(), one)
		if err != nil {
			answered <- err.Error()
			return
		}
		data, _ := io.ReadAll(r.Body)
		answered <- string(data)
	}()
	f.hold <- struct{}{}
	stop()
	eventually(t, s.draining.Load)
	late := httptest.NewRecorder() // as on a connection that is there already
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(one))
	s.ServeHTTP(late, r)
	require.Equal(t, http.StatusServiceUnavailable, late.Code)
	require.Equal(t, "1", late.Header().Get("Retry-After"))
	late = httptest.NewRecorder()
	s.ServeHTTP(late, httptest.NewRequest(http.MethodGet, "/health", nil))
	require.Equal(t, http.StatusServiceUnavailable, late.Code)
	close(f.hold)
	require.NoError(t, <-done)
	require.Equal(t, "xxx", *read(t, <-answered).Choices[0].Text)
}

func TestAStopEndsRequestsThatTakeTooLongWithAnError(t *testing.T) {
	f := held(t, 3)
	o := f.options()
	o.Drain = 30 * time.Millisecond
	s, stop, done := serving(t, o)
	answered := make(chan string, 1)
	go func() {
		r, err := s.post(context.Background(), `{"prompt":[1],"stream":true}`)
		if err != nil {
			answered <- err.Error()
			return
		}
		data, _ := io.ReadAll(r.Body)
		answered <- string(data)
	}()
	f.hold <- struct{}{}
	stop()
	require.NoError(t, <-done)
	events := eventsOf(t, <-answered)
	require.Equal(t, "shutting_down", *events[len(events)-1].Error.Code)
	eventually(t, func() bool { return f.running() == 0 })
}

// lines is a log that is written and read at once.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestARequestIsALineOfTheLogWithoutItsText(t *testing.T) {
	var out lines
	f := newFake(t, func(engine.Request) []engine.Piece { return script("secret answer") })
	s := listening(t, f.options(), func(o *Options) { o.Log = slog.New(slog.NewJSONHandler(&out, nil)) })
	r, err := http.NewRequest(http.MethodPost, s.url+"/v1/completions", strings.NewReader(`{"prompt":"secret prompt"}`))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Request-Id", "my-id.1")
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	data, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	require.Equal(t, "my-id.1", got.Header.Get("X-Request-Id"))
	require.Equal(t, "cmpl-my-id.1", read(t, string(data)).ID)
	var line map[string]any
	eventually(t, func() bool { return json.Unmarshal([]byte(out.String()), &line) == nil })
	require.Equal(t, "my-id.1", line["id"])
	require.EqualValues(t, 200, line["status"])
	require.EqualValues(t, 1, line["tokens"])
	require.NotContains(t, out.String(), "secret")
	require.NotEqual(t, requestID("bad-1 id\n"), requestID(""))
	require.NotContains(t, requestID("bad-1 id\n"), "-")
}
