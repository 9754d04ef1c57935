package serve

import (
	"net/http"
	"strconv"
	"time"

	"github.com/mkgen/mkgen/engine"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are a server's own: two servers in a process share none.
type metrics struct {
	requests                                          *prometheus.CounterVec
	took                                              *prometheus.HistogramVec
	first, between                                    prometheus.Histogram
	promptTokens, cachedTokens, answerTokens, preempt prometheus.Counter
	drafted, accepted                                 prometheus.Counter
	finished                                          *prometheus.CounterVec
	handler                                           http.Handler
}

// newMetrics registers everything that /metrics shows.
func newMetrics(s *Server) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "mkgen_" + name, Help: help})
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mkgen_requests_total",
			Help: "Requests by endpoint and HTTP status; 499 for a client that left."},
			[]string{"path", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "mkgen_request_seconds",
			Help:    "Time from a request to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 16)}, []string{"path"}),
		first: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "mkgen_time_to_first_token_seconds",
			Help:    "Time from a request to its first token.",
			Buckets: prometheus.ExponentialBuckets(0.002, 2, 16)}),
		between: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "mkgen_inter_token_seconds",
			Help:    "Time between two tokens of a request of one choice.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 1.5, 20)}),
		promptTokens: counter("prompt_tokens_total", "Tokens of prompts of all sequences that have ended."),
		cachedTokens: counter("cached_prompt_tokens_total", "Of these, tokens that were in the KV cache already."),
		answerTokens: counter("answer_tokens_total", "Tokens sent on to clients."),
		preempt:      counter("preemptions_total", "Times that a sequence lost its pages to an older one."),
		drafted:      counter("drafted_tokens_total", "Tokens fed on trial (--prompt-lookup)."),
		accepted:     counter("accepted_tokens_total", "Of these, tokens that the model chose too: steps that were saved."),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mkgen_sequences_total",
			Help: "Sequences that have ended, by why."},
			[]string{"reason"}),
	}
	r := prometheus.NewRegistry()
	r.MustRegister(m.requests, m.took, m.first, m.between, m.promptTokens, m.cachedTokens, m.answerTokens, m.preempt,
		m.drafted, m.accepted, m.finished,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gauge := func(name, help string, of func(engine.Load) int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "mkgen_" + name, Help: help},
			func() float64 { return float64(of(s.o.Backend.Load())) }))
	}
	gauge("running_sequences", "Sequences that have rows in a step.", func(l engine.Load) int { return l.Running })
	gauge("queued_sequences", "Sequences that wait.", func(l engine.Load) int { return l.Queued })
	gauge("kv_pages", "Pages of the KV cache.", func(l engine.Load) int { return l.Pages })
	gauge("kv_pages_free", "Pages that hold nothing.", func(l engine.Load) int { return l.Free })
	gauge("kv_pages_remembered", "Pages that hold only what ended sequences have left.",
		func(l engine.Load) int { return l.Idle })
	m.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	return m
}

// write answers /metrics.
func (m *metrics) write(w http.ResponseWriter, r *http.Request) *Error {
	m.handler.ServeHTTP(w, r)
	return nil
}

// ended notes a sequence.
func (m *metrics) ended(r engine.Result) {
	reason := string(r.Finish)
	if reason == "" {
		reason = "failed"
	}
	m.finished.WithLabelValues(reason).Inc()
	m.promptTokens.Add(float64(r.Usage.Prompt))
	m.cachedTokens.Add(float64(r.Usage.Reused))
	m.preempt.Add(float64(r.Usage.Preempted))
	m.drafted.Add(float64(r.Usage.Drafted))
	m.accepted.Add(float64(r.Usage.Accepted))
}

// request notes an answered request.
func (m *metrics) request(path string, status int, c *call, took time.Duration) {
	m.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
	if c.choices > 0 {
		m.took.WithLabelValues(path).Observe(took.Seconds())
	}
}
