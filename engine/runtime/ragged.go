package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
)

// Ragged is one ragged kernel on one device: each step has rows for tokens of any
// number of sequences, whose pages the caller names. It is a batch.Stepper. Not safe
// for concurrent use.
type Ragged struct {
	runner
	o       RaggedOptions
	planner *kv.Planner
	seqs    []kv.Sequence // memory of the last request
	last    []int         // the last row of each sequence of the last launch; -1 for none
	count   int           // its rows
	quiet   bool          // it made no logits
	chose   []int         // by row, of its last step
	planned *kv.Plan

	rowDraws []draw.Row // of Launch

	used int // page table entries of the last launch

	// what the device has
	rows, entries, positions, items, merges mirror
}

// RaggedOptions are what a ragged session needs beside kernel, device and weights.
type RaggedOptions struct {
	Pages   int    // pages a layer of the KV cache, at least 1
	Steps   int    // steps of a launch at most; 0 for 1
	Entries int    // entries of all page tables of a launch at most; 0 for what full sequences need that select no pages
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
	// HeadScales are the factors of query heads, where the kernel's attention has them
	// (megakernel.BufferHeadScales); nil means 1.
	HeadScales []float32
	// MaskWords is how many words of mask bits there are, where the kernel's attention
	// has a mask; 0 for what full sequences need, a row each.
	MaskWords int

	// From is as in SessionOptions.
	From Device
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
	if !mk.HasMask() {
		o.MaskWords = 0
	} else if o.MaskWords == 0 {
		o.MaskWords = mk.Options.Tokens * ((mk.Config.MaxPositions + 31) / 32)
	}
	if o.MaskWords < 0 {
		return nil, fmt.Errorf("%d words of mask bits, want at least 0", o.MaskWords)
	}
	limits := mk.Limits(o.Pages)
	limits.Entries, limits.Costs = o.Entries, o.Costs
	planner, err := kv.NewPlanner(limits)
	if err != nil {
		return nil, err
	}
	r := &Ragged{runner: runner{mk: mk, dev: dev, pages: o.Pages, kvScales: o.KVScales, headScales: o.HeadScales, from: o.From}, o: o, planner: planner}
	steps := 4 * int64(o.Steps)
	sizes := map[string]int64{megakernel.BufferEntries: 4 * int64(o.Entries), megakernel.BufferPositions: 4 * int64(o.Entries), megakernel.BufferMask: 4 * int64(o.MaskWords),
		"stream": steps * int64(mk.Options.Tokens), "times": steps}
	if err := r.open(ctx, w, sizes, o.Epoch); err != nil {
		return nil, err
	}
	return r, r.mirrors(limits)
}

// SetCosts makes the planner weigh attention work anew from the next launch on; zero:
// kv.DefaultCosts.
func (r *Ragged) SetCosts(c kv.Costs) error {
	limits := r.mk.Limits(r.pages)
	limits.Entries, limits.Costs = r.o.Entries, c
	planner, err := kv.NewPlanner(limits)
	if err != nil {
		return err
	}
	r.planner = planner
	return nil
}

// mirrors writes what a launch's work is written over.
func (r *Ragged) mirrors(limits kv.Limits) error {
	classes := len(r.mk.Classes())
	r.rows = newMirror(megakernel.BufferRows, limits.Rows*kv.RowWords)
	r.entries = newMirror(megakernel.BufferEntries, r.o.Entries)
	r.entries.want = slices.Repeat([]uint32{r.o.Guard}, r.o.Entries)
	r.items = newMirror(megakernel.BufferWork, limits.WorkWords(classes))
	r.merges = newMirror(megakernel.BufferMerges, limits.MergeWords(classes))
	all := []*mirror{&r.rows, &r.entries, &r.items, &r.merges}
	if r.mk.Options.Selection {
		r.positions = newMirror(megakernel.BufferPositions, r.o.Entries)
		all = append(all, &r.positions)
	}
	for _, m := range all {
		if err := m.all(r.dev); err != nil {
			return err
		}
	}
	if r.o.MaskWords > 0 {
		return r.SetMask(0, slices.Repeat([]uint32{1<<32 - 1}, r.o.MaskWords))
	}
	return nil
}

// Rows is how many tokens a step takes at most.
func (r *Ragged) Rows() int { return r.mk.Options.Tokens }

// Vocab is how many tokens the model has.
func (r *Ragged) Vocab() int { return r.mk.Config.Vocab }

// Plan is that of the last launch, valid until the next; nil before the first.
func (r *Ragged) Plan() *kv.Plan { return r.planned }

// ChunkTokens is what RaggedOptions.Pin and kv.Request.PinTokens are multiples of.
func (r *Ragged) ChunkTokens() int { return r.mk.ChunkTokens() }

// Times are when the steps of the last launch from from on chose their tokens, n of
// them: nanoseconds of the device's clock, modulo 2³².
func (r *Ragged) Times(from, n int) ([]uint32, error) { return r.read("times", from, n) }

// Logits reads the logits that follow the last new token of sequence i of the last
// launch, of its last step, into dst, Vocab long.
func (r *Ragged) Logits(i int, dst []float32) error {
	if i < 0 || i >= len(r.last) {
		return fmt.Errorf("logits of sequence %d, the last launch had %d", i, len(r.last))
	}
	if r.quiet {
		return errQuiet
	}
	if r.last[i] < 0 {
		return fmt.Errorf("logits of sequence %d, which had no new token", i)
	}
	return r.logits(r.last[i], dst)
}

// Choice is the token that follows new token k of sequence i of the last launch, of its last step.
func (r *Ragged) Choice(i, k int) (int, error) {
	row, err := r.rowOf(i, k)
	switch {
	case err != nil:
		return 0, err
	case r.quiet:
		return 0, errQuiet
	}
	return r.chose[row], nil
}

// TokenLogits is Logits of new token k of a sequence.
func (r *Ragged) TokenLogits(i, k int, dst []float32) error {
	row, err := r.rowOf(i, k)
	if err != nil {
		return err
	}
	return r.RowLogits(row, dst)
}

// rowOf is the row of new token k of a sequence of the last launch.
func (r *Ragged) rowOf(i, k int) (int, error) {
	if i < 0 || i >= len(r.last) || r.last[i] < 0 {
		return 0, fmt.Errorf("new token %d of sequence %d, which had none or was not there: the last launch had %d", k, i, len(r.last))
	}
	first := 0
	for _, last := range r.last[:i] {
		first = max(first, last+1)
	}
	if k < 0 || first+k > r.last[i] {
		return 0, fmt.Errorf("new token %d of sequence %d, which had %d", k, i, r.last[i]+1-first)
	}
	return first + k, nil
}

// RowLogits is Logits of a row: the new tokens of the sequences one after another.
func (r *Ragged) RowLogits(row int, dst []float32) error {
	if row < 0 || row >= r.count {
		return fmt.Errorf("logits of row %d, the last launch had %d", row, r.count)
	}
	if r.quiet {
		return errQuiet
	}
	return r.logits(row, dst)
}

var errQuiet = errors.New("logits of a launch that made none: batch.StepRequest.Quiet")

// SetMask writes words of the mask bits, from word from on: where the kernel's
// attention has a mask, row t of a launch sees the i-th token of its sequence where bit
// i%32 of word Masks[t] + i/32 is 1 (kv.Sequence.Masks). All are 1 at first.
func (r *Ragged) SetMask(from int, bits []uint32) error {
	if !r.mk.HasMask() {
		return errors.New("mask bits for a kernel whose attention has no mask")
	}
	if from < 0 || from+len(bits) > r.o.MaskWords {
		return fmt.Errorf("mask words %d to %d, want 0 to %d", from, from+len(bits)-1, r.o.MaskWords-1)
	}
	return r.dev.Write(megakernel.BufferMask, 4*int64(from), words(bits))
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
	r.positions.encode(func(dst []uint32) { copy(dst, p.Positions) })
	return errors.Join(r.items.changed(r.dev), r.merges.changed(r.dev), r.rows.changed(r.dev), r.entries.changed(r.dev), r.positions.changed(r.dev))
}

// peek is what a step chose for each row, or nil when it has not yet.
func (r *Ragged) peek(step int) ([]int, error) {
	chosen := make([]int, 0, r.count)
	for row := range r.count {
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
			return nil, &ResultError{fmt.Sprintf("step %d of %d that ran chose %v for %d rows, want tokens below %d", step, ran, chosen, r.count, r.mk.Config.Vocab)}
		}
		all = append(all, chosen)
	}
	return all, nil
}
