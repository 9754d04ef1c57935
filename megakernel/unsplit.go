package megakernel

import (
	"cmp"
	"slices"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
)

// UnsplitNone is the Options.Unsplit of a kernel that splits KV heads however few tokens are cached.
const UnsplitNone = -1

// The default of Unsplit: blocks of tokens that each consumer warp works on, and bytes of a KV head's K and V at most,
// which the SMs that work on KV heads stream more than others.
const (
	unsplitBlocks = 2
	unsplitBytes  = 128 << 10
)

// completeUnsplit refuses what Unsplit cannot be, and chooses it if it was left open. It stays open, and KV heads are
// never one SM's, where there is one split, where states meet in a phase of their own, and where a fault of the merge
// is planted, which would go unseen.
func (o *Options) completeUnsplit(c *models.Config) error {
	switch {
	case o.Unsplit < UnsplitNone || o.Unsplit > maxPositions:
		return refuse("Unsplit", "%d tokens, want 0 to %d", o.Unsplit, maxPositions)
	case o.Unsplit > 0 && o.Tokens > 1:
		return refuse("Unsplit", "KV heads of up to %s unsplit with %d query rows a step, where a launch's plan says what is split; want one row",
			plural.Of(o.Unsplit, "token"), o.Tokens)
	case o.Unsplit > 0 && o.graph():
		return refuse("Unsplit", "KV heads of up to %s unsplit in a graph of kernels, want one kernel",
			plural.Of(o.Unsplit, "token"))
	case !o.statesInWords() || o.Splits == 1 || o.Fault == FaultMergeShare:
		o.Unsplit = min(o.Unsplit, 0)
	case o.Unsplit == 0:
		blocks := min(unsplitBlocks*o.Consumers, unsplitBytes/(kvLayout(c, o).TokenBytes()*pipeline.KVTokenMultiple))
		o.Unsplit = cmp.Or(blocks*pipeline.KVTokenMultiple, UnsplitNone)
	}
	return nil
}

// unsplit is Unsplit as attention takes it.
func (mk *Kernel) unsplit() attention.Unsplit {
	if mk.Options.Unsplit <= 0 {
		return attention.Unsplit{}
	}
	return attention.Unsplit{Tokens: mk.Options.Unsplit,
		Split: leastLoaded(mk.Plan, mk.AttentionItems(), mk.Options.Splits)}
}

// UnsplitIn reports whether a KV head is one SM's in a step with that many cached tokens, and in which split's items.
func (mk *Kernel) UnsplitIn(cached int) (split int, is bool) {
	u := mk.unsplit()
	return u.Split, u.Tokens > 0 && cached <= u.Tokens
}

// leastLoaded is the split whose SMs together have the fewest bytes of a layer's matrices, of equal ones the fewest of
// o's, and of these the first. Items of attention, some of each split, are dealt to the SMs in turn.
func leastLoaded(p *pipeline.Plan, items, splits int) int {
	type load struct{ split, layer, o int }
	loads := make([]load, splits)
	for s := range splits {
		loads[s].split = s
		for item := s * items; item < (s+1)*items; item++ {
			for i := range p.Layer {
				m := &p.Layer[i]
				bytes := m.Count[item%p.SMs] * int(m.TileBytes())
				if loads[s].layer += bytes; i == MatrixO {
					loads[s].o += bytes
				}
			}
		}
	}
	return slices.MinFunc(loads, func(a, b load) int {
		return cmp.Or(cmp.Compare(a.layer, b.layer), cmp.Compare(a.o, b.o), cmp.Compare(a.split, b.split))
	}).split
}

// reportUnsplit says up to which context no states meet.
func (mk *Kernel) reportUnsplit(r *report) {
	if u := mk.unsplit(); u.Tokens > 0 {
		r.text("Up to %s a KV head is one SM's, in split %d: no states meet.", plural.Of(u.Tokens, "cached token"), u.Split)
	}
}
