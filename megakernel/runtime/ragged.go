package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/runtime/batch"
)

// Ragged is one ragged kernel on one device: each step has rows for tokens of any
// number of sequences, whose pages the caller names. It is a batch.Stepper. Not safe
// for concurrent use.
type Ragged struct {
	runner
	o       RaggedOptions
	planner *kv.Planner
	seqs    []kv.Sequence // memory of the last request
	last    []int         // the last row of each sequence of the last launch

	used int // page table entries of the last launch

	// what the device has
	rows, entries, items, merges mirror
}

// RaggedOptions are what a ragged session needs beside kernel, device and weights.
type RaggedOptions struct {
	Pages   int    // pages a layer of the KV cache, at least 1
	Steps   int    // steps of a launch at most; 0 for 1
	Entries int    // entries of all page tables of a launch at most; 0 for what full sequences need
	Guard   uint32 // page that page table entries without a use name
	Epoch   uint32 // the barrier counter that the first launch finds

	// KVScales are the scales of an e4m3 cache, as in SessionOptions.
	KVScales []float32

	// Pin, a multiple of the kernel's ChunkTokens, cuts every sequence's KV at its multiples:
	// results then do not depend on what else a step holds. 0: the planner cuts as it
	// likes, and shares prefixes.
	Pin    int
	Single bool // no prefix is read once for several sequences

	// Costs weigh attention work for the planner; zero: kv.DefaultCosts.
	Costs kv.Costs
}

// OpenRagged allocates and fills every buffer of a ragged kernel. When ctx ends it
// stops loading and returns ctx's error; the device's buffers are then as they are,
// and only Close is of use.
func OpenRagged(ctx context.Context, mk *megakernel.Kernel, dev Device, w Weights, o RaggedOptions) (*Ragged, error) {
	o.Steps = max(o.Steps, 1)
	if !mk.Ragged() {
		return nil, errors.New("a kernel of one query row a step, want one of several; it is for OpenSession")
	}
	if o.Pages < 1 || o.Entries < 0 || int64(o.Guard) >= int64(o.Pages) {
		return nil, fmt.Errorf("a KV cache of %d pages, guard %d, and %d page table entries, want at least 1, a page of it, and at least 0", o.Pages, o.Guard, o.Entries)
	}
	if o.Entries == 0 {
		o.Entries = mk.Options.Tokens * min(o.Pages, (mk.Config.MaxPositions+mk.KV.Page-1)/mk.KV.Page)
	}
	limits := mk.Limits(o.Pages)
	limits.Entries, limits.Costs = o.Entries, o.Costs
	planner, err := kv.NewPlanner(limits)
	if err != nil {
		return nil, err
	}
	r := &Ragged{runner: runner{mk: mk, dev: dev, pages: o.Pages, kvScales: o.KVScales}, o: o, planner: planner}
	steps := 4 * int64(o.Steps)
	if err := r.open(ctx, w, map[string]int64{megakernel.BufferEntries: 4 * int64(o.Entries), "stream": steps * int64(mk.Options.Tokens), "times": steps}, o.Epoch); err != nil {
		return nil, err
	}
	for _, m := range []struct {
		m     *mirror
		name  string
		words int
	}{{&r.rows, megakernel.BufferRows, limits.Rows * kv.RowWords}, {&r.entries, megakernel.BufferEntries, o.Entries},
		{&r.items, megakernel.BufferWork, limits.WorkWords(len(mk.Classes()))}, {&r.merges, megakernel.BufferMerges, limits.MergeWords(len(mk.Classes()))}} {
		*m.m = newMirror(m.name, m.words)
		if m.m == &r.entries {
			m.m.want = slices.Repeat([]uint32{o.Guard}, m.words)
		}
		if err := m.m.all(dev); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Rows is how many tokens a step takes at most.
func (r *Ragged) Rows() int { return r.mk.Options.Tokens }

// Times are when the steps of the last launch from from on chose their tokens, n of
// them: nanoseconds of the device's clock, modulo 2³².
func (r *Ragged) Times(from, n int) ([]uint32, error) { return r.read("times", from, n) }

// Logits reads the logits that follow the last new token of sequence i of the last
// launch, of its last step, into dst, Vocab long.
func (r *Ragged) Logits(i int, dst []float32) error {
	if i < 0 || i >= len(r.last) {
		return fmt.Errorf("logits of sequence %d, the last launch had %d", i, len(r.last))
	}
	return r.logits(r.last[i], dst)
}

// Run runs one launch; see batch.Stepper. After a *HangError the session can go on,
// the tokens of the launch are lost; after any other error but the context's no
// launch can follow.
func (r *Ragged) Run(ctx context.Context, q batch.StepRequest) ([][]int, error) {
	if err := r.check(q); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	plan, err := r.plan(q)
	if err != nil {
		return nil, err
	}
	width := r.Rows()
	if err := errors.Join(r.upload(plan), r.clear(0, q.Steps*width, 0)); err != nil {
		return nil, err
	}
	var chosen []int
	each := func(int) bool { return q.Each == nil || q.Each(chosen) }
	l := &launch{s: &r.runner, ctx: ctx, end: q.Steps, each: each, come: func(step int) (come bool, err error) {
		chosen, err = r.peek(step)
		return chosen != nil, err
	}}
	if err := l.run(map[string]uint64{megakernel.ScalarRows: uint64(plan.RowCount), megakernel.ScalarSteps: uint64(q.Steps), megakernel.ScalarPages: uint64(r.pages)}); err != nil {
		return nil, err
	}
	all, err := r.result(q.Steps)
	if err != nil {
		return nil, err
	}
	for i := l.next; i < len(all) && !l.stopping; i++ {
		chosen = all[i]
		l.stopping = !each(i)
	}
	return all, ctx.Err()
}

// check refuses a launch that cannot be, but for what the planner looks at.
func (r *Ragged) check(q batch.StepRequest) error {
	if r.failed != nil {
		return r.failed
	}
	if len(q.Sequences) < 1 || q.Steps < 1 || q.Steps > r.o.Steps {
		return fmt.Errorf("%d sequences and %d steps, want at least 1 and 1 to %d", len(q.Sequences), q.Steps, r.o.Steps)
	}
	for i, s := range q.Sequences {
		if len(s.New) < 1 {
			return fmt.Errorf("sequence %d: no token to feed", i)
		}
		for _, token := range s.New {
			if token < 0 || token >= r.mk.Config.Vocab {
				return fmt.Errorf("sequence %d: token %d, want 0 to %d", i, token, r.mk.Config.Vocab-1)
			}
		}
		if end, limit := s.Cached+len(s.New)+q.Steps-1, r.mk.Config.MaxPositions; end > limit {
			return fmt.Errorf("sequence %d: position %d, the model was made for %d", i, end-1, limit)
		}
	}
	return nil
}

// plan plans the attention work of a launch and says which row is a sequence's last.
func (r *Ragged) plan(q batch.StepRequest) (*kv.Plan, error) {
	for len(r.seqs) < len(q.Sequences) {
		r.seqs = append(r.seqs, kv.Sequence{})
	}
	r.last = r.last[:0]
	row := 0
	for i, s := range q.Sequences {
		tokens := r.seqs[i].Tokens[:0]
		for _, token := range s.New {
			tokens = append(tokens, uint32(token))
		}
		r.seqs[i] = kv.Sequence{Pages: s.Pages, Cached: s.Cached, New: len(tokens), Tokens: tokens, Grow: q.Steps > 1}
		row += len(tokens)
		r.last = append(r.last, row-1)
	}
	return r.planner.Plan(kv.Request{Sequences: r.seqs[:len(q.Sequences)], Steps: q.Steps, Classes: r.mk.Classes(), PinTokens: r.o.Pin, Single: r.o.Single})
}

// upload writes what the device does not have yet.
func (r *Ragged) upload(p *kv.Plan) error {
	r.items.encode(p.EncodeWork)
	r.merges.encode(p.EncodeMerge)
	r.rows.encode(func(dst []uint32) { copy(dst, p.Rows) })
	r.entries.encode(func(dst []uint32) {
		n := copy(dst, p.Entries)
		for i := n; i < r.used; i++ {
			dst[i] = r.o.Guard
		}
		r.used = n
	})
	return errors.Join(r.items.changed(r.dev), r.merges.changed(r.dev), r.rows.changed(r.dev), r.entries.changed(r.dev))
}

// peek is what a step chose for each sequence, or nil when it has not yet.
func (r *Ragged) peek(step int) ([]int, error) {
	chosen := make([]int, 0, len(r.last))
	for _, row := range r.last {
		token, err := r.dev.Peek("stream", step*r.Rows()+row)
		if err != nil || token == noToken {
			return nil, err
		}
		chosen = append(chosen, int(token))
	}
	return chosen, nil
}

// result is what each step of a launch that has ended well chose.
func (r *Ragged) result(steps int) ([][]int, error) {
	ran, err := r.dev.Peek("progress", 0)
	if err != nil {
		return nil, err
	}
	if ran < 1 || int64(ran) > int64(steps) {
		return nil, &ResultError{fmt.Sprintf("the launch ended after %d steps, want 1 to %d", ran, steps)}
	}
	all := make([][]int, 0, ran)
	for step := range int(ran) {
		chosen, err := r.peek(step)
		if err != nil {
			return nil, err
		}
		if chosen == nil || slices.Max(chosen) >= r.mk.Config.Vocab {
			return nil, &ResultError{fmt.Sprintf("step %d of %d that ran chose %v for %d sequences, want tokens below %d", step, ran, chosen, len(r.last), r.mk.Config.Vocab)}
		}
		all = append(all, chosen)
	}
	return all, nil
}
