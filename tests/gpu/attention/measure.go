package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/tests/gpu/attention/cases"
	"github.com/mkgen/mkgen/tests/gpu/attention/record"
)

// job is a case to run, timed or only checked.
type job struct {
	c      *cases.Case
	single bool
	timed  bool
}

// jobs are those whose names begin with one of the prefixes; without any, all.
// Shared prefixes come in the single format too, with the same inputs.
func jobs(prefixes []string) (all []job) {
	for _, c := range cases.Speed() {
		all = append(all, job{c: c, timed: true})
		if strings.HasPrefix(c.Name, "prefix-") {
			again := *c
			again.Name, again.Time = c.Name+"-single", false
			all = append(all, job{c: &again, single: true, timed: true})
		}
	}
	for _, c := range cases.Variants(cases.Llama8B()) {
		c.Name = "variant-" + c.Name
		all = append(all, job{c: c})
	}
	if len(prefixes) == 0 {
		return all
	}
	var some []job
	for _, j := range all {
		for _, p := range prefixes {
			if len(j.c.Name) >= len(p) && j.c.Name[:len(p)] == p {
				some = append(some, j)
				break
			}
		}
	}
	return some
}

// method says how much is measured.
type method struct {
	rounds int
	round  time.Duration // of device time at the least
}

// measure runs a job: a step whose output is written to dir for the reference, then
// the rounds, right after the ceiling.
func measure(ctx context.Context, m bench.Machine, p *program, j job,
	top func(context.Context) (ceiling.Measured, error), how method, dir string) (r record.Case, err error) {
	c := j.c
	l, err := load(ctx, m, p, c, j.single)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.dev.Close()) }()
	r = describe(l, j)
	first, err := l.run(1)
	if err != nil {
		return r, err
	}
	out, err := l.out()
	if err != nil {
		return r, err
	}
	if err := c.WriteOut(dir, c.Layers-1, floats(out)); err != nil {
		return r, err
	}
	if err := c.Write(dir); err != nil {
		return r, err
	}
	if !j.timed {
		_, err = l.run(1)
	} else {
		if r.Ceiling, err = top(ctx); err != nil {
			return r, err
		}
		r.Steps = max(1, int(how.round/max(first, time.Microsecond)))
		r.Rounds, err = rounds(l, r.Steps, how.rounds)
	}
	if err != nil {
		return r, err
	}
	again, err := l.out()
	r.Gate.Identical = bytes.Equal(out, again)
	if j.timed {
		r.Complete()
	}
	return r, err
}

// rounds are timed, after one that is not; µs a layer.
func rounds(l *loaded, steps, n int) (all []float64, err error) {
	for i := range n + 1 {
		took, err := l.run(steps)
		if err != nil {
			return nil, err
		}
		if took <= 0 {
			return nil, fmt.Errorf("the device says that %d steps took %v", steps, took)
		}
		if i > 0 {
			all = append(all, float64(took.Nanoseconds())/1e3/float64(steps*l.c.Layers))
		}
	}
	return all, nil
}

func describe(l *loaded, j job) record.Case {
	c := l.c
	r := record.Case{Name: c.Name, DType: c.KVType, Batch: len(c.Sequences), Tokens: c.T(), Page: c.Page, Layers: c.Layers,
		Single: j.single, Prefixes: l.plan.Prefixes, PlanMicros: float64(l.planned.Nanoseconds()) / 1e3,
		Bytes: c.UniqueBytes()}
	for _, s := range c.Sequences {
		r.Lengths = append(r.Lengths, s.Tokens())
	}
	for _, v := range c.Variants {
		r.Variants = append(r.Variants, v.Name)
	}
	for i := range l.plan.Classes {
		r.Balance = max(r.Balance, l.plan.Classes[i].Balance())
	}
	return r
}
