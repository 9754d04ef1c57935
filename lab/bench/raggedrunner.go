package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/kv"
)

// Shape is what the query rows of a step are.
type Shape string

// The shapes that are measured.
const (
	// Sequences is a row for each of as many sequences as there are rows, all at the
	// same context: they decode, many steps a launch.
	Sequences Shape = "sequences"
	// Chunk is all rows of one sequence: part of a prompt, or a draft; a step a
	// launch, each time the same.
	Chunk Shape = "chunk"
)

// RaggedRunner measures steps of several query rows. Not safe for concurrent use.
type RaggedRunner struct {
	Session *runtime.Session
	Device  Device   // the session's
	Pages   []uint32 // of the cache: one for each, in the order in which sequences get them
	Page    int      // tokens of a page
	// Sequences is how many Steps of the shape Sequences are of; 0: as many as a step has
	// rows.
	Sequences int
	// Choice is how the rows of Sequences choose their tokens.
	Choice Choice
}

// sequences is Sequences or what it stands for.
func (r *RaggedRunner) sequences() int {
	if r.Sequences > 0 {
		return r.Sequences
	}
	return r.Session.Rows()
}

// Steps runs n steps of a shape, the first with cached tokens of each sequence in
// the cache, which holds whatever it holds. Each of the round is of steps: of a
// launch of many from choice to choice by the device's clock, else of the launch.
// The same call again must choose the same tokens.
func (r *RaggedRunner) Steps(ctx context.Context, shape Shape, cached, n int) (round Round, err error) {
	if shape == Chunk {
		return r.chunks(ctx, cached, n)
	}
	count := r.sequences()
	need, err := pagesEach(count, cached+n, r.Page, len(r.Pages))
	if err != nil {
		return round, err
	}
	rules := r.Choice.rules(count, r.Session.Vocab())
	q := batch.StepRequest{Steps: n, Mask: r.Choice.masks(rules)}
	for i := range count {
		s := batch.Sequence{New: []int{token(i, r.Session.Vocab())}, Cached: cached, Pages: r.Pages[i*need : (i+1)*need],
			Draw: rules[i]}
		q.Sequences = append(q.Sequences, s)
	}
	begin := time.Now()
	chosen, err := r.Session.Run(ctx, q)
	if err != nil {
		return round, err
	}
	if len(chosen) != n {
		return round, fmt.Errorf("a launch ran %d steps, want %d", len(chosen), n)
	}
	round.Wall, round.Device = time.Since(begin), r.Device.Elapsed()
	for _, tokens := range chosen {
		round.Chosen = append(round.Chosen, tokens...)
	}
	stamps, err := r.Session.Times(0, n)
	if err != nil {
		return round, err
	}
	if round.Each = apart(stamps); n == 1 {
		round.Each = []time.Duration{round.Device}
	}
	return round, nil
}

// pagesEach is how many pages each of some sequences takes; more than there are for all is an error.
func pagesEach(sequences, tokens, page, pages int) (int, error) {
	need := (tokens + page - 1) / page
	if need*sequences > pages {
		return 0, fmt.Errorf("%d sequences of %d tokens take %d pages, there are %d", sequences, tokens, need*sequences,
			pages)
	}
	return need, nil
}

// chunks runs the same step of one sequence n times.
func (r *RaggedRunner) chunks(ctx context.Context, cached, n int) (round Round, err error) {
	rows := r.Session.Rows()
	need := (cached + rows + r.Page - 1) / r.Page
	if need > len(r.Pages) {
		return round, fmt.Errorf("%d tokens take %d pages, there are %d", cached+rows, need, len(r.Pages))
	}
	s := batch.Sequence{Cached: cached, Pages: r.Pages[:need]}
	for i := range rows {
		s.New = append(s.New, token(i, r.Session.Vocab()))
	}
	begin := time.Now()
	for range n {
		chosen, err := r.Session.Run(ctx, batch.StepRequest{Sequences: []batch.Sequence{s}, Steps: 1})
		if err != nil {
			return round, err
		}
		round.Chosen = append(round.Chosen, chosen[0]...)
		round.Device += r.Device.Elapsed()
		round.Each = append(round.Each, r.Device.Elapsed())
	}
	round.Wall = time.Since(begin)
	return round, nil
}

// GateRunner is the gate.RaggedRunner of a session on a device, for a vocabulary.
type GateRunner struct {
	Session *runtime.Session
	Device  runtime.Device // the session's
	Vocab   int

	raw    []byte
	logits [][]float32 // what Run returned, to be used again
}

// Run runs one step and reads the logits of all its rows.
func (g *GateRunner) Run(ctx context.Context, step []kv.Sequence, _ []int) ([][]float32, error) {
	rows := 0
	for _, s := range step {
		rows += s.New
	}
	if _, err := g.Session.Launch(ctx, kv.Request{Sequences: step, Steps: 1}, nil); err != nil {
		return nil, err
	}
	for len(g.logits) < rows {
		g.logits = append(g.logits, make([]float32, g.Vocab))
		g.raw = append(g.raw, make([]byte, 4*g.Vocab)...)
	}
	raw := g.raw[:4*rows*g.Vocab]
	if err := g.Device.Read("logits", 0, raw); err != nil {
		return nil, err
	}
	for i, row := range g.logits[:rows] {
		if _, err := binary.Decode(raw[4*i*g.Vocab:], binary.LittleEndian, row); err != nil {
			return nil, err
		}
	}
	return g.logits[:rows], nil
}

// Mask writes the words of mask bits from the first on.
func (g *GateRunner) Mask(words []uint32) error { return g.Session.SetMask(0, words) }
