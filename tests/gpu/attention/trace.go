package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/trace"
)

// What a traced launch runs and can note.
const (
	tracedSteps = 3
	tracedSpans = 1 << 15 // of a role of a CTA
)

// traced is the kernel of a case that notes what its SMs do.
func traced(c *attend.Config) { c.Trace = tracedSpans }

// traceJob runs a job's kernel p, a traced one, and writes a page and a Chrome trace to
// dir. The tables go to the returned text.
func traceJob(ctx context.Context, m bench.Machine, p *program, j job, dir string) (text string, err error) {
	l, err := load(ctx, m, p, j.c, j.single)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, l.dev.Close()) }()
	for range 2 { // the first warms up
		if _, err := l.run(tracedSteps); err != nil {
			return "", err
		}
	}
	r, err := bench.ReadRecording(p.IR, l.dev)
	if err != nil {
		return "", err
	}
	t, err := trace.Decode(r.Spans, r.Heads, p.Traced, j.c.Layers)
	if err != nil {
		return "", err
	}
	t.Model, t.Device, t.Stages = "attention: "+j.c.Name, m.Facts().GPU, p.Stages
	if m.Facts().Executor {
		t.Unit = trace.Steps
	} else {
		t.Align()
	}
	if err := t.Check(); err != nil {
		return "", err
	}
	var page, chrome, table bytes.Buffer
	if err := errors.Join(t.WritePage(&page), t.WriteChrome(&chrome, 0), t.Summarize().WriteTable(&table)); err != nil {
		return "", err
	}
	name := filepath.Join(dir, "trace-"+j.c.Name)
	return fmt.Sprintf("%s\n%s", j.c.Name, &table), errors.Join(os.WriteFile(name+".html", page.Bytes(), 0o666),
		os.WriteFile(name+".json", chrome.Bytes(), 0o666))
}
