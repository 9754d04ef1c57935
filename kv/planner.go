package kv

import (
	"fmt"
	"math"
	"slices"
)

// Planner makes plans for one kernel. It keeps its memory from plan to plan: once it
// has seen the largest request it no longer allocates. Not for concurrent use.
type Planner struct {
	limits   Limits
	tileRows int

	share     bool // prefixes may be shared in the plan that is being made
	places    []placed
	units     []unit
	firstTree int // units from here on are the prefix tree's
	tree      radix

	tiles  []tile
	pieces []piece
	order  []uint64 // the pieces, longest first
	states []int32  // of every (row, KV head) its states
	heap   []uint64
	levels []level

	one  [1]Class
	plan Plan
}

// LimitError is a request that is too much at once for a kernel's limits, on items,
// partial states or page table entries; a part of its sequences may pass.
type LimitError string

func (e LimitError) Error() string { return string(e) }

// NewPlanner is a planner for a kernel with limits l.
func NewPlanner(l Limits) (*Planner, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if l.Costs == (Costs{}) {
		l.Costs = DefaultCosts(l.Group)
	}
	p := &Planner{limits: l, tileRows: l.tile()}
	p.plan.Limits = l
	p.plan.Rows = make([]uint32, l.Rows*RowWords)
	p.states = make([]int32, l.Rows*l.KVHeads)
	p.heap = make([]uint64, l.CTAs)
	p.levels = make([]level, 0, l.CTAs+1)
	return p, nil
}

// Plan plans r: FlashInfer's algorithm 1 for every class. Same request, same plan,
// whatever was planned before. Where a kernel's limits do not let a plan through it
// cuts less, and then shares no prefixes, before it refuses with a LimitError. The
// error names the sequence or class, what was found and what would fit.
func (p *Planner) Plan(r Request) (*Plan, error) {
	if r.Steps == 0 {
		r.Steps = 1
	}
	if len(r.Classes) == 0 {
		r.Classes = p.one[:]
	}
	if err := r.check(&p.limits); err != nil {
		return nil, err
	}
	p.share = !r.Single
	err := p.try(&r)
	if _, limit := err.(LimitError); limit && p.plan.Prefixes > 0 {
		p.share = false
		err = p.try(&r)
	}
	if err != nil {
		return nil, err
	}
	return &p.plan, nil
}

func (p *Planner) try(r *Request) error {
	p.places = resize(p.places, len(r.Sequences))
	if err := p.layout(r); err != nil {
		return err
	}
	p.plan.Steps = r.Steps
	p.plan.Classes = resize(p.plan.Classes, len(r.Classes))
	for i := range r.Classes {
		c := &p.plan.Classes[i]
		c.Class, c.limits = r.Classes[i], &p.plan.Limits
		if err := p.planClass(r, i, c); err != nil {
			return err
		}
	}
	return nil
}

// planClass cuts the units that class i reads into items and deals them out.
func (p *Planner) planClass(r *Request, i int, c *ClassPlan) error {
	if err := p.cutTiles(r, i, c, p.tileRows); err != nil {
		return err
	}
	if rows := p.phaseRows(c); rows > 0 && r.PinTokens == 0 {
		if err := p.avoidPhase(r, i, c, rows); err != nil {
			return err
		}
	}
	p.assertBound(r, c)
	p.deal(c)
	return nil
}

// cutTiles cuts the work of class i into pieces of up to n rows.
func (p *Planner) cutTiles(r *Request, i int, c *ClassPlan, n int) error {
	if err := p.makeTiles(r, &c.Class, n); err != nil {
		return fmt.Errorf("kv: class %d: %w", i, err)
	}
	return p.cut(r, i, c)
}

// avoidPhase cuts class i into items of few rows, whose states need no phase to be merged, where the busiest CTA then
// has less to do beyond what it has now than the phase costs: they read a unit's KV again for every SettleRows rows.
func (p *Planner) avoidPhase(r *Request, i int, c *ClassPlan, rows int) error {
	enough := p.spread(math.MaxInt) + rows*p.limits.Costs.Phase
	work := 0 // chunks, were it cut so
	for i := range p.tiles {
		t := &p.tiles[i]
		work += ceilDiv(t.n, SettleRows) * t.chunks * p.units[t.unit].heads
	}
	if work/p.limits.CTAs*p.limits.ChunkTokens*p.limits.Costs.Token >= enough {
		return nil
	}
	if p.cutTiles(r, i, c, SettleRows) == nil && p.spread(enough) < enough {
		return nil
	}
	return p.cutTiles(r, i, c, p.tileRows)
}

// refusePage names a sequence that has a page outside of the cache.
func (p *Planner) refusePage(r *Request, page uint32) error {
	for i := range r.Sequences {
		s := &r.Sequences[i]
		if s.New > 0 && slices.Contains(s.Pages[:s.pages(p.limits.PageSize, r.Steps)], page) {
			return fmt.Errorf("kv: sequence %d: page %d, the cache has %d", i, page, p.limits.Pages)
		}
	}
	panic(fmt.Sprintf("BUG: page %d in the page table, but in no sequence", page))
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		grown := make([]T, n)
		copy(grown, s[:cap(s)])
		return grown
	}
	return s[:n]
}
