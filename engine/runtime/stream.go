package runtime

import (
	"context"
	"errors"

	"github.com/mkgen/mkgen/megakernel"
)

// Stream is Generate that hands out every chosen token as it comes, while the
// launch runs on. each is called in order, on the caller's goroutine; when it
// returns false, or when ctx ends, the launch is told to stop, and the tokens it
// has chosen until then are returned: those handed out, and perhaps a few more.
// Pos says what is in the cache; Rewind forgets what is not wanted. The session
// can go on after a cancelled ctx, whose error Stream returns beside the tokens.
func (s *Sequence) Stream(ctx context.Context, prompt []int, n int,
	each func(token int) bool) (chosen []int, err error) {
	steps, err := s.check(prompt, n)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	known := s.pos + len(prompt)
	if err := errors.Join(s.prepare(prompt, known, steps), s.maskSteps(len(prompt), steps, s.nextMask)); err != nil {
		return nil, err
	}
	for i := range s.asked {
		s.asked[i].first = known
	}
	var token uint32
	l := &launch{s: s.runner, ctx: ctx, next: known, end: s.pos + steps + 1, at: s.pos,
		come: func(i int) (come bool, err error) {
			token, err = s.dev.Peek("stream", i)
			return token != noToken, err
		},
		each: func(int) bool { return each(int(token)) }}
	if err := l.run(s.scalar(map[string]uint64{
		megakernel.ScalarPos: uint64(s.pos), megakernel.ScalarSteps: uint64(steps),
		megakernel.ScalarKnown: uint64(known), megakernel.ScalarPages: uint64(s.pages)})); err != nil {
		return nil, err
	}
	if chosen, err = s.result(known, steps); err != nil {
		return nil, err
	}
	ran := len(chosen)
	if first := len(prompt) - 1; ran > 0 {
		chosen = chosen[:s.masks.steps(first+ran)-first]
	}
	s.pos -= ran - len(chosen)
	s.drew(len(chosen), ran)
	for _, token := range chosen[min(l.next-known, len(chosen)):] {
		if l.stopping || !each(token) {
			break
		}
	}
	return chosen, ctx.Err()
}

// Times are when the last launch chose the tokens that follow position from (which
// it fed), n of them: nanoseconds of the device's clock, modulo 2³².
func (s *Sequence) Times(from, n int) ([]uint32, error) { return s.read("times", from+1, n) }

// prepare writes what a launch needs.
func (s *Sequence) prepare(prompt []int, known, steps int) error {
	bits := make([]uint32, len(prompt))
	for i, token := range prompt {
		bits[i] = uint32(token)
	}
	if err := writeAhead(s.dev, "tokens", 4*int64(s.pos), words(bits)); err != nil {
		return err
	}
	if s.mk.Graph != nil {
		state := make([]uint32, megakernel.StateWords)
		state[megakernel.StatePos], state[megakernel.StateKnown], state[megakernel.StateRunning] = uint32(s.pos),
			uint32(known), 1
		if err := s.dev.Write(megakernel.BufferState, 0, words(state)); err != nil {
			return err
		}
	}
	return s.clear(known, s.pos+steps+1-known, s.pos)
}
