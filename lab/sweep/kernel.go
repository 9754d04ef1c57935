package sweep

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/lab/tune"
	"github.com/mkgen/mkgen/megakernel"
)

// compile compiles all kernels, several at a time. What does not compile is kept for its
// cells; if nothing does, that is an error.
func (s *Sweep) compile(ctx context.Context) (compiler string, err error) {
	s.say("compiling %d kernels", len(s.Kernels))
	kernels := make([]*megakernel.Kernel, len(s.Kernels))
	for i, k := range s.Kernels {
		if k.Problem == nil {
			kernels[i] = k.Kernel
		}
	}
	var names []string
	names, s.broken = tune.CompileAll(ctx, s.Measurer.Compile, kernels)
	for i, k := range s.Kernels {
		if k.Problem != nil {
			s.broken[i] = k.Problem
		}
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	for i, broken := range s.broken {
		if broken == nil {
			return names[i], nil
		}
	}
	return "", errors.Join(s.broken...)
}

// kernel measures the cells of one kernel.
func (s *Sweep) kernel(ctx context.Context, i int) error {
	k := &s.Kernels[i]
	var cells []*Cell
	for j := range s.record.Cells {
		if c := &s.record.Cells[j]; c.Rows == k.Rows && c.Status == Open {
			cells = append(cells, c)
		}
	}
	switch {
	case len(cells) == 0:
		return nil
	case k.Problem != nil:
		return s.give(cells, Unfit, fmt.Errorf("there is no such kernel: %w", k.Problem))
	case s.broken[i] != nil:
		return s.give(cells, Failed, s.broken[i])
	}
	cells, pages, err := s.fit(ctx, k.Kernel, cells)
	if err != nil {
		return err
	}
	return s.measure(ctx, k.Kernel, pages, cells)
}

// give ends cells without figures.
func (s *Sweep) give(cells []*Cell, status Status, why error) error {
	for _, c := range cells {
		c.Status, c.Why = status, strings.TrimSpace(why.Error())
		s.say("batch %d, context %d: %s: %s", c.Batch, c.Context, status, c.Why)
	}
	return s.save()
}

// fit gives up what the device has no memory for, and returns the rest and the pages of
// KV cache that its largest cell takes.
func (s *Sweep) fit(ctx context.Context, mk *megakernel.Kernel, cells []*Cell) (fit []*Cell, pages int, err error) {
	free, err := s.Measurer.Free(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, c := range cells {
		n := c.Batch * ((s.tokens(c.Context) + mk.KV.Page - 1) / mk.KV.Page)
		if need := needs(mk, n); need > free {
			if err := s.give([]*Cell{c}, Unfit, fmt.Errorf("takes %s of memory, %s are free", megakernel.FormatBytes(need),
				megakernel.FormatBytes(max(0, free)))); err != nil {
				return nil, 0, err
			}
			continue
		}
		fit, pages = append(fit, c), max(pages, n)
	}
	return fit, pages, nil
}

// needs is about what a kernel takes on the device, with n pages a layer.
func needs(mk *megakernel.Kernel, pages int) int64 {
	bytes := int64(mk.Config.Layers) * int64(pages) * int64(mk.KV.PageBytes())
	for _, b := range mk.IR.Globals() {
		bytes += b.Bytes()
	}
	return bytes
}

// measure loads the kernel and measures its cells one after the other. After one that
// fails the kernel is loaded anew, since its grid barrier may stand anywhere.
func (s *Sweep) measure(ctx context.Context, mk *megakernel.Kernel, pages int, cells []*Cell) (err error) {
	var on Opened
	defer func() {
		if on != nil {
			err = errors.Join(err, on.Close())
		}
	}()
	for i, c := range cells {
		if on == nil {
			var problem error
			if on, problem, err = s.load(ctx, mk, pages, cells); err != nil {
				return err
			}
			if problem != nil {
				return s.give(cells[i:], Failed, problem)
			}
		}
		s.done++
		s.say("case %d of %d: batch %d, context %d", s.Taken+s.done, s.Taken+s.count(), c.Batch, c.Context)
		top, err := s.Measurer.Ceiling(ctx)
		if err != nil {
			return err
		}
		m, problem := on.Measure(ctx, top, c.Batch, c.Context)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case problem != nil:
			old := on
			on = nil
			if err := errors.Join(s.give([]*Cell{c}, Failed, problem), old.Close()); err != nil {
				return err
			}
			continue
		}
		c.Status, c.Case = Measured, &m
		if err := s.save(); err != nil {
			return err
		}
	}
	return nil
}

// load loads and judges a kernel. A problem is the kernel's, an error the sweep's.
func (s *Sweep) load(ctx context.Context, mk *megakernel.Kernel, pages int,
	cells []*Cell) (on Opened, problem, err error) {
	var contexts []int
	for _, c := range cells {
		contexts = append(contexts, c.Context)
	}
	s.say("loading the kernel of %s", plural.Of(mk.Options.Tokens, "row"))
	on, report, problem := s.Measurer.Open(ctx, mk, pages, contexts)
	switch {
	case ctx.Err() != nil && problem == nil:
		return nil, nil, errors.Join(ctx.Err(), on.Close())
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case problem != nil:
		return nil, problem, nil
	case report != nil:
		s.Reports[mk.Options.Tokens] = report
		if failed := report.Err(); failed != nil {
			return nil, failed, on.Close()
		}
	}
	return on, nil, nil
}

// count is how many cells this run had to measure, or has.
func (s *Sweep) count() int { return len(s.record.Cells) - s.record.Count(Unfit) - s.Taken }
