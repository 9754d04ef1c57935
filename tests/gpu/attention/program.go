package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tests/gpu/attention/cases"
)

// program is an attention-only kernel (package attend): a launch does all layers
// one after another, and that as often as it is told. All its steps are the same.
type program struct {
	IR      *ir.Kernel
	Limits  kv.Limits
	Classes []kv.Class
	Scalars func(pages, steps int) map[string]uint64
	Traced  []pipeline.TraceSite // what a traced kernel's spans are of
	Stages  int                  // of the ring
	// Tables are what the variants read, by buffer.
	Tables map[string][]byte
}

// loaded is a program on a machine with a case's inputs.
type loaded struct {
	p    *program
	c    *cases.Case
	dev  bench.Loaded
	plan *kv.Plan

	planned time.Duration // how long the plan took
}

// planRuns is how often a plan is made to time it.
const planRuns = 9

// load plans the case and brings it to the machine.
func load(ctx context.Context, m bench.Machine, p *program, c *cases.Case, single bool) (l *loaded, err error) {
	l = &loaded{p: p, c: c}
	planner, err := kv.NewPlanner(p.Limits)
	if err != nil {
		return nil, err
	}
	request := c.Request(single)
	request.Classes = p.Classes
	var took []time.Duration
	for range planRuns {
		begin := time.Now()
		if l.plan, err = planner.Plan(request); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	l.planned = took[planRuns/2]
	if l.dev, err = m.Load(ctx, p.IR); err != nil {
		return nil, err
	}
	if err := l.fill(); err != nil {
		return nil, errors.Join(err, l.dev.Close())
	}
	return l, nil
}

// fill allocates all buffers and writes what the host knows; the others are zero.
func (l *loaded) fill() error {
	content, err := l.contents()
	if err != nil {
		return err
	}
	for _, b := range l.p.IR.Globals() {
		bytes := max(b.Bytes(), int64(len(content[b.Name])))
		if b.Name == attend.BufferCache {
			bytes = int64(l.c.Layers) * l.c.LayerBytes()
		}
		if err := l.dev.Alloc(b.Name, max(4, bytes)); err != nil {
			return fmt.Errorf("buffer %s of %d bytes: %w", b.Name, bytes, err)
		}
		if b.Name == attend.BufferCache {
			err = l.fillKV()
		} else if err = l.dev.Zero(b.Name); err == nil && content[b.Name] != nil {
			err = l.dev.Write(b.Name, 0, content[b.Name])
		}
		if err != nil {
			return fmt.Errorf("buffer %s: %w", b.Name, err)
		}
	}
	return nil
}

// contents are the small buffers'.
func (l *loaded) contents() (map[string][]byte, error) {
	p, classes := l.p, len(l.plan.Classes)
	q, err := l.c.Q()
	if err != nil {
		return nil, err
	}
	work := make([]uint32, l.plan.Limits.WorkWords(classes))
	merge := make([]uint32, l.plan.Limits.MergeWords(classes))
	l.plan.EncodeWork(work)
	l.plan.EncodeMerge(merge)
	content := map[string][]byte{attend.BufferQ: ordered(l.c, q), attend.BufferScales: floatWords(l.c.Scales()),
		attend.BufferRows: words(l.plan.Rows), attend.BufferEntries: words(l.plan.Entries),
		attend.BufferPositions: words(l.plan.Positions), attend.BufferWork: words(work), attend.BufferMerges: words(merge)}
	for name, data := range p.Tables {
		content[name] = data
	}
	return content, nil
}

// ordered is q in the order of the cache's keys.
func ordered(c *cases.Case, q []byte) []byte {
	out, layout := make([]byte, len(q)), c.Layout()
	for i := range len(q) / 2 {
		head, d := i/c.HeadDim, i%c.HeadDim
		copy(out[2*(head*c.HeadDim+layout.KeyOrder(d)):][:2], q[2*i:])
	}
	return out
}

func floatWords(values []float32) []byte {
	var out []byte
	for _, x := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// kvBlock is how many bytes of the cache are made at a time.
const kvBlock = 64 << 20

func (l *loaded) fillKV() error {
	layer := l.c.LayerBytes()
	block := make([]byte, min(kvBlock, layer))
	for i := range l.c.Layers {
		for at := int64(0); at < layer; at += int64(len(block)) {
			part := block[:min(int64(len(block)), layer-at)]
			if err := l.c.KV(part, i, at); err != nil {
				return err
			}
			if err := l.dev.Write(attend.BufferCache, int64(i)*layer+at, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// run does steps steps and returns what they took by the device's clock.
func (l *loaded) run(steps int) (time.Duration, error) {
	if err := l.dev.Start(l.p.Scalars(l.c.Pages, steps)); err != nil {
		return 0, err
	}
	if err := l.dev.Wait(); err != nil {
		return 0, err
	}
	return l.dev.Elapsed(), nil
}

// out is the last layer's output, bf16, [row][head][dimension], as bytes.
func (l *loaded) out() ([]byte, error) {
	data := make([]byte, 2*l.c.T()*l.c.Heads*l.c.HeadDim)
	return data, l.dev.Read(attend.BufferOut, 0, data)
}

// floats are little-endian bf16 as float32.
func floats(data []byte) []float32 {
	out := make([]float32, len(data)/2)
	for i := range out {
		out[i] = half.BF16At(data[2*i:]).Float32()
	}
	return out
}

func words(vs []uint32) []byte {
	out := make([]byte, 0, 4*len(vs))
	for _, v := range vs {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}
