package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/megakernel"
)

// Prefill is a prefill kernel on one device, beside the decode kernel whose weights and KV cache it uses. Not safe for
// concurrent use.
type Prefill struct {
	runner
	// SplitMost has keys and values in as many parts as there can be: see megakernel.Prefill.SplitMost. It is for checks.
	SplitMost bool

	table  mirror // pages of the sequences, one after another
	chosen []int  // what the last launch chose, of each sequence: perhaps batch.NoToken
	splits int    // launches that split keys and values
}

// OpenPrefill allocates and fills the buffers of a prefill kernel on a device of its own. Weights and cache are those
// of from, on which the decode kernel is open; the cache has pages pages a layer. Unused entries of the page table name
// the page guard.
func OpenPrefill(p *megakernel.Prefill, dev, from Device, pages int, guard uint32) (*Prefill, error) {
	return openPrefill(p, dev, from, nil, pages, guard)
}

// shared are of all prefill kernels of the same weights: what a step writes before it reads it.
var shared = []string{megakernel.BufferLayer, megakernel.BufferKVCopy, megakernel.BufferPartValues,
	megakernel.BufferPartSums}

// tables are of attention, filled by the decode kernel's session.
var tables = []string{megakernel.BufferKVScales, megakernel.BufferSlopes, megakernel.BufferHeadScales}

// openPrefill is OpenPrefill beside another prefill kernel of the same weights, unless it is nil: steps of both make
// the matrices of a layer in bf16, the copy of its keys and values, and states of attention, in the same place, which
// the other's device owns.
func openPrefill(p *megakernel.Prefill, dev, from, beside Device, pages int, guard uint32) (*Prefill, error) {
	r := &Prefill{runner: runner{mk: p.Of, long: p, dev: dev, pages: pages, from: from},
		table: newMirror(megakernel.BufferPrefillTable, pages*p.Options.Sequences)}
	r.table.want = slices.Repeat([]uint32{guard}, pages*p.Options.Sequences)
	for _, buf := range p.IR.Globals() {
		if buf.Map != nil {
			continue // the device makes it of its description
		}
		done, err := r.borrow(buf.Name)
		switch name := buf.Name; {
		case beside != nil && slices.Contains(shared, name):
			done, err = true, borrow(dev, name, beside)
		case slices.Contains(tables, name):
			done, err = true, borrow(dev, name, from)
		}
		if err != nil {
			return nil, fmt.Errorf("buffer %s: %w", buf.Name, err)
		} else if done {
			continue
		}
		bytes := buf.Bytes()
		switch buf.Name {
		case megakernel.BufferPrefillTable:
			bytes = 4 * int64(len(r.table.want))
		case megakernel.BufferKVCopy:
			bytes = p.KVCopyBytes(pages)
		case megakernel.BufferKept:
			bytes = 8 * int64(pages)
		}
		if err := dev.Alloc(buf.Name, bytes); err != nil {
			return nil, fmt.Errorf("buffer %s of %d bytes: %w", buf.Name, bytes, err)
		}
	}
	if err := r.floats("inv_freq", p.Of.InvFreq()); err != nil {
		return nil, err
	}
	if f := p.Of.RopeFactors(); f != nil {
		if err := r.floats(megakernel.BufferRopeFactors, f); err != nil {
			return nil, err
		}
	}
	if err := r.table.all(dev); err != nil {
		return nil, err
	}
	names := []string{"barrier", "epoch", "abort", "records", megakernel.BufferPrompt}
	if p.Options.Sequences > 1 {
		names = append(names, megakernel.BufferPicked)
	}
	return r, r.zero(names...)
}

// Tokens is how many a step takes at most.
func (r *Prefill) Tokens() int { return r.long.Options.Tokens }

// Sequences is how many a step's tokens are of at most.
func (r *Prefill) Sequences() int { return r.long.Options.Sequences }

// Run is RunAll of one sequence: tokens behind cached ones, and its pages in order.
func (r *Prefill) Run(ctx context.Context, tokens []int, cached int, pages []uint32,
	quiet bool) (chosen int, err error) {
	all, err := r.RunAll(ctx, []batch.Sequence{{New: tokens, Cached: cached, Pages: pages}}, quiet)
	return all[0], err
}

// RunAll appends the keys and values of the new tokens of each sequence, and returns the token that follows each, by
// argmax; batch.NoToken if it is quiet, which makes no logits. Of a sequence New, Cached and Pages count. After a
// *HangError the next launch can run, the tokens of this one are lost; after any other error of a launch none can. It
// does not end before its time when ctx does.
func (r *Prefill) RunAll(ctx context.Context, of []batch.Sequence, quiet bool) (chosen []int, err error) {
	r.chosen = nil
	chosen = slices.Repeat([]int{batch.NoToken}, max(1, len(of)))
	n, err := r.feed(of)
	if err != nil {
		return chosen, err
	}
	scalars := map[string]uint64{megakernel.ScalarRows: uint64(n), megakernel.ScalarPages: uint64(r.pages),
		megakernel.ScalarChooses: 1}
	if quiet {
		scalars[megakernel.ScalarChooses] = 0
	}
	if r.copies() {
		kept := keptPages(of, r.mk.KV.Page, r.pages)
		scalars[megakernel.ScalarKept] = uint64(len(kept) / 2)
		if err := writeAhead(r.dev, megakernel.BufferKept, 0, words(kept)); err != nil {
			return chosen, err
		}
	}
	if r.Sequences() > 1 {
		scalars[megakernel.ScalarSequences] = uint64(len(of))
	} else {
		scalars[megakernel.ScalarPos] = uint64(of[0].Cached)
	}
	blocks := r.split(of)
	if scalars[megakernel.ScalarPartBlocks] = uint64(blocks); blocks < megakernel.OnePart {
		r.splits++
	}
	l := &launch{s: &r.runner, ctx: context.WithoutCancel(ctx)}
	err = l.run(scalars)
	var hang *HangError
	if errors.As(err, &hang) {
		hang.Pos = of[0].Cached
	}
	if err != nil || quiet {
		return chosen, err
	}
	words, err := r.read(megakernel.BufferChosen, 0, len(of))
	if err != nil {
		return chosen, err
	}
	for i, w := range words {
		if int64(w) >= int64(r.mk.Config.Vocab) {
			return chosen, &ResultError{fmt.Sprintf("a prefill step chose token %d, want 0 to %d", w, r.mk.Config.Vocab-1)}
		}
		chosen[i] = int(w)
	}
	r.chosen = chosen
	return slices.Clone(chosen), nil
}

// split is how many blocks a part of keys and values has.
func (r *Prefill) split(of []batch.Sequence) int {
	var all []megakernel.Sequence
	for i := range of {
		all = append(all, megakernel.Sequence{New: len(of[i].New), Cached: of[i].Cached})
	}
	if r.SplitMost {
		return r.long.SplitMost(all)
	}
	return r.long.Split(all)
}

// copies is whether the kernel reads keys and values from a copy of a layer's.
func (r *Prefill) copies() bool { return r.long.KVCopyBytes(r.pages) > 0 }

// keptPages are the pages that have cached tokens of the sequences, each once, and behind each how many. They are below
// pages.
func keptPages(of []batch.Sequence, page, pages int) (kept []uint32) {
	at := make([]int, pages) // where kept has its tokens; 0: it has none
	for i := range of {
		for first := 0; first < of[i].Cached; first += page {
			p, n := of[i].Pages[first/page], uint32(min(page, of[i].Cached-first))
			if j := at[p]; j > 0 {
				kept[j] = max(kept[j], n)
				continue
			}
			at[p] = len(kept) + 1
			kept = append(kept, p, n)
		}
	}
	return kept
}

// Logits reads those that follow the last token of sequence i of the last launch into dst, Vocab long.
func (r *Prefill) Logits(i int, dst []float32) error {
	switch {
	case r.chosen == nil:
		return errQuiet
	case i < 0 || i >= len(r.chosen):
		return fmt.Errorf("logits of sequence %d, the last launch had %d", i, len(r.chosen))
	}
	return r.logits(i, dst)
}

// feed refuses a step that cannot be, and writes its tokens and pages. It returns how many tokens there are.
func (r *Prefill) feed(of []batch.Sequence) (n int, err error) {
	if len(of) < 1 || len(of) > r.Sequences() {
		return 0, fmt.Errorf("a prefill step of %d sequences, want 1 to %d", len(of), r.Sequences())
	}
	var feed, rows, sequences []uint32
	r.table.used = 0
	for i := range of {
		s := &of[i]
		if err := r.check(s); err != nil {
			return 0, err
		}
		sequences = append(sequences, uint32(len(feed)), uint32(len(s.New)), uint32(s.Cached), uint32(r.table.used))
		for k, t := range s.New {
			at := s.Cached + k
			feed, rows = append(feed, uint32(t)), append(rows, uint32(at), s.Pages[at/r.mk.KV.Page])
		}
		r.table.used += copy(r.table.want[r.table.used:], s.Pages)
	}
	if n = len(feed); n > r.Tokens() {
		return 0, fmt.Errorf("a prefill step of %d tokens, want 1 to %d", n, r.Tokens())
	}
	err = writeAhead(r.dev, megakernel.BufferPrompt, 0, words(feed))
	if r.Sequences() > 1 {
		err = errors.Join(err, writeAhead(r.dev, megakernel.BufferPrefillRows, 0, words(rows)),
			writeAhead(r.dev, megakernel.BufferPrefillSequences, 0, words(sequences)))
	}
	return n, errors.Join(err, r.table.changed(r.dev), r.failed)
}

// check refuses a sequence that cannot be.
func (r *Prefill) check(s *batch.Sequence) error {
	page, all := r.mk.KV.Page, s.Cached+len(s.New)
	switch {
	case len(s.New) < 1 || len(s.New) > r.Tokens():
		return fmt.Errorf("a prefill step of %d tokens, want 1 to %d", len(s.New), r.Tokens())
	case s.Cached < 0 || all > r.mk.Config.MaxPositions || (all+page-1)/page > len(s.Pages):
		return fmt.Errorf("a prefill step of %d tokens behind %d cached ones on %d pages of %d, want pages for all, and at most %d tokens", len(s.New), s.Cached, len(s.Pages), page, r.mk.Config.MaxPositions)
	case len(s.Pages) > r.pages || slices.ContainsFunc(s.Pages, func(p uint32) bool { return int(p) >= r.pages }):
		return fmt.Errorf("pages %v, the cache has %d", s.Pages, r.pages)
	}
	for _, t := range s.New {
		if t < 0 || t >= r.mk.Config.Vocab {
			return fmt.Errorf("token %d, want 0 to %d", t, r.mk.Config.Vocab-1)
		}
	}
	return nil
}
