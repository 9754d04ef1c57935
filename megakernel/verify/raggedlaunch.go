package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/synth"
)

// part is a sequence's part of a launch.
type part struct {
	*sequence
	new     int
	parents []int
	lists   [][]int // selected pages
	tokens  []uint32
}

// shape of a launch: which sequences, and how.
type shape struct {
	name  string
	parts []part
	steps int
	pin   int
}

// run runs a scenario under a schedule. The error is for what is not the kernel's fault.
func (t *raggedTrial) run(ctx context.Context, k *ir.Kernel, scenario, schedule uint64) (*raggedRun, error) {
	x, err := t.start(k, scenario, schedule)
	if err != nil {
		return nil, err
	}
	before := make([]byte, x.sim.Size("kv"))
	if err := x.sim.Read("kv", 0, before); err != nil {
		return nil, err
	}
	for _, s := range x.shapes() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := x.launch(ctx, s()); err != nil || len(x.run.Findings) > 0 {
			return x.run, err
		}
		x.run.launches++
	}
	x.run.common = len(x.run.rows)
	if err := x.finish(before); err != nil || len(x.run.Findings) > 0 || schedule != scenario {
		return x.run, err
	}
	return x.run, x.stops(ctx)
}

// shapes are the launches: all sequences in turn, as they are at first; then those of
// each kind; then some drawn at random.
func (x *scene) shapes() (list []func() shape) {
	rows, turn := x.t.mk.Options.Tokens, 0
	all := func() shape {
		var parts []part
		for left := rows; left > 0 && turn < len(x.texts) && len(parts) < len(x.texts); turn++ {
			n := 1 + x.rng.IntN(max(1, rows/3))
			if turn == len(x.texts)-1 || left < n {
				n = left
			}
			parts, left = append(parts, part{sequence: x.texts[turn], new: n}), left-n
		}
		return shape{name: "in turn", parts: parts}
	}
	for range inTurn { // at least two a launch
		list = append(list, func() shape {
			if turn >= len(x.texts) {
				return x.mixed()
			}
			return all()
		})
	}
	kinds := []func() shape{x.grow, x.tree, x.share, x.pinned, x.pinnedFew, x.mixed}
	list = append(list, kinds...)
	for range x.t.random {
		list = append(list, kinds[x.rng.IntN(len(kinds))])
	}
	return list
}

// some are up to n sequences in a random order.
func (x *scene) some(n int) (parts []part) {
	for _, i := range x.rng.Perm(len(x.texts))[:min(n, len(x.texts))] {
		parts = append(parts, part{sequence: x.texts[i], new: 1})
	}
	return parts
}

// mixed is sequences that are fed any number of tokens, one perhaps none.
func (x *scene) mixed() shape {
	rows := x.t.mk.Options.Tokens
	parts := x.some(1 + x.rng.IntN(rows))
	for left := rows - len(parts); left > 0; left-- {
		parts[x.rng.IntN(len(parts))].new += x.rng.IntN(2)
	}
	if len(parts) > 1 && x.rng.IntN(3) == 0 {
		parts[0].new = 0
	}
	return shape{name: "mixed", parts: parts}
}

// grow is a launch of several steps.
func (x *scene) grow() shape {
	return shape{name: "growth", parts: x.some(1 + x.rng.IntN(x.t.mk.Options.Tokens)), steps: 2 + x.rng.IntN(maxGrowth-1)}
}

// share is the sequences that share pages, each a token.
func (x *scene) share() shape {
	var parts []part
	for _, s := range x.texts[len(x.texts)-3:][:min(3, x.t.mk.Options.Tokens)] {
		parts = append(parts, part{sequence: s, new: 1})
	}
	return shape{name: "sharing", parts: parts}
}

// pinned is a launch whose parts have n tokens that long sequences have several.
func (x *scene) pinned() shape {
	s := x.mixed()
	s.name, s.pin = "pinned", max(x.t.pin, x.t.pinnable())
	return s
}

// pinnedFew is pinned with a row for each sequence: their partial states are merged
// where the last arrives.
func (x *scene) pinnedFew() shape {
	return shape{name: "pinned, a row each", parts: x.some(min(3, x.t.mk.Options.Tokens)),
		pin: max(x.t.pin, x.t.pinnable())}
}

// tree is a draft tree, and what else there is room for.
func (x *scene) tree() shape {
	rows := x.t.mk.Options.Tokens
	parts := x.some(1 + x.rng.IntN((rows+1)/2))
	p := &parts[x.rng.IntN(len(parts))]
	p.new = min(rows-len(parts)+1, 2+x.rng.IntN(6))
	for i := range p.new {
		p.parents = append(p.parents, x.rng.IntN(i+1)-1)
	}
	return shape{name: "tree", parts: parts}
}

// request draws the tokens of a launch and what its rows see, and gives its sequences their pages.
func (x *scene) request(s *shape) (kv.Request, error) {
	s.steps = max(s.steps, 1)
	q := kv.Request{Steps: s.steps, PinTokens: s.pin}
	for i := range s.parts {
		p := &s.parts[i]
		cached := p.ref.Len()
		for range p.new {
			p.tokens = append(p.tokens, uint32(x.rng.IntN(x.t.mk.Config.Vocab)))
		}
		x.reserve(p.sequence, cached+p.new+s.steps-1)
		p.lists = x.choose(cached)
		q.Sequences = append(q.Sequences, kv.Sequence{Pages: p.pages, Cached: cached, New: p.new, Tokens: p.tokens,
			Parents: p.parents, Select: p.lists, Grow: s.steps > 1})
	}
	return q, x.mask(q.Sequences)
}

// launch runs a launch and the reference beside it.
func (x *scene) launch(ctx context.Context, s shape) error {
	q, err := x.request(&s)
	if err != nil {
		return err
	}
	if err := x.r.SetDraws(x.rules(s)...); err != nil {
		return err
	}
	chosen, err := x.r.Launch(ctx, q, nil)
	var fault *interp.Fault
	if errors.As(err, &fault) {
		x.fault(fault)
		return nil
	} else if err != nil {
		return fmt.Errorf("launch %d, %s: %w", x.run.launches, s.name, err)
	}
	x.run.ran.launch(x.t.Trial, x.sim.Last)
	x.run.seen.launch(s, x.r.Plan())
	if len(chosen) != s.steps {
		x.finding("missing step", fmt.Sprintf("%d of %d steps ran", len(chosen), s.steps))
		return nil
	}
	if err := x.drew(s, chosen); err != nil || len(x.run.Findings) > 0 {
		return err
	}
	return x.follow(s, chosen)
}

// choose draws the pages that each KV head selects, or none of them selects.
func (x *scene) choose(cached int) (lists [][]int) {
	if !x.t.mk.Options.Selection || x.rng.IntN(4) == 0 {
		return nil
	}
	for range x.t.mk.KV.Heads {
		var list []int
		for p := range cached / x.t.mk.KV.Page {
			if x.rng.IntN(2) == 0 {
				list = append(list, p)
			}
		}
		lists = append(lists, list)
	}
	return lists
}

// follow steps the reference through a launch and keeps what it and the kernel say.
func (x *scene) follow(s shape, chosen [][]int) error {
	row := 0
	for i, p := range s.parts {
		cached, page := p.ref.Len(), x.t.mk.KV.Page
		x.now = now{first: cached}
		if p.lists != nil {
			x.now.selected = func(head, index int) bool {
				return index >= cached/page*page || slices.Contains(p.lists[head], index/page)
			}
		}
		p.fed = p.fed || p.new > 0
		where := fmt.Sprintf("launch %d (%s), sequence %d of %d cached tokens", x.run.launches, s.name, i, cached)
		var err error
		switch {
		case p.parents != nil:
			err = x.followTree(p, row, where)
		case s.steps > 1:
			err = x.followGrowth(p, row, chosen, where)
		default:
			for j, token := range p.tokens {
				x.now.row, x.now.at = row+j, x.place(p.sequence, 0, cached+j)
				err = errors.Join(err, x.keep(row+j, p.ref, int(token), fmt.Sprintf("%s, new token %d", where, j)))
			}
		}
		if err != nil {
			return err
		}
		row += p.new
	}
	return nil
}

// followTree steps along every branch; none of it stays.
func (x *scene) followTree(p part, row int, where string) error {
	models, paths := make([]*reference.Model, p.new), make([][]int, p.new)
	for j, token := range p.tokens {
		from := p.ref
		if parent := p.parents[j]; parent >= 0 {
			from, paths[j] = models[parent], slices.Clone(paths[parent])
		}
		paths[j] = append(paths[j], j)
		x.now.row, x.now.tree, x.now.at = row+j, paths[j], x.place(p.sequence, 0, x.now.first+j)
		models[j] = from.Clone(from.Len())
		if err := x.keep(row+j, models[j], int(token), fmt.Sprintf("%s, node %d", where, j)); err != nil {
			return err
		}
	}
	return nil
}

// followGrowth feeds the reference what the kernel chose.
func (x *scene) followGrowth(p part, row int, chosen [][]int, where string) error {
	token, first := int(p.tokens[0]), x.now.first
	x.now.row = row
	for step := range chosen {
		x.now.first, x.now.at = first+step, x.place(p.sequence, 0, first+step)
		where := fmt.Sprintf("%s, step %d", where, step)
		var logits []float64
		if step < len(chosen)-1 {
			logits = p.ref.Step(token)
		} else if err := x.keep(row, p.ref, token, where); err != nil {
			return err
		} else {
			logits = x.run.rows[len(x.run.rows)-1].want
		}
		token = chosen[step][row]
		if greedy(x.rule(shape{}, row)) {
			x.run.guesses = append(x.run.guesses, guess{where, slices.Max(logits) - logits[token]})
		}
	}
	return nil
}

// ties is how often a row that is off is judged anew, its roundings moved, and how far: half of what rounding to bf16
// moves at most. So much do attention's weights differ, which the kernel rounds and the reference does not.
const (
	ties     = 8
	tieMoves = 0x1p-10
)

// keep steps the reference and keeps its logits beside the kernel's of a row.
func (x *scene) keep(row int, ref *reference.Model, token int, where string) error {
	t, from := x.t, ref.Len()
	got, want := make([]float32, t.mk.Config.Vocab), ref.Step(token)
	if err := x.r.RowLogits(row, got); err != nil {
		return err
	}
	off := func(want []float64) Comparison {
		c := Comparison{Tolerance: logitTolerance * synth.LogitSD(t.mk.Config.Vocab)}
		for j, w := range want {
			c.see(float64(got[j]), w, func() string { return "" })
		}
		return c
	}
	best := off(want)
	for try := 0; try < ties && !best.OK(); try++ {
		moves := rand.New(rand.NewPCG(uint64(try), uint64(x.run.seed)))
		x.now.move = func() float64 { return 1 + tieMoves*(2*moves.Float64()-1) }
		if other := ref.Clone(from).Step(token); off(other).MaxError < best.MaxError {
			best, want = off(other), other
		}
		x.now.move = nil
	}
	x.run.rows = append(x.run.rows, rowResult{where, got, want})
	return nil
}

// finish looks at the memory that the run left behind.
func (x *scene) finish(before []byte) error {
	after := make([]byte, len(before))
	if err := x.sim.Read("kv", 0, after); err != nil {
		return err
	}
	if n := x.stray(before, after); n > 0 {
		x.finding("stray write", fmt.Sprintf("%d KV pages changed that no sequence has", n))
	}
	c := &x.run.fresh
	c.What, c.Tolerance = fmt.Sprintf("keys and values ÷ rms, seed %d", x.run.seed), cacheTolerance(x.t.mk.Config.Layers)
	for i, s := range x.texts {
		for l := range x.t.mk.Config.Layers {
			keys, values := s.ref.Cache(l)
			for j := s.initial; j < s.ref.Len(); j++ {
				got, err := x.t.readToken(x.sim, x.place(s, l, j))
				if err != nil {
					return err
				}
				x.t.compareToken(c, l, got, kvToken{keys[j], values[j]},
					func() string { return fmt.Sprintf("layer %d, sequence %d, position %d", l, i, j) })
			}
		}
	}
	return x.counters()
}
