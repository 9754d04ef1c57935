package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/megakernel"
)

// Sequence is one sequence being decoded by a kernel of one row on one device. Not safe
// for concurrent use.
type Sequence struct {
	*runner
	table []uint32
	pos   int
}

// NewSequence is OpenSequence with weights from t and nothing else chosen.
func NewSequence(mk *megakernel.Kernel, dev Device, t megakernel.Tensors, pages int, table []uint32,
	epoch uint32) (*Sequence, error) {
	return OpenSequence(context.Background(), mk, dev, FromTensors(t, LoadOptions{}),
		Options{Pages: pages, Table: table, Epoch: epoch})
}

// OpenSequence is Open of a kernel of one row for one sequence. Without Options.Table it has all pages, in order.
func OpenSequence(ctx context.Context, mk *megakernel.Kernel, dev Device, w Weights, o Options) (*Sequence, error) {
	if mk.Ragged() {
		return nil, fmt.Errorf("a kernel of %d query rows a step, want one of 1; others are for Open", mk.Options.Tokens)
	}
	if o.Table == nil {
		for i := range o.Pages {
			o.Table = append(o.Table, uint32(i))
		}
	}
	s, err := Open(ctx, mk, dev, w, o)
	if err != nil {
		return nil, err
	}
	return s.one, nil
}

// openOne is Open of a kernel of one row.
func (r *Session) openOne(ctx context.Context, w Weights) error {
	table := slices.Clone(r.o.Table)
	if table == nil {
		table = slices.Repeat([]uint32{r.o.Guard}, max(1, r.pages-1))
	}
	if err := checkTable(table, r.pages); err != nil {
		return err
	}
	if len(table) < 1 {
		return errors.New("a page table of no page, want at least 1")
	}
	if g, ok := r.dev.(interface{ RunsGraph() bool }); ok && g.RunsGraph() != (r.mk.Graph != nil) {
		return errors.New("a step that is a graph of kernels and a device that is loaded with one kernel, or the other way round")
	}
	r.one = &Sequence{runner: &r.runner, table: table}
	room := 4 * int64(r.one.Capacity()+1)
	if err := r.open(ctx, w, map[string]int64{"page_table": 4 * int64(len(table)), "tokens": room, "stream": room,
		"times": room}, r.o.Epoch); err != nil {
		return err
	}
	return r.dev.Write("page_table", 0, words(table))
}

// oneRows is how many tokens of a prompt a launch of a kernel of one row feeds at most, a step each: few enough that a
// request that is cancelled ends soon.
const oneRows = 64

// runOne is Run of a kernel of one row, which feeds the tokens of one sequence in steps of their own.
func (r *Session) runOne(ctx context.Context, q batch.StepRequest) ([][]int, error) {
	rows := 0
	for i := range q.Sequences {
		rows += len(q.Sequences[i].New)
	}
	if len(q.Sequences) != 1 || rows > 1 && q.Steps > 1 || rows > oneRows {
		return nil, fmt.Errorf("%d sequences with %d tokens to feed, want 1: there is no kernel of several rows",
			len(q.Sequences), rows)
	}
	one, s := r.one, &q.Sequences[0]
	table := slices.Repeat([]uint32{r.o.Guard}, len(one.table))
	if copy(table, s.Pages) < len(s.Pages) {
		return nil, fmt.Errorf("sequence 0: %d pages, the cache has %d", len(s.Pages), len(table))
	}
	rule := r.scoring(s, len(s.New)-1, s.Draw)
	if err := errors.Join(one.SetTable(table), one.SetShort(q.Short), one.SetDraw(rule), one.Skip(s.Cached)); err != nil {
		return nil, err
	}
	one.nextMask = q.Mask
	chosen, err := one.Stream(ctx, s.New, q.Steps, func(token int) bool {
		return q.Each == nil || q.Quiet || q.Each([]int{token})
	})
	var all [][]int
	for _, token := range chosen {
		if q.Quiet {
			token = batch.NoToken
		}
		all = append(all, []int{token})
	}
	return all, err
}

// Capacity is the number of tokens the page table has room for.
func (s *Sequence) Capacity() int { return len(s.table) * s.mk.KV.Page }

// Pos is the position of the next token.
func (s *Sequence) Pos() int { return s.pos }

// Rewind makes the next token's position pos, at most Pos: later tokens of the
// cache are forgotten.
func (s *Sequence) Rewind(pos int) error {
	if pos < 0 || pos > s.pos {
		return fmt.Errorf("rewind to position %d, want 0 to %d", pos, s.pos)
	}
	s.pos = pos
	return nil
}

// SetTable replaces the page table by one of the same length, whose pages the
// cache must have; tokens already in the cache must keep their contents at the
// pages it names.
func (s *Sequence) SetTable(table []uint32) error {
	if len(table) != len(s.table) {
		return fmt.Errorf("a page table of %d pages, want %d", len(table), len(s.table))
	}
	if err := checkTable(table, s.pages); err != nil {
		return err
	}
	if err := writeAhead(s.dev, "page_table", 0, words(table)); err != nil {
		return err
	}
	s.table = slices.Clone(table)
	return nil
}

// checkTable refuses a page table that leads outside a cache of pages pages.
func checkTable(table []uint32, pages int) error {
	for i, p := range table {
		if int64(p) >= int64(pages) {
			return fmt.Errorf("page table entry %d is page %d, the cache has %d", i, p, pages)
		}
	}
	return nil
}

// Step feeds one token and returns the next one by argmax. The logits stay on
// the device; Logits reads them.
func (s *Sequence) Step(token int) (next int, err error) {
	chosen, err := s.Generate([]int{token}, 1)
	if err != nil {
		return 0, err
	}
	if len(chosen) == 0 {
		return 0, &ResultError{fmt.Sprintf("the launch was stopped before position %d", s.pos)}
	}
	return chosen[0], nil
}

// Generate feeds the tokens of a prompt (at least one) and then what it chooses
// itself, by argmax, in one launch. It returns the n tokens chosen (n at least
// 1), fewer when one of the end tokens (SetEnds) is among them, which is then
// the last. The token chosen last is not in the cache yet: feed it to go on.
// The logits of the last step stay on the device; Logits reads them.
func (s *Sequence) Generate(prompt []int, n int) (chosen []int, err error) {
	return s.Stream(context.Background(), prompt, n, func(int) bool { return true })
}

// check refuses a launch that cannot be, before anything is written, and returns
// its number of steps.
func (s *Sequence) check(prompt []int, n int) (steps int, err error) {
	for _, token := range prompt {
		if token < 0 || token >= s.mk.Config.Vocab {
			return 0, fmt.Errorf("token %d, want 0 to %d", token, s.mk.Config.Vocab-1)
		}
	}
	if s.failed != nil {
		return 0, s.failed
	}
	if len(prompt) < 1 || n < 1 {
		return 0, fmt.Errorf("a prompt of %d tokens and %d to choose, want at least 1 each", len(prompt), n)
	}
	steps = len(prompt) + min(n, s.Capacity()+1) - 1 // n may be so large that the sum would overflow
	if s.pos+steps > s.Capacity() {
		return 0, fmt.Errorf("the KV cache is full: %d tokens in %d pages of %d, and %d to come", s.pos, len(s.table),
			s.mk.KV.Page, steps)
	}
	if limit := s.mk.Config.MaxPositions; s.pos+steps > limit {
		return 0, fmt.Errorf("position %d, and %d to come: the model was made for %d", s.pos, steps, limit)
	}
	return steps, nil
}

// result reads what a launch chose that began at known tokens and ended well.
func (s *Sequence) result(known, steps int) (chosen []int, err error) {
	end, err := s.dev.Peek("progress", 0)
	if err != nil {
		return nil, err
	}
	if int64(end) < int64(s.pos) || int64(end) > int64(s.pos+steps) {
		return nil, &ResultError{fmt.Sprintf("the launch ended at position %d, want %d to %d", end, s.pos, s.pos+steps)}
	}
	s.pos = int(end)
	if s.pos < known {
		return nil, nil // stopped within the prompt
	}
	out, err := s.read("tokens", known, s.pos+1-known)
	for _, token := range out {
		chosen = append(chosen, int(token))
	}
	return chosen, err
}

// ResultError says that what a launch left behind cannot be: the kernel is at
// fault, or a session's buffers were changed by others.
type ResultError struct{ Text string }

func (e *ResultError) Error() string { return e.Text }

// Logits reads the logits of the last step into dst, Vocab long.
func (s *Sequence) Logits(dst []float32) error { return s.logits(0, dst) }

// Skip makes the next token's position pos (0 to Capacity) without feeding the
// tokens before it: their keys and values are whatever the cache holds. It is
// for timing, and for caches filled by other means.
func (s *Sequence) Skip(pos int) error {
	if pos < 0 || pos > s.Capacity() {
		return fmt.Errorf("skip to position %d, want 0 to %d", pos, s.Capacity())
	}
	s.pos = pos
	return nil
}
