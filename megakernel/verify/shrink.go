package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
)

// Sizes of the shrunk kernel, each where the real one is not smaller still.
const (
	smallLayers  = 2
	smallHidden  = 160 // 20 row tiles: 3 SMs share them unevenly
	smallVocab   = 328 // 41 row tiles
	smallKVHeads = 2
	smallSMs     = 3
	smallSplits  = 3
	largestStage = 32768 // bytes; a larger stage becomes half of it

	// moreShared is how many times the real shared memory a CTA has: with fewer SMs each
	// has more work items of attention, which must not take the ring's place.
	moreShared = 4
)

// shrink is the configuration and the options of the small kernel. Whatever
// decides which code the templates emit stays: head dimension and grouping,
// remainders of the sizes, page, ring, roles; fit changes what must be. The intermediate size stays larger
// than a stage holds columns, so that row tiles take several chunks.
func shrink(mk *megakernel.Kernel) (models.Config, megakernel.Options) {
	c, o := mk.Config, mk.Options
	if o.StageBytes > largestStage {
		o.StageBytes = max(largestStage/2, (pipeline.KVTokenMultiple*mk.KV.TokenBytes()+127)/128*128)
	}
	columns, part, hidden := o.StageBytes/pipeline.GroupBytes*pipeline.GroupK, pipeline.GroupK, smallHidden
	if f := o.Weights; f.Parts() >= 4 { // of whose groups inputs are whole, or not
		part, hidden = f.Columns(), 2*f.Columns()
		if mk.OwnGroups(megakernel.MatrixQKV) > 0 {
			hidden = o.Consumers * part
		}
		columns = o.StageBytes / f.Of(part) * part
	}
	group := c.Heads / c.KVHeads
	c.Layers = min(c.Layers, max(smallLayers, 1+strings.Count(o.Attention, "/"))) // of every kind
	o.Attention = megakernel.ShrinkWindows(o.Attention, mk.ChunkTokens()+7)
	c.Hidden = atMost(c.Hidden, hidden, part)
	c.Intermediate = atMost(c.Intermediate, columns+3*part, part)
	c.Vocab = atMost(c.Vocab, smallVocab, pipeline.TileRows)
	c.KVHeads = min(c.KVHeads, smallKVHeads)
	c.Heads = c.KVHeads * group
	c.BOS, c.EOS = models.NoToken, nil // no token of the real vocabulary
	o.SMs = min(o.SMs, smallSMs)
	o.SharedLimit *= moreShared
	o.Splits = min(o.Splits, smallSplits)
	return c, o
}

// atMost is n, or if that is larger, small with n's remainder modulo m; small is
// a multiple of m.
func atMost(n, small, m int) int {
	if n <= small+m {
		return n
	}
	return small + n%m
}

// compare lists what the two kernels share and which sizes differ.
func compare(real, small *megakernel.Kernel, context int) (equal []Fact, shrunk []Size) {
	size := func(name string, of func(*megakernel.Kernel) int) {
		if a, b := of(real), of(small); a == b {
			equal = append(equal, Fact{name, fmt.Sprint(a)})
		} else {
			shrunk = append(shrunk, Size{name, a, b})
		}
	}
	text := func(name string, of func(*megakernel.Kernel) string) {
		if a, b := of(real), of(small); a == b {
			equal = append(equal, Fact{name, a})
		}
	}
	equal = append(equal, sharedLines(sources(real.IR), sources(small.IR)))
	text("phases", phases)
	text("syncs", syncs)
	text("roles", func(k *megakernel.Kernel) string { return rolesOf(k.IR) })
	size("page size", func(k *megakernel.Kernel) int { return k.Options.Page })
	size("ring stages", func(k *megakernel.Kernel) int { return k.Options.Stages })
	size("stage bytes", func(k *megakernel.Kernel) int { return k.Options.StageBytes })
	size("copies in flight", func(k *megakernel.Kernel) int { return k.Options.InFlight })
	text("leads", func(k *megakernel.Kernel) string { return k.Options.Leads })
	size("chunks held", func(k *megakernel.Kernel) int { return max(0, k.Options.Held) })
	size("head dimension", func(k *megakernel.Kernel) int { return k.Config.HeadDim })
	if o := real.Options; o.Attention != "" {
		text("attention", func(k *megakernel.Kernel) string { return k.Options.Attention })
		size("kinds of attention", func(k *megakernel.Kernel) int { return len(k.Classes()) })
		for i, c := range real.Classes() {
			if c.Window > 0 {
				size(fmt.Sprintf("window of kind %d", i+1), func(k *megakernel.Kernel) int { return k.Classes()[i].Window })
			}
		}
	}
	size("query rows of a step", func(k *megakernel.Kernel) int { return k.Options.Tokens })
	size("query heads a KV head", func(k *megakernel.Kernel) int { return k.Config.Heads / k.Config.KVHeads })
	size("SMs", func(k *megakernel.Kernel) int { return k.Options.SMs })
	if !real.Ragged() {
		size("KV splits", func(k *megakernel.Kernel) int { return k.Options.Splits })
		size("cached tokens without splits", func(k *megakernel.Kernel) int { return max(0, k.Options.Unsplit) })
	}
	for i, m := range real.Plan.Layer {
		if real.OwnGroups(i) > 0 {
			size("groups side by side of "+m.Name+"'s input that a warp stages for itself",
				func(k *megakernel.Kernel) int { return k.OwnGroups(i) })
		}
	}
	size("layers", func(k *megakernel.Kernel) int { return k.Config.Layers })
	size("hidden size", func(k *megakernel.Kernel) int { return k.Config.Hidden })
	size("intermediate size", func(k *megakernel.Kernel) int { return k.Config.Intermediate })
	size("KV heads", func(k *megakernel.Kernel) int { return k.Config.KVHeads })
	size("vocabulary", func(k *megakernel.Kernel) int { return k.Config.Vocab })
	shrunk = append(shrunk, Size{"context", real.Config.MaxPositions, context})
	return equal, shrunk
}

// sources is the set of template lines that a kernel's instructions come from.
func sources(k *ir.Kernel) map[string]bool {
	lines := map[string]bool{}
	k.Instrs(func(in *ir.Instr) { lines[in.Pos.Line] = true })
	return lines
}

// sharedLines says how many of the real kernel's lines the small one has, and
// which it has not if those are few.
func sharedLines(real, small map[string]bool) Fact {
	var missing []string
	for l := range real {
		if !small[l] {
			missing = append(missing, l)
		}
	}
	slices.Sort(missing)
	text := fmt.Sprintf("%d of the real kernel's %d", len(real)-len(missing), len(real))
	if len(missing) > 0 && len(missing) <= 3 {
		text += ", not " + strings.Join(missing, ", ")
	}
	return Fact{"template lines", text}
}

func phases(k *megakernel.Kernel) string {
	var names []string
	for _, p := range k.Phases {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// syncs counts the phases that end in each kind of sync.
func syncs(k *megakernel.Kernel) string {
	n := map[string]int{}
	for _, p := range k.Phases {
		if p.Sync != "" {
			n[p.Sync]++
		}
	}
	var parts []string
	for name, times := range n {
		parts = append(parts, fmt.Sprintf("%s after %d of %d phases", name, times, len(k.Phases)))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// rolesOf is "consumers warps 0-7, producer warp 8".
func rolesOf(k *ir.Kernel) string {
	var parts []string
	ir.Walk(k.Body, func(s ir.Stmt) bool {
		if rs, ok := s.(*ir.Roles); ok {
			for _, r := range rs.Roles {
				where := fmt.Sprintf("warps %d-%d", r.First, r.End-1)
				if r.End == r.First+1 {
					where = fmt.Sprintf("warp %d", r.First)
				}
				parts = append(parts, cmp.Or(r.Name, "unnamed")+" "+where)
			}
		}
		return true
	})
	return strings.Join(parts, ", ")
}
