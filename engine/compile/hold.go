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

// hold holds the machine code against the program, or notes in r why it could not. What the check finds is in r; the
// only error is that of ctx.
func (j *job) hold(ctx context.Context, r *Result) error {
	if j.src.Kernel == nil {
		r.Unchecked = "there is only the text, no program"
		return nil
	}
	beside := ""
	if c, ok := j.with.(*nvccCompiler); ok {
		beside = c.Path
	}
	text, err := nvcc.Disassemble(ctx, r.Cubin, beside)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err == nil {
		r.Machine, err = sass.Check(j.src.Kernel, &emit.Source{Text: j.src.Text, Lines: j.src.Lines, Instrs: j.src.Instrs}, text)
	}
	r.Unchecked = ""
	if err != nil {
		r.Unchecked = err.Error()
	}
	return nil
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

// ErrUnchecked is what [Result.Held] returns (wrapped, with the reason) where the machine code was not held against the
// program.
var ErrUnchecked = errors.New("the machine code was not held against the program: fences, barriers, copies and ordered accesses of the cubin are not checked")
