package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/draw"
)

// Member is a kernel of a Bundle and the device it is loaded on, nothing allocated yet.
type Member struct {
	Kernel *megakernel.Kernel
	Device Device
}

// Bundle is kernels of one model that differ in the rows of a step, over one copy of the
// weights and one KV cache. A launch takes the kernel with the fewest rows that has enough:
// prompts go through the widest, and a sequence that decodes alone through that of one row. Of
// two with the same rows one draws tokens, and runs the launches in which some sequence draws.
// It is a batch.Stepper. Not safe for concurrent use.
type Bundle struct {
	of    []*Session // by their rows, those that draw behind those that do not
	long  []*Prefill // of prompts, by their tokens
	layer Device     // the first of them, which owns what all write before they read it
	guard uint32     // page that entries of a page table without a use name
	owner Device     // of the weights and of the cache, which has n pages
	pages int

	loaded LoadStats
	last   *Session // that ran the last launch; nil: another one did, or nobody
	prompt *Prefill // the same
	logits []float32
	asked  []draw.Rule // of the sequences of the last launch
}

// OpenBundle allocates and fills every buffer of the kernels, in whatever order they come: one or
// several, which differ in their rows or in whether they draw. They must agree in model, KV cache and weights. Parts
// can be pinned (Options.Pin) in a kernel of several rows alone, since what a launch
// computes would depend on which kernel it takes. o.Steps is of a launch of any. When ctx ends
// it stops loading and returns ctx's error; only the devices' Close is of use then.
func OpenBundle(ctx context.Context, members []Member, w Weights, o Options) (*Bundle, error) {
	members = slices.SortedStableFunc(slices.Values(members), func(a, b Member) int {
		return cmp.Or(b.Kernel.Options.Tokens-a.Kernel.Options.Tokens, drawsLast(a.Kernel)-drawsLast(b.Kernel))
	})
	if err := agree(members, o.Pin); err != nil {
		return nil, err
	}
	b := &Bundle{guard: o.Guard, owner: members[0].Device, pages: o.Pages}
	for i, m := range members { // from the widest on, which has all that is shared
		if i > 0 {
			o.From = members[0].Device
		}
		r, err := Open(ctx, m.Kernel, m.Device, w, o)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			b.loaded = r.Loaded()
		}
		b.of = append(b.of, r)
	}
	slices.SortStableFunc(b.of, func(a, b *Session) int { return a.Rows() - b.Rows() })
	return b, nil
}

// AddPrefill opens a prefill kernel beside the others, on a device of its own: launches with more tokens than the
// others have rows go through the one of the fewest tokens that has enough. They are of one sequence, or of as many as
// the kernel takes.
func (b *Bundle) AddPrefill(p *megakernel.Prefill, dev Device) error {
	r, err := openPrefill(p, dev, b.owner, b.layer, b.pages, b.guard)
	if err != nil {
		return err
	}
	b.layer = cmp.Or(b.layer, dev)
	b.long = append(b.long, r)
	slices.SortFunc(b.long, func(a, b *Prefill) int { return a.Tokens() - b.Tokens() })
	return nil
}

// PrefillRows is how many tokens of one sequence a launch of it alone feeds at most; 0: no more than other launches.
func (b *Bundle) PrefillRows() int {
	switch {
	case len(b.long) > 0:
		return b.long[len(b.long)-1].Tokens()
	case b.Rows() == 1:
		return oneRows
	}
	return 0
}

// PrefillSequences is how many sequences a launch of a prefill kernel may be of.
func (b *Bundle) PrefillSequences() int {
	n := 1
	for i, r := range b.long {
		if i == 0 {
			n = r.Sequences()
		}
		n = min(n, r.Sequences())
	}
	return n
}

// SplitMost has launches of prefill kernels split keys and values into as many parts as there can be, or no longer.
func (b *Bundle) SplitMost(most bool) {
	for _, r := range b.long {
		r.SplitMost = most
	}
}

// PrefillSplits is how many launches of prefill kernels have split keys and values so far.
func (b *Bundle) PrefillSplits() (n int) {
	for _, r := range b.long {
		n += r.splits
	}
	return n
}

// codedLeast is PrefillLeast of weights that a prefill step makes bf16: it takes longer than four steps of 16 rows,
// less long than five (docs/prefill.md).
const codedLeast = 65

// PrefillLeast is with how many tokens a launch of a prefill kernel is worth it.
func (b *Bundle) PrefillLeast() int {
	if len(b.long) > 0 && b.long[0].long.Scratch() > 0 {
		return max(b.Rows()+1, min(codedLeast, b.PrefillRows()))
	}
	return b.Rows() + 1
}

// PrefillDraws is whether no prefill kernel is there: those take the highest logits.
func (b *Bundle) PrefillDraws() bool { return len(b.long) == 0 }

// agree refuses kernels that cannot share weights and cache.
func agree(members []Member, pin int) error {
	if len(members) == 0 {
		return errors.New("a bundle of no kernel, want at least one")
	}
	if pin > 0 && (len(members) > 1 || !members[0].Kernel.Ragged()) {
		return fmt.Errorf("parts pinned at multiples of %d tokens in a bundle of %d kernels, the widest of %d rows; want one, of several rows", pin, len(members), members[0].Kernel.Options.Tokens)
	}
	first := members[0].Kernel
	for i, m := range members[1:] {
		k := m.Kernel
		switch {
		case k.Options.Tokens == members[i].Kernel.Options.Tokens && k.Draws() == members[i].Kernel.Draws():
			return fmt.Errorf("two kernels of %d rows in a bundle, want one, or one of two that draws", k.Options.Tokens)
		case k.Config.Name != first.Config.Name || k.KV != first.KV || k.Plan.PackedBytes != first.Plan.PackedBytes:
			return fmt.Errorf("a bundle of %s (%d bytes packed, cache %+v) and %s (%d bytes packed, cache %+v), want one model and one cache",
				first.Config.Name, first.Plan.PackedBytes, first.KV, k.Config.Name, k.Plan.PackedBytes, k.KV)
		case slices.ContainsFunc(k.Plan.Layer, across) != slices.ContainsFunc(first.Plan.Layer, across):
			return errors.New("kernels that have their weights packed by rows and by columns in a bundle, want one way")
		case k.Graph != nil:
			return errors.New("a graph of kernels in a bundle of several, want megakernels")
		}
	}
	return nil
}

// drawsLast orders kernels of the same rows.
func drawsLast(k *megakernel.Kernel) int {
	if k.Draws() {
		return 1
	}
	return 0
}

func across(m pipeline.MatrixPlan) bool { return m.Across() }

// Loaded says how the weights came to the device.
func (b *Bundle) Loaded() LoadStats { return b.loaded }

// Rows is how many tokens a step takes at most: those of the widest kernel.
func (b *Bundle) Rows() int { return b.of[len(b.of)-1].Rows() }

// SetEnds makes these tokens end a launch of any kernel, see Session.SetEnds.
func (b *Bundle) SetEnds(tokens []int) error {
	for _, r := range b.runners() {
		if r.long != nil {
			continue // its launches end by themselves
		}
		if err := r.SetEnds(tokens); err != nil {
			return err
		}
	}
	return nil
}

// SetHangTimeout is how long a launch may make no step before it is given up with a
// *HangError; 0 waits for ever.
func (b *Bundle) SetHangTimeout(d time.Duration) {
	for _, r := range b.runners() {
		r.HangTimeout = d
	}
}

func (b *Bundle) runners() (all []*runner) {
	for _, r := range b.long {
		all = append(all, &r.runner)
	}
	for _, s := range b.of {
		all = append(all, &s.runner)
	}
	return all
}

// Run runs one launch; see batch.Stepper. After a launch of any kernel has failed none follows.
func (b *Bundle) Run(ctx context.Context, q batch.StepRequest) ([][]int, error) {
	for _, r := range b.runners() {
		if r.failed != nil {
			return nil, r.failed
		}
	}
	rows, draws := 0, false
	for i := range q.Sequences {
		rows += len(q.Sequences[i].New)
		draws = draws || q.Sequences[i].Draw.Modes() != 0 || q.Sequences[i].Scored != nil
	}
	b.last, b.prompt, b.asked = nil, nil, b.asked[:0]
	for i := range q.Sequences {
		b.asked = append(b.asked, q.Sequences[i].Draw)
	}
	if len(b.long) > 0 && rows > b.Rows() && len(q.Sequences) <= b.PrefillSequences() && q.Steps == 1 {
		return b.prefill(ctx, q)
	}
	b.last = b.narrowest(rows, draws)
	return b.last.Run(ctx, q)
}

// narrowest is the kernel with the fewest rows that has enough, and draws where it must; else the last of the widest,
// which refuses what it cannot do, or feeds a prompt's tokens row by row.
func (b *Bundle) narrowest(rows int, draws bool) *Session {
	for _, s := range b.of {
		if min(rows, b.Rows()) <= s.Rows() && (s.mk.Draws() || !draws) {
			return s
		}
	}
	return b.of[len(b.of)-1]
}

// prefill runs a launch of the prefill kernel that fits. That kernel takes the highest logits; a sequence that draws
// has its token drawn here, as a kernel would.
func (b *Bundle) prefill(ctx context.Context, q batch.StepRequest) ([][]int, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := 0
	for i := range q.Sequences {
		n += len(q.Sequences[i].New)
	}
	r := b.long[len(b.long)-1] // which refuses more
	for _, fits := range slices.Backward(b.long) {
		if n <= fits.Tokens() {
			r = fits
		}
	}
	b.prompt = r
	if err := r.SetShort(q.Short); err != nil {
		return nil, err
	}
	r.begun = q.Begun
	chosen, err := r.RunAll(ctx, q.Sequences, q.Quiet)
	if err != nil {
		return nil, err
	}
	for i := range q.Sequences {
		s := &q.Sequences[i]
		if q.Quiet || s.Draw.Modes() == 0 {
			continue
		}
		if err := b.readPrompt(i); err != nil {
			return nil, err
		}
		chosen[i] = s.Draw.Choose(b.logits, uint32(s.Cached+len(s.New)))
	}
	if !q.Quiet && q.Each != nil {
		q.Each(chosen)
	}
	return [][]int{chosen}, ctx.Err()
}

// readPrompt reads the logits of sequence i of the prefill kernel that ran last.
func (b *Bundle) readPrompt(i int) error {
	vocab := b.prompt.mk.Config.Vocab
	b.logits = slices.Grow(b.logits[:0], vocab)[:vocab]
	return b.prompt.Logits(i, b.logits)
}

// Choice is the token that follows new token k of sequence i of the last launch, which had several rows; see
// batch.Stepper.
func (b *Bundle) Choice(i, k int) (int, error) {
	if b.prompt != nil {
		return 0, errors.New("the choice of a row after a launch of a prompt, which makes the last one's alone")
	}
	if b.last == nil {
		return 0, errors.New("the choice of a row before the first launch")
	}
	return b.last.Choice(i, k)
}

// TokenLogits reads those that follow new token k of sequence i of the last launch; see batch.Stepper.
func (b *Bundle) TokenLogits(i, k int, dst []float32) error {
	if b.last != nil {
		return b.last.TokenLogits(i, k, dst)
	}
	if b.prompt != nil {
		return fmt.Errorf("logits of new token %d of sequence %d, there are those of the last one", k, i)
	}
	return b.Logits(i, dst)
}

// Logits reads those that follow the last new token of sequence i of the last launch, of its
// last step, into dst, Vocab long.
func (b *Bundle) Logits(i int, dst []float32) error {
	switch {
	case b.last != nil:
		return b.last.Logits(i, dst)
	case b.prompt == nil:
		return errors.New("logits before the first launch")
	}
	return b.prompt.Logits(i, dst)
}
