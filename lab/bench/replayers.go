package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
)

// cache is a KV cache that FillKV filled.
type cache struct {
	mk    *megakernel.Kernel
	dev   runtime.Device
	table []uint32 // of all its pages, in the order in which sequences get them
	block []byte   // what FillKV repeats
}

func cacheOf(mk *megakernel.Kernel, dev runtime.Device, table []uint32) *cache {
	return &cache{mk: mk, dev: dev, table: table}
}

// each calls f for every page, of every layer, that holds tokens cached to cached + n - 1 of the sequences; at is where
// its bytes begin.
func (c *cache) each(sequences, cached, n int, f func(at, bytes int64, p PageSum) error) error {
	page, bytes := c.mk.KV.Page, int64(c.mk.KV.PageBytes())
	need, err := pagesEach(sequences, cached+n, page, len(c.table))
	if err != nil {
		return err
	}
	for layer := range c.mk.Config.Layers {
		for q := range sequences {
			for i := cached / page; i < need; i++ {
				at := (int64(layer)*int64(len(c.table)) + int64(c.table[q*need+i])) * bytes
				if err := f(at, bytes, PageSum{Layer: layer, Sequence: q, Token: i * page}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *cache) renew(sequences, cached, n int) error {
	if c.block == nil {
		c.block = syntheticKV(int64(c.mk.Config.Layers) * int64(len(c.table)) * int64(c.mk.KV.PageBytes()))
	}
	return c.each(sequences, cached, n,
		func(at, bytes int64, _ PageSum) error { return refillKV(c.dev, c.block, at, bytes) })
}

func (c *cache) left(sequences, cached, n, rows int, logits func(row int, dst []float32) error) (*Left, error) {
	l, raw := &Left{}, make([]byte, c.mk.KV.PageBytes())
	for row := range rows {
		l.Logits = append(l.Logits, make([]float32, c.mk.Config.Vocab))
		if err := logits(row, l.Logits[row]); err != nil {
			return nil, err
		}
	}
	return l, c.each(sequences, cached, n, func(at, _ int64, p PageSum) error {
		if err := c.dev.Read("kv", at, raw); err != nil {
			return err
		}
		p.Sum = sha256.Sum256(raw)
		l.Pages = append(l.Pages, p)
		return nil
	})
}

// sessionReplayer is the Replayer of a SessionRunner's session.
type sessionReplayer struct {
	*cache
	session *runtime.Sequence
	choice  Choice
}

func (s *sessionReplayer) Renew(cached, n int) error {
	return errors.Join(s.renew(1, cached, n), s.session.SetDraw(s.choice.rules(1, s.session.Vocab())[0]))
}

func (s *sessionReplayer) Step(ctx context.Context, position, _ int, tokens []int) ([]int, error) {
	if err := s.session.Skip(position); err != nil {
		return nil, err
	}
	return s.session.Stream(ctx, tokens, 1, func(int) bool { return true })
}

func (s *sessionReplayer) Left(cached, n int) (*Left, error) {
	return s.left(1, cached, n, 1, func(_ int, dst []float32) error { return s.session.Logits(dst) })
}

// raggedReplayer is the Replayer of a RaggedRunner's session, for one shape.
type raggedReplayer struct {
	*cache
	session   *runtime.Session
	shape     Shape
	sequences int // of the shape Sequences
	choice    Choice
	rules     []draw.Rule // of the rows, with the tokens that were chosen since Renew
}

// count is how many sequences there are, and how many rows of a step.
func (r *raggedReplayer) count() (sequences, rows int) {
	if r.shape == Chunk {
		return 1, r.session.Rows()
	}
	return r.sequences, r.sequences
}

func (r *raggedReplayer) Renew(cached, n int) error {
	sequences, _ := r.count()
	if r.shape == Sequences {
		r.rules = r.choice.rules(sequences, r.session.Vocab())
	}
	return r.renew(sequences, cached, n)
}

// Step is cut as the launch was that is replayed: another cut adds up in another order.
func (r *raggedReplayer) Step(ctx context.Context, position, left int, tokens []int) ([]int, error) {
	page := r.mk.KV.Page
	need := (position + 1 + left + page - 1) / page
	q := kv.Request{Steps: 1, Ahead: left}
	for i, token := range tokens {
		q.Sequences = append(q.Sequences, kv.Sequence{Cached: position, New: 1, Tokens: []uint32{uint32(token)},
			Pages: r.table[i*need : (i+1)*need], Grow: true})
	}
	if err := r.session.SetDraws(r.rules...); err != nil {
		return nil, err
	}
	chosen, err := r.session.Launch(ctx, q, nil)
	if err != nil {
		return nil, err
	}
	if len(chosen) != 1 {
		return nil, fmt.Errorf("a launch ran %d steps, want 1", len(chosen))
	}
	for i := range r.rules {
		r.rules[i].Took(chosen[0][i])
	}
	return chosen[0], nil
}

func (r *raggedReplayer) Left(cached, n int) (*Left, error) {
	sequences, rows := r.count()
	return r.left(sequences, cached, n, rows, r.session.RowLogits)
}
