package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/megakernel"
)

// Session is what a judgement needs of a runtime.Sequence.
type Session interface {
	// Rewind forgets cached tokens from position pos on; Pos is the next one.
	Rewind(pos int) error
	Pos() int
	// Generate feeds a prompt and chooses n tokens, in one launch.
	Generate(prompt []int, n int) ([]int, error)
	// Logits reads those of the last step.
	Logits(dst []float32) error
	// SetTable replaces the page table.
	SetTable(table []uint32) error
}

// Subject is a kernel loaded on a device with its weights, to be judged and to be
// broken on purpose. Its session has an empty cache and no end tokens.
type Subject struct {
	Kernel  *megakernel.Kernel
	Weights megakernel.Tensors
	Session Session
	// Table is the session's page table, at least 3 pages.
	Table []uint32
	// Write writes into a buffer of the kernel on the device.
	Write func(buffer string, offset int64, src []byte) error
	// Plant makes the session run the kernel with this fault until restore is
	// called; restore is called exactly once.
	Plant func(ctx context.Context, fault megakernel.Fault) (restore func(), err error)
	// Read reads a buffer of the kernel on the device, and PlantProbe is Plant of the kernel with
	// Options.Probe; both are for the local checks, which are not made where one is nil.
	Read       func(buffer string, offset int64, dst []byte) error
	PlantProbe func(ctx context.Context, fault megakernel.Fault) (restore func(), err error)
	// Progress hears what is judged next; nil is allowed.
	Progress func(what string)
}

// Verdict is what came of one run over the reference.
type Verdict struct {
	Fault   string   `json:"fault,omitempty"` // what was planted; empty for the kernel as it is
	KLOurs  Number   `json:"kl_ours"`
	KLRef   Number   `json:"kl_reference"`
	KLOwn   Number   `json:"kl_own,omitempty"`
	Flips   int      `json:"flips"`
	Passed  bool     `json:"passed"`
	Reasons []string `json:"reasons,omitempty"`
}

// Report is the outcome of a judgement.
type Report struct {
	Gate      Record    // passed or not, and why
	Identical bool      // the first sequence run twice gave the same logits, bit for bit
	Depends   []int     // sequences that gave other bits alone; nil where that was not looked at
	Details   []Verdict // the kernel as it is, then each fault of Faults
}

// Err is nil when the kernel may be believed: the gate is passed, all faults
// were caught, and the repeated sequence gave the same bits.
func (r *Report) Err() error {
	switch {
	case !r.Identical:
		return errors.New("the first sequence run twice gave different logits")
	case len(r.Depends) > 0:
		return fmt.Errorf("sequences %v gave other logits alone than among others", r.Depends)
	case !r.Gate.Passed:
		return fmt.Errorf("the gate is not passed: %s", strings.Join(r.Gate.Reasons, "; "))
	}
	return nil
}

// Judge runs the reference's sequences through the kernel, the first of them
// twice, and then again, but for long contexts where the others are enough,
// with each fault of Faults planted, until one shows it. An error says that
// no judgement was possible; a kernel that fails is no error. The session is left
// with an empty cache, without faults.
func (s *Subject) Judge(ctx context.Context, ref *Reference, rules Rules) (*Report, error) {
	if len(s.Table) < 3 {
		return nil, fmt.Errorf("gate: a page table of %d pages, want at least 3: two are swapped", len(s.Table))
	}
	if err := ref.judges(s.Kernel, s.Kernel.Options.Weights); err != nil {
		return nil, err
	}
	s.progress("the kernel")
	local, err := s.newLocal(ref, rules)
	if err != nil {
		return nil, err
	}
	g := New(rules)
	digest, err := s.passThen(ctx, ref, g, nil, local.ran)
	if err != nil {
		return nil, err
	}
	ours := g.Result()
	checked, err := local.judge(ctx)
	if err != nil {
		return nil, err
	}
	again, err := s.sequence(ctx, ref, New(rules), 0, nil)
	if err != nil {
		return nil, err
	}
	r := &Report{Identical: again == digest, Details: []Verdict{verdict("", ours)}}
	planted := map[string]Result{}
	for _, name := range faults(s.Kernel) {
		s.progress(name)
		if planted[name], err = s.faulty(ctx, ref.judging(rules, name), rules, name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		r.Details = append(r.Details, verdict(name, planted[name]))
	}
	r.Gate = NewRecord(ours, lengths(ref), faults(s.Kernel), planted)
	r.Gate.withLocal(checked)
	return r, s.Session.Rewind(0)
}

func (s *Subject) progress(what string) {
	if s.Progress != nil {
		s.Progress(what)
	}
}

func verdict(name string, r Result) Verdict {
	return Verdict{name, Number(r.KLOurs), Number(r.KLReference), Number(r.KLOwn), r.Flips, r.Passed, r.Reasons}
}

// hook is done before the token at a position is fed, in every sequence.
type hook struct {
	at int
	do func() error
}

// short is the reference without the sequences of which only a last part is
// scored, if what remains is enough for a judgement. Faults are judged by it: to
// show one it takes no long context, which takes long to get to.
func (r *Reference) short(rules Rules) *Reference {
	out, scored := *r, 0
	out.Sequences = nil
	for _, q := range r.Sequences {
		if q.First > 0 {
			break // a sequence's number is its place
		}
		out.Sequences = append(out.Sequences, q)
		scored += q.Scored
	}
	if scored < rules.MinPositions || len(out.Sequences) < rules.MinSequences {
		return r
	}
	return &out
}

// judging is the reference that a fault is judged by: the short sequences where these are enough, but all for another
// attention and for scores that do not grow, since these show behind the window and the first step of growth only.
func (r *Reference) judging(rules Rules, fault string) *Reference {
	if fault == AttentionChanged || fault == GrowthLeftOut || fault == WindowWider {
		return r
	}
	return r.short(rules)
}

// errShown ends a run with a fault that has shown.
var errShown = errors.New("the fault has shown")

// pass judges a run with a fault, over the sequences up to the first behind which the gate fails.
func (s *Subject) pass(ctx context.Context, ref *Reference, rules Rules, hooks []hook) (r Result, err error) {
	g := New(rules)
	_, err = s.passThen(ctx, ref, g, hooks, func(int) error {
		var shown bool
		if r, shown = g.shows(); shown {
			return errShown
		}
		return nil
	})
	switch {
	case errors.Is(err, errShown):
		return r, nil
	case err != nil:
		return Result{}, err
	}
	return g.Result(), nil
}

// passThen runs all sequences through a gate and calls then behind each, whose tokens the cache then holds; digest is
// of the first's logits.
func (s *Subject) passThen(ctx context.Context, ref *Reference, g *Gate, hooks []hook,
	then func(q int) error) (digest string, err error) {
	for q := range ref.Sequences {
		own, err := s.sequence(ctx, ref, g, q, hooks)
		if err != nil {
			return "", err
		}
		if q == 0 {
			digest = own
		}
		if err := then(q); err != nil {
			return "", err
		}
	}
	return digest, nil
}

// most is the number of tokens fed by one launch, so that none lasts for long.
const most = 512

// advance feeds tokens from the session's position up to and with position last.
func (s *Subject) advance(ctx context.Context, tokens []int, last int, hooks []hook) error {
	for s.Session.Pos() <= last {
		if err := ctx.Err(); err != nil {
			return err
		}
		pos := s.Session.Pos()
		end := min(last+1, pos+most)
		for _, h := range hooks {
			if h.at == pos {
				if err := h.do(); err != nil {
					return err
				}
			} else if h.at > pos {
				end = min(end, h.at)
			}
		}
		if _, err := s.Session.Generate(tokens[pos:end], 1); err != nil {
			return err
		}
		if s.Session.Pos() != end {
			return fmt.Errorf("the kernel stopped at position %d, want %d", s.Session.Pos(), end)
		}
	}
	return nil
}

// sequence runs one sequence from an empty cache; the logits, of which digest is, are measured by other goroutines
// while the device goes on.
func (s *Subject) sequence(ctx context.Context, ref *Reference, g *Gate, q int,
	hooks []hook) (digest string, err error) {
	tokens, err := ref.Tokens(q)
	if err != nil {
		return "", err
	}
	if err := s.Session.Rewind(0); err != nil {
		return "", err
	}
	own, err := ref.Own(q)
	if err != nil {
		return "", err
	}
	first := ref.Sequences[q].First
	m := newMeasured(ref.Sequences[q].Scored, newSlots())
	err = ref.eachFrom(q, first, func(position int, row row) error {
		if err := s.advance(ctx, tokens, position, hooks); err != nil {
			return err
		}
		k := make([]float32, ref.Vocab)
		if err := s.Session.Logits(k); err != nil {
			return err
		}
		m.add(position-first, row, k, own[position-first])
		return nil
	})
	if err := errors.Join(err, m.wait()); err != nil {
		return "", fmt.Errorf("sequence %d: %w", q, err)
	}
	for i, p := range m.positions {
		g.Put(q, first+i, p)
	}
	return m.digest(), nil
}
