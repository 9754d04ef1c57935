package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// TokenE4M3 is what a reference calls inputs of products in e4m3 with a scale a token.
const TokenE4M3 pipeline.Format = "e4m3-tokens"

// TokenScaleOfNeighbour is the fault of kernels of such inputs: down's products of a token get the scale of the token
// beside it.
const TokenScaleOfNeighbour = "token_scale_of_neighbour"

// RaggedRunner runs steps of several query rows, of any sequences.
type RaggedRunner interface {
	// Run runs one step of sequences that bring New tokens each, all of which are given. It returns the logits of every
	// row, in the order of the sequences and their tokens, valid until the next Run. Of the first silent[i] tokens of
	// sequence i nobody wants logits: those rows may be nil.
	Run(ctx context.Context, step []kv.Sequence, silent []int) (logits [][]float32, err error)
	// Mask writes the words of mask bits that the next step's rows begin in, where the kernel's attention has a mask.
	Mask(words []uint32) error
}

// RaggedSubject is a kernel of several query rows a step, loaded on a device with
// its weights, to be judged and to be broken on purpose.
type RaggedSubject struct {
	Kernel  *megakernel.Kernel
	Weights megakernel.Tensors
	Runner  RaggedRunner
	Rows    int  // query rows of a step at most
	Prefill bool // steps of more rows than Kernel has go through prefill kernels
	// Merges reports, with Prefill, whether a prefill kernel has merged states of attention in a step that ran; nil: none
	// has.
	Merges func() bool
	// Launches returns, with Prefill, what launches prefill kernels have had so far; nil: they are not counted.
	Launches func() PrefillLaunches
	// Inputs is how prefill kernels round inputs of products: TokenE4M3, or as for weights of a format; "": of bf16.
	Inputs pipeline.Format
	Pages  int // of the cache; all sequences of the reference must fit
	// Pinned says that results may not depend on what else is in a step: then every
	// short sequence is run alone too, in the same parts, and must give the same bits.
	Pinned bool
	// Write writes into a buffer of the kernel on the device.
	Write func(buffer string, offset int64, src []byte) error
	// Plant makes the runner run the kernel with this fault until restore is called;
	// restore is called exactly once.
	Plant func(ctx context.Context, fault megakernel.Fault) (restore func(), err error)
	// Read reads a buffer of the kernel on the device, to compare the rows of the cache; nil does not.
	Read func(buffer string, offset int64, dst []byte) error
	// Progress hears what is judged next; nil is allowed.
	Progress func(what string)
}

// steps are those of stepsOf; where KV heads select pages no part passes the end of one, so that what a row sees does
// not depend on how its sequence was cut.
func (s *RaggedSubject) steps(ref *Reference) [][]Part {
	page := 0
	if s.Kernel.Options.Selection {
		page = s.Kernel.KV.Page
	}
	all, chunks := lengths(ref), map[int]int(nil)
	if s.Prefill {
		chunks = prefillChunks(all)
	}
	return stepsOf(all, s.Rows, page, chunks)
}

// RaggedPages is how many pages of a size the sequences of a reference take.
func RaggedPages(ref *Reference, page int) int {
	n := 0
	for _, q := range ref.Sequences {
		n += (q.Length + page - 1) / page
	}
	return n
}

// Judge feeds the reference's sequences in the steps of stepsOf to the kernel, twice,
// and then, but for long contexts where the others are enough, with each fault of
// Faults planted, until it shows. An error says that no judgement was possible; a kernel that
// fails is no error.
func (s *RaggedSubject) Judge(ctx context.Context, ref *Reference, rules Rules) (*Report, error) {
	if want := RaggedPages(ref, s.Kernel.KV.Page); s.Pages < want || len(ref.Sequences) < 2 {
		return nil, fmt.Errorf("gate: %d sequences that take %d pages, the cache has %d; want at least 2 that fit",
			len(ref.Sequences), want, s.Pages)
	}
	inputs := s.Kernel.Options.Weights
	if s.Prefill {
		inputs = cmp.Or(s.Inputs, pipeline.FormatBF16)
	}
	if err := ref.judges(s.Kernel, inputs); err != nil {
		return nil, err
	}
	s.progress("the kernel")
	steps := s.steps(ref)
	ours, digests, err := s.pass(ctx, ref, steps, New(rules), "")
	if err != nil {
		return nil, err
	}
	launches := s.launches(ref, steps)
	checked, err := s.compareRows(ref)
	if err != nil {
		return nil, err
	}
	s.progress("the kernel again")
	_, again, err := s.pass(ctx, ref, steps, nil, "")
	if err != nil {
		return nil, err
	}
	r := &Report{Identical: slices.Equal(again, digests), Details: []Verdict{verdict("", ours)}}
	if s.Pinned {
		if r.Depends, err = s.dependent(ctx, ref, steps, digests); err != nil {
			return nil, err
		}
	}
	planted := map[string]Result{}
	for _, name := range s.faults() {
		s.progress(name)
		if planted[name], err = s.faulty(ctx, ref.judging(rules, name), rules, name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		r.Details = append(r.Details, verdict(name, planted[name]))
	}
	r.Gate = NewRecord(ours, lengths(ref), s.faults(), planted)
	r.Gate.withLocal(checked)
	r.Gate.withLaunches(launches)
	return r, nil
}

func (s *RaggedSubject) progress(what string) {
	if s.Progress != nil {
		s.Progress(what)
	}
}

// mostAlone is the longest sequence that is run alone.
const mostAlone = 1024

// dependent lists the sequences that give other bits alone, in the parts that they
// have in the steps, than among the others.
func (s *RaggedSubject) dependent(ctx context.Context, ref *Reference, steps [][]Part,
	digests []string) ([]int, error) {
	differ := []int{}
	for q, sequence := range ref.Sequences {
		if sequence.Length > mostAlone {
			continue
		}
		s.progress(fmt.Sprintf("sequence %d alone", q))
		var own [][]Part
		for _, step := range steps {
			if i := slices.IndexFunc(step, func(p Part) bool { return p.Sequence == q }); i >= 0 {
				own = append(own, step[i:i+1])
			}
		}
		_, alone, err := s.pass(ctx, ref, own, nil, "")
		if err != nil {
			return nil, err
		}
		if alone[q] != digests[q] {
			differ = append(differ, q)
		}
	}
	return differ, nil
}

// faulty judges the kernel with one fault planted.
func (s *RaggedSubject) faulty(ctx context.Context, ref *Reference, rules Rules, name string) (r Result, err error) {
	run := func(fault string) (Result, error) {
		return s.shows(ctx, ref, New(rules), fault)
	}
	switch name {
	case NormGainSkipped:
		return skipGain(s.Kernel, s.Weights, s.Write, func() (Result, error) { return run("") })
	case PagesSwapped:
		return run(name)
	case AttentionChanged:
		if s.Kernel.HasMask() || s.Kernel.Options.Selection {
			return run(name)
		}
		if slopes := s.Kernel.Slopes(); slopes != nil {
			return otherSlope(slopes, s.Write, func() (Result, error) { return run("") })
		}
	}
	if slices.Contains(formatFaults(s.Kernel), name) {
		return spoilWeights(s.Kernel, s.Weights, s.Write, name, func() (Result, error) { return run("") })
	}
	return plantInKernel(ctx, s.Plant, name, func() (Result, error) { return run("") })
}

// raggedPass is one run over all sequences.
type raggedPass struct {
	s     *RaggedSubject
	ref   *Reference
	gate  *Gate  // nil measures nothing
	fault string // PagesSwapped: sequences read each other's first pages; AttentionChanged: see attends
	until bool   // it fails: stop there

	tokens [][]int
	pages  [][]uint32
	rows   []*rowReader
	own    [][]float64 // KL(o‖s) of each sequence's scored positions
	fed    []int
	put    []int // scored positions of each that the gate has

	measured []*measured // of each sequence's scored rows
}

// pass runs the steps, and judges them unless g is nil: then they need not be all.
// digests are of the logits of each sequence's scored rows.
func (s *RaggedSubject) pass(ctx context.Context, ref *Reference, steps [][]Part, g *Gate,
	fault string) (r Result, digests []string, err error) {
	p := &raggedPass{s: s, ref: ref, gate: g, fault: fault}
	return p.run(ctx, steps)
}

// shows judges the steps with a fault up to the first of every 64 behind which the gate fails.
func (s *RaggedSubject) shows(ctx context.Context, ref *Reference, g *Gate, fault string) (Result, error) {
	p := &raggedPass{s: s, ref: ref, gate: g, fault: fault, until: true}
	r, _, err := p.run(ctx, s.steps(ref))
	return r, err
}

// run runs the steps.
func (p *raggedPass) run(ctx context.Context, steps [][]Part) (r Result, digests []string, err error) {
	shown := false // by a fault
	defer p.close()
	if err := p.open(); err != nil {
		return r, nil, err
	}
	for i, step := range steps {
		if err = ctx.Err(); err == nil {
			err = p.step(ctx, step)
		}
		if err != nil {
			err = fmt.Errorf("step %d: %w", i, err)
			break
		}
		if p.until && (i%64 == 63 || rowsOf(step) > p.s.Kernel.Options.Tokens) { // a long step takes as long as many
			if p.settle() != nil {
				break // said below
			}
			if r, shown = p.gate.shows(); shown {
				break
			}
		}
	}
	if err := errors.Join(err, p.settle()); err != nil {
		return r, nil, err
	}
	for _, m := range p.measured {
		digests = append(digests, m.digest())
	}
	if p.gate == nil || shown {
		return r, digests, nil
	}
	return p.gate.Result(), digests, nil
}

// settle waits for the measurements under way and hands those to the gate that it does not have.
func (p *raggedPass) settle() error {
	for q, m := range p.measured {
		if err := m.wait(); err != nil {
			return fmt.Errorf("sequence %d: %w", q, err)
		}
		first := p.ref.Sequences[q].First
		for ; p.gate != nil && first+p.put[q] < p.fed[q]; p.put[q]++ {
			p.gate.Put(q, first+p.put[q], m.positions[p.put[q]])
		}
	}
	return nil
}

// open reads the tokens and deals pages out.
func (p *raggedPass) open() error {
	p.pages = dealt(p.ref, p.s.Kernel.KV.Page, p.s.Pages)
	slots := newSlots()
	for q, sequence := range p.ref.Sequences {
		tokens, err := p.ref.Tokens(q)
		if err != nil {
			return err
		}
		rows, err := p.ref.rowsOf(q, 0)
		if err != nil {
			return err
		}
		own, err := p.ref.Own(q)
		if err != nil {
			return err
		}
		p.own = append(p.own, own)
		p.tokens, p.rows = append(p.tokens, tokens), append(p.rows, rows)
		p.measured = append(p.measured, newMeasured(sequence.Scored, slots))
	}
	p.fed, p.put = make([]int, len(p.tokens)), make([]int, len(p.tokens))
	return nil
}

func (p *raggedPass) close() {
	for _, r := range p.rows {
		r.close()
	}
}

// step runs one step and hands its rows out to be measured.
func (p *raggedPass) step(ctx context.Context, parts []Part) error {
	var step []kv.Sequence
	var words []uint32 // of the rows' masks
	var silent []int
	for _, part := range parts {
		q := kv.Sequence{Pages: p.pagesOf(part.Sequence), Cached: part.From, New: part.To - part.From}
		for _, token := range p.tokens[part.Sequence][part.From:part.To] {
			q.Tokens = append(q.Tokens, uint32(token))
		}
		words = p.attends(&q, part, words)
		step, silent = append(step, q), append(silent, min(q.New, max(0, p.ref.Sequences[part.Sequence].First-part.From)))
	}
	if len(words) > 0 {
		if err := p.s.Runner.Mask(words); err != nil {
			return err
		}
	}
	logits, err := p.s.Runner.Run(ctx, step, silent)
	if err != nil {
		return err
	}
	if rows := rowsOf(parts); len(logits) != rows {
		return fmt.Errorf("the runner gave the logits of %d rows, want %d", len(logits), rows)
	}
	for _, part := range parts {
		for position := part.From; position < part.To; position++ {
			if err := p.row(part.Sequence, position, logits[0]); err != nil {
				return err
			}
			logits = logits[1:]
		}
		p.fed[part.Sequence] = part.To
	}
	return nil
}

// row notes the logits after a position, if it is scored. What comes before shows in these,
// by the keys and values that it leaves.
func (p *raggedPass) row(q, position int, k []float32) error {
	i := position - p.ref.Sequences[q].First
	if i < 0 {
		return nil
	}
	k = slices.Clone(k) // which the runner reuses
	if p.gate == nil {
		p.measured[q].hash(i, k, nil)
		return nil
	}
	row, err := p.rows[q].next()
	if err != nil {
		return err
	}
	p.measured[q].add(i, row, k, p.own[q][i])
	return nil
}

// pagesOf is a sequence's page list: with PagesSwapped, with that of
// the next sequence that has filled one, once its own is full.
func (p *raggedPass) pagesOf(q int) []uint32 {
	page := p.s.Kernel.KV.Page
	if p.fault != PagesSwapped || p.fed[q] < page {
		return p.pages[q]
	}
	for i := 1; i < len(p.pages); i++ {
		if other := (q + i) % len(p.pages); p.fed[other] >= page {
			pages := slices.Clone(p.pages[q])
			pages[0] = p.pages[other][0]
			return pages
		}
	}
	return p.pages[q]
}
