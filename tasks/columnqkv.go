package tasks

import (
	"cmp"

	"github.com/mkgen/mkgen/dsl"
)

// QKVColumns is QKV of several tokens, each with a position and a page of its own.
type QKVColumns struct {
	QKV     // Q is [T][Heads][D]
	T   int // most tokens of a step
}

// StartAhead is Epilogue for the product g, and ahead, to be given to g.Consume as what it does meanwhile, or nil where
// a thread finishes more than one pair: it works out what the thread's pair is rotated by, so that this does not stand
// between the last row and the sync.
func (t *QKVColumns) StartAhead(e *Env, s Step, rows *ColumnRows, scale ColumnScale, g *GEMM,
	share Share) (ahead func(), epilogue ColumnEpilogue) {
	if !g.onePair(e) || t.problem() != "" {
		return nil, t.Epilogue(e, s, rows, scale)
	}
	early := &Early{Pairs: t.EarlyPairs()}
	early.Start(e)
	ahead = func() {
		e.K.Note("%s: cosine and sine of this thread's pair", g.Name)
		g.pairOf(e, share, rows.Count, func(row, token u32) {
			at := s
			at.Pos = dsl.Optional(rows.Position(token))
			early.set(t.Ahead(e, at, row))
		})
	}
	fetched := *t
	fetched.Early = &Fetched{in: early}
	return ahead, fetched.Epilogue(e, s, rows, scale)
}

// Epilogue finishes rows as they come. rows must have been loaded.
func (t *QKVColumns) Epilogue(e *Env, s Step, rows *ColumnRows, scale ColumnScale) ColumnEpilogue {
	p := cmp.Or(t.problem(), t.KV.stepProblem(s))
	if want := t.T * t.Heads * t.KV.D; p == "" {
		p = need(int(t.Q.Len()) >= want, "qkv: Q has %d elements, want %d for %d tokens", t.Q.Len(), want, t.T).failed()
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
