package megakernel

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// BufferPrefillRows and BufferPrefillSequences are where the rows of a step of several sequences stand: the position
// and the page of each token, and of each sequence PrefillSequenceWords words.
const (
	BufferPrefillRows      = "rows"
	BufferPrefillSequences = "sequences"
	ScalarSequences        = "sequence_count"
)

// The words of a sequence: its first token of the step, how many it has, the position of the first one, and its first
// entry of the page table.
const (
	PrefillFirst = iota
	PrefillCount
	PrefillPosition
	PrefillEntry
	PrefillSequenceWords
)

// several is whether steps may have tokens of several sequences.
func (o *PrefillOptions) several() bool { return o.Sequences > 1 }

// prefillSeveral is what a kernel of several sequences has beside that of one.
type prefillSeveral struct {
	rows, sequences dsl.Buf[dsl.U32]
	count           dsl.Val[dsl.U32] // of sequences
	choice          *prefill.Choice
	head            prefill.Activations // of the picked vectors
}

// declareSeveral declares where rows and sequences stand.
func (f *prefillFlow) declareSeveral() {
	k, o, ro := f.k, &f.p.Options, dsl.ReadOnly()
	f.several.rows = dsl.Global[dsl.U32](k, BufferPrefillRows, elements(o.Tokens, 2), ro, dsl.Align(8),
		bufDoc("[%d] position and page of each token", o.Tokens))
	f.several.sequences = dsl.Global[dsl.U32](k, BufferPrefillSequences, elements(o.Sequences, PrefillSequenceWords), ro,
		dsl.Align(16), bufDoc("[%d] first token, tokens, position of the first, first entry of page_table", o.Sequences))
	f.several.count = dsl.Scalar[dsl.U32](k, ScalarSequences, fmt.Sprintf("sequences of the step, 1 to %d", o.Sequences))
}

// each calls body for the sequences of a step: theirs is e, whose CTAs are dealt out from another one on each time.
func (f *prefillFlow) each(s attention.Step, span prefill.Span,
	body func(e *grid.Env, s attention.Step, span prefill.Span)) {
	if !f.p.Options.several() {
		body(f.env, s, span)
		return
	}
	k, e, padded := f.k, f.env, f.p.Options.Padded()
	all, clusters := f.several.count, f.p.clusters()
	room := f.count.AddC(padded - 1).DivC(padded).MulC(padded).Named("room")
	k.For(k.U32(0), all, func(i dsl.Val[dsl.U32]) {
		w := f.several.sequences.LoadN(i.MulC(PrefillSequenceWords), PrefillSequenceWords)
		word := func(n int, name string) dsl.Val[dsl.U32] { return dsl.Uniform(w[n], dsl.GPUScope).Named(name) }
		own, turned := s, *e
		own.Pos = word(PrefillPosition, "position")
		turned.CTA = e.CTA.Add(i.MulC(f.p.turn()).RemC(clusters).MulC(f.p.Options.Cluster)).
			RemC(e.Grid).Named("turned_cta")
		first, n := word(PrefillFirst, "first_row"), word(PrefillCount, "tokens")
		end := dsl.Select(i.AddC(1).Eq(all), room, first.Add(n).Min(room)).Named("end_row") // the last one's pad the step
		k.Claim("a sequence of a step has no row", func() dsl.Pred { return first.Lt(end) })
		body(&turned, own, prefill.Span{N: n, Last: span.Last, Begin: &prefill.Begin{Row: first,
			Entry: dsl.Optional(word(PrefillEntry, "entry")), End: &end}})
	}, dsl.Unroll(1))
}
