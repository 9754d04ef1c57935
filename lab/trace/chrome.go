package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/mkgen/mkgen/pipeline"
)

// WriteChrome writes the events in the JSON format that Perfetto and Chrome's
// tracing page open: a process for an SM, a thread for a role, a complete event for
// a span (its kind is the category; step, layer and detail are arguments), and a
// counter for the chunks in an SM's ring where they can be told. Of the launch's steps it
// has the last of them, steps in number, of 0 all: a step of a large model has millions of events.
// Times are in µs; a step of the executor is shown as one. Events are written as they are
// made, a track at a time.
func (t *Trace) WriteChrome(w io.Writer, steps int) error {
	if err := t.Check(); err != nil {
		return err
	}
	c := &chrome{t: t, w: bufio.NewWriterSize(w, 1<<16), first: t.firstOf(steps)}
	c.sites()
	c.printf(`{"displayTimeUnit":"ns","otherData":{"generator":%s,"model":%s,"device":%s,"unit":%s,"stages":%d,"dropped":%d},"traceEvents":[`,
		quote(generator), quote(t.Model), quote(t.Device), quote(t.Unit), t.Stages, t.Dropped())
	last := -1
	for i := range t.Tracks {
		tr := &t.Tracks[i]
		if tr.SM != last {
			c.process(tr.SM)
			c.counters(tr.SM)
			last = tr.SM
		}
		c.track(tr)
	}
	c.printf("\n]}\n")
	if c.err != nil {
		return c.err
	}
	return c.w.Flush()
}

// firstOf is the first of the last steps, n in number, of 0 that of all.
func (t *Trace) firstOf(steps int) (first int) {
	for i := range t.Tracks {
		for j := range t.Tracks[i].Spans {
			first = max(first, t.Tracks[i].Spans[j].Step+1-steps)
		}
	}
	if steps == 0 {
		return 0
	}
	return first
}

// chrome writes events; after an error it writes no more.
type chrome struct {
	t     *Trace
	w     *bufio.Writer
	first int      // the first step that is written
	heads []string // a site's name and category, as JSON
	some  bool     // whether an event has been written
	err   error
}

func (c *chrome) sites() {
	for _, s := range c.t.Sites {
		c.heads = append(c.heads, fmt.Sprintf(`"name":%s,"cat":%s`, quote(s.Name), quote(string(s.Kind))))
	}
}

func (c *chrome) printf(format string, args ...any) {
	if c.err == nil {
		_, c.err = fmt.Fprintf(c.w, format, args...)
	}
}

// event writes one event, without its braces.
func (c *chrome) event(format string, args ...any) {
	if c.some {
		c.printf(",")
	}
	c.some = true
	c.printf("\n{"+format+"}", args...)
}

func (c *chrome) process(sm int) {
	c.event(`"ph":"M","name":"process_name","pid":%d,"args":{"name":"SM %d"}`, sm, sm)
	c.event(`"ph":"M","name":"process_sort_index","pid":%d,"args":{"sort_index":%d}`, sm, sm)
}

func (c *chrome) counters(sm int) {
	since := math.Inf(1)
	for _, role := range pipeline.TraceRoles() {
		if tr := c.t.of(sm, role); tr != nil {
			for i := range tr.Spans {
				if s := &tr.Spans[i]; s.Step >= c.first {
					since = min(since, s.Begin)
				}
			}
		}
	}
	for _, e := range c.t.ringFill(c.t.of(sm, Consumers), c.t.of(sm, Producer)) {
		if e.at < since {
			continue
		}
		c.event(`"ph":"C","name":"chunks in the ring","pid":%d,"ts":%s,"args":{"chunks":%d}`, sm,
			micros(c.t.thousandths(e.at)), e.chunks)
	}
}

// track writes a track's spans by their begin, an outer one before those in it.
func (c *chrome) track(tr *Track) {
	tid := 0
	if tr.Role == Producer {
		tid = 1
	}
	name := tr.Role
	if tr.Dropped > 0 {
		name = fmt.Sprintf("%s (%d spans did not fit)", tr.Role, tr.Dropped)
	}
	c.event(`"ph":"M","name":"thread_name","pid":%d,"tid":%d,"args":{"name":%s}`, tr.SM, tid, quote(name))
	for _, i := range byBegin(tr.Spans) {
		s := &tr.Spans[i]
		if s.Step < c.first {
			continue
		}
		begin, end := c.t.thousandths(s.Begin), c.t.thousandths(s.End)
		c.event(`"ph":"X",%s,"pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":{"step":%d,"layer":%d,"detail":%d}`,
			c.heads[s.Site], tr.SM, tid, micros(begin), micros(end-begin), s.Step, s.Layer, s.Detail)
	}
}

// byBegin are the indices of spans ordered by begin, the outer before the inner.
func byBegin(spans []Span) []int {
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch x, y := &spans[a], &spans[b]; {
		case x.Begin != y.Begin && x.Begin < y.Begin:
			return -1
		case x.Begin != y.Begin:
			return 1
		case x.End != y.End && x.End > y.End:
			return -1
		case x.End != y.End:
			return 1
		}
		return b - a
	})
	return order
}

// thousandths is a time in thousandths of a µs; rounding each end of a span, not
// its length, keeps spans within those that hold them.
func (t *Trace) thousandths(x float64) int64 {
	if t.Unit == Steps {
		x *= 1000
	}
	return int64(math.Round(x))
}

// micros writes thousandths of a µs as µs.
func micros(n int64) string { return fmt.Sprintf("%d.%03d", n/1000, n%1000) }

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return string(b)
}
