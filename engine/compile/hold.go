package compile

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/emit/sass"
	"github.com/mkgen/mkgen/internal/nvcc"
)

// hold holds the machine code against the program, without nvdisasm the PTX that it was made of, or notes in r why it
// could not. What the check finds is in r; the only error is that of ctx.
func (j *job) hold(ctx context.Context, r *Result) error {
	if j.src.Kernel == nil {
		r.Unchecked = "there is only the text, no program"
		return nil
	}
	printed := &emit.Source{Text: j.src.Text, Lines: j.src.Lines, Instrs: j.src.Instrs}
	r.Machine = nil
	text, missing := "", nvcc.ErrNoDisassembler
	if !j.ptx {
		text, missing = nvcc.Disassemble(ctx, r.Cubin, j.beside())
	}
	err := missing
	switch {
	case err == nil:
		r.Machine, err = sass.Check(j.src.Kernel, printed, text)
	case errors.Is(err, nvcc.ErrNoDisassembler):
		if text, err = j.with.ptx(ctx, j.src.Text, j.target, j.extra); err == nil {
			r.Machine, err = sass.CheckPTX(j.src.Kernel, printed, text)
		}
		if err != nil {
			err = fmt.Errorf("%w; of the PTX: %w", missing, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.Unchecked = ""
	if err != nil {
		r.Unchecked = err.Error()
	}
	return nil
}

// heldEnough says whether what is known of an entry of the cache need not be asked for again: a disassembler or a
// better check may be there by now.
func (j *job) heldEnough(r *Result) bool {
	if r.Machine == nil || r.Machine.Err() != nil || r.Machine.Revision != sass.Revision {
		return false
	}
	if r.Machine.PTX || j.ptx {
		return r.Machine.PTX && (j.ptx || !nvcc.Disassembles(j.beside()))
	}
	return true
}

// beside is the nvcc beside which nvdisasm is looked for; empty: there is none.
func (j *job) beside() string {
	if c, ok := j.with.(*nvccCompiler); ok {
		return c.Path
	}
	return ""
}

// Held is nil where the machine code synchronises as the program does. Else it is an error with both sides of every
// difference (a [*sass.Mismatch]), or one that wraps [ErrUnchecked] and says why nothing is known.
func (r *Result) Held() error {
	if r.Machine == nil {
		reason, _, _ := strings.Cut(r.Unchecked, "\n")
		return fmt.Errorf("%w: %s", ErrUnchecked, reason)
	}
	return r.Machine.Err()
}

// HeldPTX says what is known where the machine code could not be disassembled.
const HeldPTX = "the PTX was held against the program, not the machine code that ptxas made of it"

// ErrUnchecked is what [Result.Held] returns (wrapped, with the reason) where the machine code was not held against the
// program.
var ErrUnchecked = errors.New(
	"the machine code was not held against the program: fences, barriers, copies and ordered accesses of the cubin are not checked")
