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
	table  []uint32 // as the device has it
	chosen int      // what the last launch chose: perhaps batch.NoToken
}

// OpenPrefill allocates and fills the buffers of a prefill kernel on a device of its own. Weights and cache are those
// of from, on which the decode kernel is open; the cache has pages pages a layer. Unused entries of the page table name
// the page guard.
func OpenPrefill(p *megakernel.Prefill, dev, from Device, pages int, guard uint32) (*Prefill, error) {
	return openPrefill(p, dev, from, nil, pages, guard)
}

// openPrefill is OpenPrefill beside another prefill kernel of the same weights, unless it is nil: steps of both make
// the matrices of a layer in bf16 in the same place, which the other's device owns.
func openPrefill(p *megakernel.Prefill, dev, from, beside Device, pages int, guard uint32) (*Prefill, error) {
	r := &Prefill{runner: runner{mk: p.Of, long: p, dev: dev, pages: pages, from: from},
		table: slices.Repeat([]uint32{guard}, pages)}
	for _, buf := range p.IR.Globals() {
		if buf.Map != nil {
			continue // the device makes it of its description
		}
		done, err := r.borrow(buf.Name)
		if beside != nil && buf.Name == megakernel.BufferLayer {
			done, err = true, borrow(dev, buf.Name, beside)
		}
		if err != nil {
			return nil, fmt.Errorf("buffer %s: %w", buf.Name, err)
		} else if done {
			continue
		}
		bytes := buf.Bytes()
		if buf.Name == megakernel.BufferPrefillTable {
			bytes = 4 * int64(pages)
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
	if err := dev.Write(megakernel.BufferPrefillTable, 0, words(r.table)); err != nil {
		return nil, err
	}
	return r, r.zero("barrier", "epoch", "abort", "records", megakernel.BufferPrompt)
}

// Tokens is how many a step takes at most.
func (r *Prefill) Tokens() int { return r.long.Options.Tokens }

// Run appends the keys and values of tokens to a sequence of cached tokens, whose pages are given in order, and
// returns the token that follows, by argmax; batch.NoToken if it is quiet, which makes no logits. After a *HangError
// the next launch can run, the tokens of this one are lost; after any other error of a launch none can. It does not end
// before its time when ctx does.
func (r *Prefill) Run(ctx context.Context, tokens []int, cached int, pages []uint32,
	quiet bool) (chosen int, err error) {
	r.chosen = batch.NoToken
	chosen = batch.NoToken
	if err := r.feed(tokens, cached, pages); err != nil {
		return chosen, err
	}
	scalars := map[string]uint64{megakernel.ScalarPos: uint64(cached), megakernel.ScalarRows: uint64(len(tokens)),
		megakernel.ScalarPages: uint64(r.pages), megakernel.ScalarChooses: 1}
	if quiet {
		scalars[megakernel.ScalarChooses] = 0
	}
	l := &launch{s: &r.runner, ctx: context.WithoutCancel(ctx)}
	err = l.run(scalars)
	var hang *HangError
	if errors.As(err, &hang) {
		hang.Pos = cached
	}
	if err != nil || quiet {
		return chosen, err
	}
	word, err := r.read(megakernel.BufferChosen, 0, 1)
	if err != nil {
		return chosen, err
	}
	if int64(word[0]) >= int64(r.mk.Config.Vocab) {
		return chosen, &ResultError{fmt.Sprintf("a prefill step chose token %d, want 0 to %d", word[0], r.mk.Config.Vocab-1)}
	}
	r.chosen = int(word[0])
	return r.chosen, nil
}

// Logits reads those that follow the last token of the last launch into dst, Vocab long.
func (r *Prefill) Logits(dst []float32) error {
	if r.chosen == batch.NoToken {
		return errQuiet
	}
	return r.logits(0, dst)
}

// feed refuses a step that cannot be, and writes its tokens and pages.
func (r *Prefill) feed(tokens []int, cached int, pages []uint32) error {
	page, all := r.mk.KV.Page, cached+len(tokens)
	switch {
	case len(tokens) < 1 || len(tokens) > r.Tokens():
		return fmt.Errorf("a prefill step of %d tokens, want 1 to %d", len(tokens), r.Tokens())
	case cached < 0 || all > r.mk.Config.MaxPositions || (all+page-1)/page > len(pages):
		return fmt.Errorf("a prefill step of %d tokens behind %d cached ones on %d pages of %d, want pages for all, and at most %d tokens", len(tokens), cached, len(pages), page, r.mk.Config.MaxPositions)
	case len(pages) > len(r.table) || slices.ContainsFunc(pages, func(p uint32) bool { return int(p) >= r.pages }):
		return fmt.Errorf("pages %v, the cache has %d", pages, r.pages)
	}
	feed := make([]uint32, len(tokens))
	for i, t := range tokens {
		if t < 0 || t >= r.mk.Config.Vocab {
			return fmt.Errorf("token %d, want 0 to %d", t, r.mk.Config.Vocab-1)
		}
		feed[i] = uint32(t)
	}
	if err := r.dev.Write(megakernel.BufferPrompt, 0, words(feed)); err != nil {
		return err
	}
	if !slices.Equal(r.table[:len(pages)], pages) {
		copy(r.table, pages)
		if err := r.dev.Write(megakernel.BufferPrefillTable, 0, words(r.table)); err != nil {
			return err
		}
	}
	return r.failed
}
