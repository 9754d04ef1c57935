package attention

import (
	"cmp"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
	"github.com/mkgen/mkgen/tasks/product"
)

// QKVColumns is QKV of several tokens, each with a position and a page of its own.
type QKVColumns struct {
	QKV     // Q is [T][Heads][D]
	T   int // most tokens of a step
}

// StartAhead is Epilogue for the product g, and ahead, to be given to g.Consume as what it does meanwhile, or nil where
// a thread finishes more than one pair: it works out what the thread's pair is rotated by, so that this does not stand
// between the last row and the sync.
func (t *QKVColumns) StartAhead(e *grid.Env, s Step, rows *product.ColumnRows, scale product.ColumnScale,
	g *product.GEMM,
	share product.Share) (ahead func(), epilogue product.ColumnEpilogue) {
	if !g.OnePair(e) || t.problem() != "" {
		return nil, t.Epilogue(e, s, rows, scale)
	}
	early := &product.Early{Pairs: t.EarlyPairs()}
	early.Start(e)
	ahead = func() {
		e.K.Note("%s: cosine and sine of this thread's pair", g.Name)
		g.PairOf(e, share, rows.Count, func(row, token u32) {
			at := s
			at.Pos = dsl.Optional(rows.Position(token))
			early.Set(t.Ahead(e, at, row))
		})
	}
	fetched := *t
	fetched.Early = &product.Fetched{In: early}
	return ahead, fetched.Epilogue(e, s, rows, scale)
}

// Epilogue finishes rows as they come. rows must have been loaded.
func (t *QKVColumns) Epilogue(e *grid.Env, s Step, rows *product.ColumnRows,
	scale product.ColumnScale) product.ColumnEpilogue {
	p := cmp.Or(t.problem(), t.KV.stepProblem(s))
	if want := t.T * t.Heads * t.KV.D; p == "" {
		p = rule.Need(int(t.Q.Len()) >= want, "qkv: Q has %d elements, want %d for %d tokens", t.Q.Len(), want, t.T).Failed()
	}
	if p != "" {
		e.K.Require(false, "%s", p)
		return func(_, _ u32, _, _ f32) {}
	}
	return func(row, token u32, y0, y1 f32) {
		st := t.stores(place{t: &t.QKV, e: e, s: s, page: rows.Page(token), slot: rows.Slot(token, t.KV.Page).Named("slot"),
			row: token})
		by, pos := scale(token), dsl.Optional(rows.Position(token))
		t.finish(e, s, row, y0.Mul(by), y1.Mul(by), pos, st, func(head u32) u32 { return token.MulC(t.Heads).Add(head) })
	}
}
