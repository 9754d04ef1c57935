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

// Session is one kernel on one device: each step has rows for tokens of any number of
// sequences, whose pages the caller names. A kernel of one row takes one sequence a launch,
// and feeds its tokens in steps of their own. It is a batch.Stepper. Not safe for concurrent use.
type Session struct {
	runner
	o   Options
	one *Sequence // runs the launches of a kernel of one row; nil: there are several, and what follows is for them

	planner *kv.Planner
	seqs    []kv.Sequence // memory of the last request
	last    []int         // the last row of each sequence of the last launch; -1 for none
	count   int           // its rows
	quiet   bool          // it made no logits
	chose   []int         // by row, of its last step
	planned *kv.Plan

	rowDraws []draw.Rule // of Launch

	used int // page table entries of the last launch

	// what the device has
	rows, entries, positions, merges mirror

	items []uint32 // "attn_plan": every CTA has other items in every launch, so it is written as a whole
}

// Options are what a session needs beside kernel, device and weights. Those without a use for a kernel's rows are not
// looked at.
type Options struct {
	Pages int    // pages a layer of the KV cache, at least 1
	Guard uint32 // page that page table entries without a use name
	Epoch uint32 // the barrier counter that the first launch finds

	// Table is of a kernel of one row: the page of tokens i·Page …, as many as a sequence may
	// have. nil: Guard for all, of as many pages as there are beside it.
	Table []uint32

	Steps   int // of several rows: steps of a launch at most; 0 for 1
	Entries int // entries of all page tables of a launch at most; 0 for what full sequences need that select no pages

	// KVScales are the scales of an e4m3 cache, [layer][KV head][K, V], positive: an
	// element stands for itself, at most ±448, times its scale. nil is the weights'
	// own, where they have some (KVScaler), else 1 for all. A kernel with a bf16 cache
	// has none and does not look.
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

	// From is the device of another session, of the same model and pages, whose weights and
	// KV cache this one uses, too; nil: it has its own. See Bundle.
	From Device
}

// Open allocates and fills every buffer of a kernel. When ctx ends it stops loading and
// returns ctx's error; the device's buffers are then as they are, and only Close is of use.
func Open(ctx context.Context, mk *megakernel.Kernel, dev Device, w Weights, o Options) (*Session, error) {
	if o.Pages < 1 || o.Entries < 0 || int64(o.Guard) >= int64(o.Pages) {
		return nil, fmt.Errorf("a KV cache of %d pages, guard %d, and %d page table entries, want at least 1, a page of it, and at least 0", o.Pages, o.Guard, o.Entries)
	}
	o.Steps = max(o.Steps, 1)
	r := &Session{runner: runner{mk: mk, dev: dev, pages: o.Pages, kvScales: o.KVScales, headScales: o.HeadScales,
		from: o.From}, o: o}
	open := r.openOne
	if mk.Ragged() {
		open = r.openRows
	}
	if err := open(ctx, w); err != nil {
		return nil, err
	}
	return r, nil
}

// openRows is Open of a kernel of several rows.
func (r *Session) openRows(ctx context.Context, w Weights) error {
	mk, o := r.mk, &r.o
	if o.Entries == 0 {
		o.Entries = mk.Options.Tokens * min(o.Pages, (mk.Config.MaxPositions+mk.KV.Page-1)/mk.KV.Page)
	}
	if !mk.HasMask() {
		o.MaskWords = 0
	} else if o.MaskWords == 0 {
		o.MaskWords = mk.Options.Tokens * ((mk.Config.MaxPositions + 31) / 32)
	}
	if o.MaskWords < 0 {
		return fmt.Errorf("%d words of mask bits, want at least 0", o.MaskWords)
	}
	if err := r.SetCosts(o.Costs); err != nil {
		return err
	}
	steps := 4 * int64(o.Steps)
	sizes := map[string]int64{megakernel.BufferEntries: 4 * int64(o.Entries),
		megakernel.BufferPositions: 4 * int64(o.Entries), megakernel.BufferMask: 4 * int64(o.MaskWords),
		"stream": steps * int64(mk.Options.Tokens), "times": steps}
	if err := r.open(ctx, w, sizes, o.Epoch); err != nil {
		return err
	}
	return r.mirrors(mk.Limits(r.pages))
}

// SetCosts makes the planner weigh attention work anew from the next launch on; zero:
// kv.DefaultCosts.
func (r *Session) SetCosts(c kv.Costs) error {
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
func (r *Session) mirrors(limits kv.Limits) error {
	classes := len(r.mk.Classes())
	r.rows = newMirror(megakernel.BufferRows, limits.Rows*kv.RowWords)
	r.entries = newMirror(megakernel.BufferEntries, r.o.Entries)
	r.entries.want = slices.Repeat([]uint32{r.o.Guard}, r.o.Entries)
	var err error
	if r.items, err = keep(r.dev, limits.WorkWords(classes)); err != nil {
		return err
	}
	r.merges = newMirror(megakernel.BufferMerges, limits.MergeWords(classes))
	all := []*mirror{&r.rows, &r.entries, &r.merges}
	if r.mk.Options.Selection {
		r.positions = newMirror(megakernel.BufferPositions, r.o.Entries)
		all = append(all, &r.positions)
	}
	err = r.dev.Write(megakernel.BufferWork, 0, words(r.items))
	for _, m := range all {
		err = errors.Join(err, m.all(r.dev))
	}
	if err != nil {
		return err
	}
	if r.o.MaskWords > 0 {
		return r.SetMask(0, slices.Repeat([]uint32{1<<32 - 1}, r.o.MaskWords))
	}
	return nil
}

// Rows is how many tokens a step takes at most.
func (r *Session) Rows() int { return r.mk.Options.Tokens }

// Plan is that of the last launch, valid until the next; nil before the first.
func (r *Session) Plan() *kv.Plan { return r.planned }

// ChunkTokens is what Options.Pin and kv.Request.PinTokens are multiples of.
func (r *Session) ChunkTokens() int { return r.mk.ChunkTokens() }

// Times are when the steps of the last launch from from on chose their tokens, n of
// them: nanoseconds of the device's clock, modulo 2³². The kernel has several rows.
func (r *Session) Times(from, n int) ([]uint32, error) { return r.read("times", from, n) }

// Logits reads the logits that follow the last new token of sequence i of the last
// launch, of its last step, into dst, Vocab long.
func (r *Session) Logits(i int, dst []float32) error {
	switch {
	case r.one != nil && i != 0:
		return fmt.Errorf("logits of sequence %d, the last launch had 1", i)
	case r.one != nil:
		return r.one.Logits(dst)
	case i < 0 || i >= len(r.last):
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
func (r *Session) Choice(i, k int) (int, error) {
	if r.one != nil {
		return 0, errors.New("the choice of a row after a launch of one row")
	}
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
func (r *Session) TokenLogits(i, k int, dst []float32) error {
	switch {
	case r.one != nil && k != 0:
		return fmt.Errorf("logits of new token %d of sequence %d, there are those of the last one", k, i)
	case r.one != nil:
		return r.Logits(i, dst)
	}
	row, err := r.rowOf(i, k)
	if err != nil {
		return err
	}
	return r.RowLogits(row, dst)
}

// rowOf is the row of new token k of a sequence of the last launch.
func (r *Session) rowOf(i, k int) (int, error) {
	if i < 0 || i >= len(r.last) || r.last[i] < 0 {
		return 0, fmt.Errorf("new token %d of sequence %d, which had none or was not there: the last launch had %d", k, i,
			len(r.last))
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
func (r *Session) RowLogits(row int, dst []float32) error {
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
func (r *Session) SetMask(from int, bits []uint32) error {
	if !r.mk.HasMask() {
		return errors.New("mask bits for a kernel whose attention has no mask")
	}
	if from < 0 || from+len(bits) > r.o.MaskWords {
		return fmt.Errorf("mask words %d to %d, want 0 to %d", from, from+len(bits)-1, r.o.MaskWords-1)
	}
	return r.dev.Write(megakernel.BufferMask, 4*int64(from), words(bits))
}

// upload writes what the device does not have yet.
func (r *Session) upload(p *kv.Plan) error {
	p.EncodeWork(r.items)
	r.merges.encode(p.EncodeMerge)
	r.rows.encode(func(dst []uint32) { copy(dst, p.Rows) })
	r.entries.encode(func(dst []uint32) {
		n := copy(dst, p.Entries)
		for i := n; i < r.used; i++ {
			dst[i] = r.o.Guard
		}
		r.entries.used, r.used = max(n, r.used), n
	})
	r.positions.encode(func(dst []uint32) { copy(dst, p.Positions) })
	return errors.Join(writeAhead(r.dev, megakernel.BufferWork, 0, words(r.items)), r.merges.changed(r.dev),
		r.rows.changed(r.dev), r.entries.changed(r.dev), r.positions.changed(r.dev))
}

// peek is what a step chose for each row, or nil when it has not yet.
func (r *Session) peek(step int) ([]int, error) {
	var chosen []int
	for row := range r.count {
		token, err := r.dev.Peek("stream", step*r.Rows()+row)
		if err != nil || token == noToken {
			return nil, err
		}
		if chosen == nil { // most looks find nothing
			chosen = make([]int, 0, r.count)
		}
		chosen = append(chosen, int(token))
	}
	return chosen, nil
}

// result is what each step of a launch that has ended well chose.
func (r *Session) result(steps int) ([][]int, error) {
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
			return nil, &ResultError{fmt.Sprintf("step %d of %d that ran chose %v for %d rows, want tokens below %d", step, ran,
				chosen, r.count, r.mk.Config.Vocab)}
		}
		all = append(all, chosen)
	}
	return all, nil
}
