package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
)

// Session is one sequence being decoded by one kernel on one device. Not safe
// for concurrent use.
type Session struct {
	runner
	table []uint32
	pos   int
}

// NewSession is OpenSession with weights from t and nothing else chosen.
func NewSession(mk *megakernel.Kernel, dev Device, t megakernel.Tensors, pages int, table []uint32, epoch uint32) (*Session, error) {
	return OpenSession(context.Background(), mk, dev, FromTensors(t, LoadOptions{}), SessionOptions{Pages: pages, Table: table, Epoch: epoch})
}

// SessionOptions are what a session needs beside kernel, device and weights.
type SessionOptions struct {
	Pages int      // pages a layer of the KV cache, at least 1
	Table []uint32 // page of tokens i·Page …; nil means 0, 1, 2 … Pages-1
	Epoch uint32   // the barrier counter that the first launch finds

	// KVScales are the scales of an e4m3 cache, [layer][KV head][K, V], positive: an
	// element stands for itself, at most ±448, times its scale. nil is the weights'
	// own, where they have some (KVScaler), else 1 for all. A kernel with a bf16 cache
	// has none and does not look.
	KVScales []float32
	// HeadScales are the factors of query heads, where the kernel's attention has them
	// (megakernel.BufferHeadScales); nil means 1.
	HeadScales []float32

	// From is the device of another session, of the same model and pages, whose weights and
	// KV cache this one uses, too; nil: it has its own. See Bundle.
	From Device
}

// OpenSession allocates and fills every buffer of the kernel. When ctx ends it
// stops loading and returns ctx's error; the device's buffers are then as they
// are, and only Close is of use.
func OpenSession(ctx context.Context, mk *megakernel.Kernel, dev Device, w Weights, o SessionOptions) (*Session, error) {
	table := o.Table
	if table == nil {
		for i := range o.Pages {
			table = append(table, uint32(i))
		}
	}
	if err := checkTable(table, o.Pages); err != nil {
		return nil, err
	}
	if mk.Ragged() {
		return nil, fmt.Errorf("a kernel of %d query rows a step, want one of 1; others are for OpenRagged", mk.Options.Tokens)
	}
	if g, ok := dev.(interface{ RunsGraph() bool }); ok && g.RunsGraph() != (mk.Graph != nil) {
		return nil, errors.New("a step that is a graph of kernels and a device that is loaded with one kernel, or the other way round")
	}
	s := &Session{runner: runner{mk: mk, dev: dev, pages: o.Pages, kvScales: o.KVScales, headScales: o.HeadScales, from: o.From}, table: slices.Clone(table)}
	if o.Pages < 1 || len(table) < 1 {
		return nil, fmt.Errorf("a KV cache of %d pages and a table of %d, want at least 1", o.Pages, len(table))
	}
	room := 4 * int64(s.Capacity()+1)
	if err := s.open(ctx, w, map[string]int64{"page_table": 4 * int64(len(table)), "tokens": room, "stream": room, "times": room}, o.Epoch); err != nil {
		return nil, err
	}
	return s, s.dev.Write("page_table", 0, words(s.table))
}

// Capacity is the number of tokens the page table has room for.
func (s *Session) Capacity() int { return len(s.table) * s.mk.KV.Page }

// Pos is the position of the next token.
func (s *Session) Pos() int { return s.pos }

// Vocab is how many tokens the model has.
func (s *Session) Vocab() int { return s.mk.Config.Vocab }

// Rewind makes the next token's position pos, at most Pos: later tokens of the
// cache are forgotten.
func (s *Session) Rewind(pos int) error {
	if pos < 0 || pos > s.pos {
		return fmt.Errorf("rewind to position %d, want 0 to %d", pos, s.pos)
	}
	s.pos = pos
	return nil
}

// SetTable replaces the page table by one of the same length, whose pages the
// cache must have; tokens already in the cache must keep their contents at the
// pages it names.
func (s *Session) SetTable(table []uint32) error {
	if len(table) != len(s.table) {
		return fmt.Errorf("a page table of %d pages, want %d", len(table), len(s.table))
	}
	if err := checkTable(table, s.pages); err != nil {
		return err
	}
	if err := s.dev.Write("page_table", 0, words(table)); err != nil {
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
func (s *Session) Step(token int) (next int, err error) {
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
func (s *Session) Generate(prompt []int, n int) (chosen []int, err error) {
	return s.Stream(context.Background(), prompt, n, func(int) bool { return true })
}

// check refuses a launch that cannot be, before anything is written, and returns
// its number of steps.
func (s *Session) check(prompt []int, n int) (steps int, err error) {
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
		return 0, fmt.Errorf("the KV cache is full: %d tokens in %d pages of %d, and %d to come", s.pos, len(s.table), s.mk.KV.Page, steps)
	}
	if limit := s.mk.Config.MaxPositions; s.pos+steps > limit {
		return 0, fmt.Errorf("position %d, and %d to come: the model was made for %d", s.pos, steps, limit)
	}
	return steps, nil
}

// result reads what a launch chose that began at known tokens and ended well.
func (s *Session) result(known, steps int) (chosen []int, err error) {
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
func (s *Session) Logits(dst []float32) error { return s.logits(0, dst) }

// Skip makes the next token's position pos (0 to Capacity) without feeding the
// tokens before it: their keys and values are whatever the cache holds. It is
// for timing, and for caches filled by other means.
func (s *Session) Skip(pos int) error {
	if pos < 0 || pos > s.Capacity() {
		return fmt.Errorf("skip to position %d, want 0 to %d", pos, s.Capacity())
	}
	s.pos = pos
	return nil
}
