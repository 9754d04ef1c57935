package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
)

// stops runs one launch of maxGrowth steps in five ways: whole, stopped by the host behind its first
// step, given up by the host in its middle, ended by a stop token, and going on behind that. What
// each but the last chooses must be what the whole one chose, as far as it comes. There is room for
// their maxGrowth+1 tokens: positions counts as many and a row more for each of four launches that
// feed a sequence a token or none.
func (x *scene) stops(ctx context.Context) error {
	steps := x.run.seen.steps // those whose arrivals finish has counted
	defer func() { x.run.seen.steps = steps }()
	s := shape{parts: x.some(2), steps: maxGrowth}
	q, err := x.request(&s)
	if err != nil {
		return err
	}
	chosen, err := x.attempt(ctx, q)
	if err != nil || chosen == nil {
		return err
	}
	for _, way := range []func(context.Context, kv.Request, [][]int) error{x.stopped, x.givenUp} {
		if err := way(ctx, q, chosen); err != nil || len(x.run.Findings) > 0 {
			return err
		}
	}
	return x.stopToken(ctx, s, q, chosen)
}

// stopped has the host's wish to stop stand before the launch begins: one step runs.
func (x *scene) stopped(ctx context.Context, q kv.Request, chosen [][]int) error {
	if err := x.sim.Write("stop", 0, []byte{1, 0, 0, 0}); err != nil {
		return err
	}
	got, err := x.attempt(ctx, q)
	if err := errors.Join(err, x.sim.Write("stop", 0, []byte{0, 0, 0, 0})); err != nil || got == nil {
		return err
	}
	x.same("a launch that the host stops in its first step", got, chosen[:1])
	return nil
}

// givenUp has the host give the launch up somewhere in its middle.
func (x *scene) givenUp(ctx context.Context, q kv.Request, chosen [][]int) error {
	if len(x.t.mk.Sites) == 0 {
		return nil
	}
	x.run.ran.mayGiveUp = true
	x.r.HangTimeout = time.Minute // the simulator says when
	rng := rand.New(rand.NewPCG(x.run.schedule, 0x67697665))
	x.sim.ClaimStuck(rng.Int64N(max(x.whole*3/4, 1)))
	got, err := x.attempt(ctx, q)
	x.r.HangTimeout = 0
	var hang *runtime.HangError
	if errors.As(err, &hang) {
		x.run.ran.gaveUp = true
		x.run.ran.count(x.sim.Last)
		return nil
	}
	if got != nil { // it was through with all its waits
		x.same("a launch that is through before it is given up", got, chosen)
	}
	return err
}

// stopToken ends the launch with a token that one of its rows chooses: all steps up to that one run.
// The sequences go on in another launch.
func (x *scene) stopToken(ctx context.Context, s shape, q kv.Request, chosen [][]int) error {
	token, steps := stopOf(chosen)
	ends := endTokens(token, x.run.schedule)
	if !x.t.mk.Options.Repeatable() { // another sum may choose another token
		ends, steps = nil, len(chosen)
	}
	if err := x.r.SetEnds(ends); err != nil {
		return err
	}
	got, err := x.attempt(ctx, q)
	if err := errors.Join(err, x.r.SetEnds(nil)); err != nil || got == nil {
		return err
	}
	if !x.same(fmt.Sprintf("a launch with the stop token %d", token), got, chosen[:steps]) {
		return nil
	}
	x.run.ran.stopped = true
	s.steps, s.name = steps, "ended by a stop token"
	if err := x.follow(s, got); err != nil {
		return err
	}
	x.run.launches++
	err = x.launch(ctx, shape{name: "behind a stop token", parts: s.again()})
	x.run.launches++
	return err
}

// same reports whether a launch chose what is wanted, and adds a finding where it did not.
func (x *scene) same(launch string, got, want [][]int) bool {
	if slices.EqualFunc(got, want, slices.Equal) || len(got) == len(want) && !x.t.mk.Options.Repeatable() {
		return true
	}
	x.finding("wrong token", fmt.Sprintf("%s chose %v, want %v", launch, got, want))
	return false
}

// endTokens is a list of stop tokens with one that is a token: in another place for another seed.
func endTokens(token int, seed uint64) []int {
	return append(slices.Repeat([]int{-1}, int(seed%megakernel.MaxEnds)), token)
}

// stopOf returns a token that ends a launch early, and how many of its steps then run. It takes one
// that no row chooses in the first step, where there is one: then a step reads back tokens first.
func stopOf(chosen [][]int) (token, steps int) {
	for _, token := range chosen[1] {
		if !slices.Contains(chosen[0], token) {
			return token, 2
		}
	}
	return chosen[0][0], 1
}

// attempt launches q and returns what it chose, or nil where a fault or an error ended it.
func (x *scene) attempt(ctx context.Context, q kv.Request) ([][]int, error) {
	chosen, err := x.r.Launch(ctx, q, nil)
	var fault *interp.Fault
	if errors.As(err, &fault) {
		x.fault(fault)
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	x.run.ran.launch(x.t.Trial, x.sim.Last)
	x.whole = max(x.whole, x.sim.Last.Steps)
	return chosen, nil
}

// again is the parts of a launch once more, a new token each.
func (s *shape) again() (parts []part) {
	for _, p := range s.parts {
		parts = append(parts, part{sequence: p.sequence, new: 1})
	}
	return parts
}

func (x *scene) finding(kind, text string) {
	x.run.Findings = append(x.run.Findings, Finding{Kind: kind, Seed: x.run.seed, Step: x.run.launches, Text: text})
}
