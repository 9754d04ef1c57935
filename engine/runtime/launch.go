package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/draw"
)

// Run runs one launch; see batch.Stepper. After a *HangError the session can go on,
// the tokens of the launch are lost; after any other error but the context's no
// launch can follow.
func (r *Session) Run(ctx context.Context, q batch.StepRequest) ([][]int, error) {
	r.begun = q.Begun
	if r.one != nil {
		return r.runOne(ctx, q)
	}
	for len(r.seqs) < len(q.Sequences) {
		r.seqs = append(r.seqs, kv.Sequence{})
	}
	for i, s := range q.Sequences {
		if len(s.New) < 1 {
			return nil, fmt.Errorf("sequence %d: no token to feed", i)
		}
		tokens := r.seqs[i].Tokens[:0]
		for _, token := range s.New {
			if token < 0 || token >= r.mk.Config.Vocab {
				return nil, r.refuseToken(i, int64(token))
			}
			tokens = append(tokens, uint32(token))
		}
		r.seqs[i] = kv.Sequence{Pages: s.Pages, Cached: s.Cached, New: len(tokens), Tokens: tokens, Grow: q.Steps > 1}
	}
	if err := r.SetShort(q.Short); err != nil {
		return nil, err
	}
	lasts := func(chosen []int) []int {
		out := make([]int, len(r.last))
		for i, row := range r.last {
			out[i] = chosen[row]
		}
		return out
	}
	if q.Steps < 1 {
		return nil, r.refuseSteps(len(q.Sequences), q.Steps)
	}
	if q.Quiet && q.Steps != 1 {
		return nil, fmt.Errorf("%d steps of which nobody wants the tokens, want 1", q.Steps)
	}
	r.nextMask = q.Mask
	all, err := r.launch(ctx, kv.Request{Sequences: r.seqs[:len(q.Sequences)], Steps: q.Steps}, r.lastDraws(q.Sequences),
		q.Quiet, func(_ int, chosen []int) bool {
			return q.Each == nil || q.Each(lasts(chosen))
		})
	for i, chosen := range all {
		all[i] = lasts(chosen)
	}
	return all, err
}

// Launch runs one launch of anything that package kv can plan: prefill chunks, draft
// trees (Parents), masks (SetMask and Masks), selected pages (Select; the kernel needs
// Options.Selection), parts pinned (PinTokens). Sequences need Tokens; Classes is the
// kernel's; PinTokens and Single are the session's unless they are set. The request's
// slices are the session's until Launch returns.
//
// each (nil for none) is called after every step with the token that follows each row,
// on the caller's goroutine; when it returns false the launch is to end soon.
// The result is these tokens for every step that ran, perhaps more than each was called
// for. Errors are as those of Run.
func (r *Session) Launch(ctx context.Context, q kv.Request, each func(step int, chosen []int) bool) ([][]int, error) {
	r.nextMask, r.begun = nil, nil
	return r.launch(ctx, q, r.rowDraws, false, each)
}

// lastDraws has the last row of each sequence choose as that says, and those score that are to.
func (r *Session) lastDraws(of []batch.Sequence) (rows []draw.Rule) {
	for i := range of {
		s := &of[i]
		for k := range s.New {
			rule := draw.Rule{}
			if k == len(s.New)-1 {
				rule = s.Draw
			}
			rows = append(rows, r.scoring(s, k, rule))
		}
	}
	return rows
}

// scoring is a rule for new token k of a sequence, with the scores that are wanted where it chooses nothing itself.
func (r *Session) scoring(s *batch.Sequence, k int, rule draw.Rule) draw.Rule {
	if k < len(s.Scored) && s.Scored[k] >= 0 && r.mk.Draws() {
		rule = draw.Rule{}
		rule.SetTops(s.ScoredTops)
		rule.SetTarget(s.Scored[k])
	}
	return rule
}

// launch is Launch, or with quiet a launch of one step without LM head, which chooses
// batch.NoToken for every row.
func (r *Session) launch(ctx context.Context, q kv.Request, draws []draw.Rule, quiet bool,
	each func(step int, chosen []int) bool) ([][]int, error) {
	q.Steps = max(q.Steps, 1)
	if err := r.check(&q); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	plan, err := r.plan(q)
	if err != nil {
		return nil, err
	}
	width := r.Rows()
	if err := errors.Join(r.renew(q.Steps), r.upload(plan), r.clear(0, q.Steps*width, 0), r.setDraws(draws...),
		r.maskSteps(1, q.Steps, r.nextMask)); err != nil {
		return nil, err
	}
	r.places(q.Sequences)
	var chosen []int
	hand := func(step int) bool { return each == nil || each(step, chosen) }
	l := &launch{s: &r.runner, ctx: ctx, end: q.Steps, each: hand, come: func(step int) (come bool, err error) {
		chosen, err = r.peek(step)
		return chosen != nil, err
	}}
	scalars := map[string]uint64{megakernel.ScalarRows: uint64(plan.RowCount), megakernel.ScalarChooses: 1,
		megakernel.ScalarSteps: uint64(q.Steps), megakernel.ScalarPages: uint64(r.pages)}
	if quiet {
		scalars[megakernel.ScalarChooses] = 0
	}
	if err := l.run(r.scalar(scalars)); err != nil {
		return nil, err
	}
	if r.quiet = quiet; quiet {
		return [][]int{slices.Repeat([]int{batch.NoToken}, r.count)}, ctx.Err()
	}
	all, err := r.result(q.Steps)
	if err != nil {
		return nil, err
	}
	ran := len(all)
	all = all[:r.masks.steps(ran)]
	r.chose = all[len(all)-1]
	r.drew(len(all), ran)
	for i := l.next; i < len(all) && !l.stopping; i++ {
		chosen = all[i]
		l.stopping = !hand(i)
	}
	return all, ctx.Err()
}

// places says which token of its sequence each row chooses first.
func (r *Session) places(of []kv.Sequence) {
	row := 0
	for i := range of {
		for k := range of[i].New {
			if row < len(r.asked) {
				r.asked[row].first = of[i].Cached + k + 1
			}
			row++
		}
	}
}

// check refuses a launch that cannot be, but for what the planner looks at.
func (r *Session) check(q *kv.Request) error {
	if r.one != nil {
		return errors.New("a launch of rows by a kernel of one, want Run")
	}
	if r.failed != nil {
		return r.failed
	}
	if len(q.Sequences) < 1 || q.Steps > r.o.Steps {
		return r.refuseSteps(len(q.Sequences), q.Steps)
	}
	rows := 0
	for i := range q.Sequences {
		s := &q.Sequences[i]
		rows += max(s.New, 0)
		if s.New > 0 && len(s.Tokens) != s.New {
			return fmt.Errorf("sequence %d: %d tokens for %d new ones", i, len(s.Tokens), s.New)
		}
		for _, token := range s.Tokens {
			if int64(token) >= int64(r.mk.Config.Vocab) {
				return r.refuseToken(i, int64(token))
			}
		}
		if end, limit := s.Cached+s.New+q.Steps-1, r.mk.Config.MaxPositions; s.New > 0 && end > limit {
			return fmt.Errorf("sequence %d: position %d, the model was made for %d", i, end-1, limit)
		}
		if err := r.checkMasks(i, s, q.Steps); err != nil {
			return err
		}
	}
	if rows == 0 {
		return errors.New("no token to feed in any sequence")
	}
	return nil
}

// checkMasks refuses rows whose bits lie beyond the mask buffer.
func (r *Session) checkMasks(i int, s *kv.Sequence, steps int) error {
	if !r.mk.HasMask() {
		if s.Masks != nil {
			return fmt.Errorf("sequence %d: masks, but the kernel's attention has none", i)
		}
		return nil
	}
	need := (s.Cached + s.New + steps - 1 + 31) / 32
	for _, first := range append([]uint32{0}, s.Masks...) {
		if end := int64(first) + int64(need); end > int64(r.o.MaskWords) {
			return fmt.Errorf("sequence %d: mask words %d to %d, there are %d", i, first, end-1, r.o.MaskWords)
		}
	}
	return nil
}

func (r *Session) refuseSteps(sequences, steps int) error {
	return fmt.Errorf("%d sequences and %d steps, want at least 1 and 1 to %d", sequences, steps, r.o.Steps)
}

func (r *Session) refuseToken(i int, token int64) error {
	return fmt.Errorf("sequence %d: token %d, want 0 to %d", i, token, r.mk.Config.Vocab-1)
}

// plan plans the attention work of a launch and says which row is a sequence's last.
func (r *Session) plan(q kv.Request) (*kv.Plan, error) {
	q.Classes = r.mk.Classes()
	q.Single = q.Single || r.o.Single
	if q.PinTokens == 0 {
		q.PinTokens = r.o.Pin
	}
	p, err := r.planner.Plan(q)
	if err != nil {
		return nil, err
	}
	r.last, r.count, r.planned = r.last[:0], 0, p
	for i := range q.Sequences {
		last := -1
		if n := q.Sequences[i].New; n > 0 {
			r.count += n
			last = r.count - 1
		}
		r.last = append(r.last, last)
	}
	return p, nil
}
