package verify

import (
	"fmt"
	"math"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
)

const (
	wantTurns = 3 // of the ring in a launch
	leastSMs  = 2 // below, nothing is shared

	// fewTokens is a vocabulary of which a kernel may choose the same token again and again.
	fewTokens = 128

	// mostLayers is how many the shrunk kernel gets where fewer do not turn the ring
	// so often. With every layer roundings grow.
	mostLayers = 4
)

// wishes are what a run of the shrunk kernel is to exercise as far as its shape
// lets it, and why that is not more.
type wishes struct {
	turns, uneven, tokens          int
	turnsWhy, unevenWhy, tokensWhy string
}

// within is what a kernel can exercise.
func within(mk *megakernel.Kernel) wishes {
	w := wishes{turns: wantTurns, uneven: 1, tokens: 2}
	if mk.Options.SMs == 1 {
		w.uneven, w.unevenWhy = 0, "one SM has all"
	}
	if n := mk.Config.Vocab; n < fewTokens {
		w.tokens, w.tokensWhy = 1, fmt.Sprintf("of a vocabulary of %d", n)
	}
	if can := turns(mk); can < wantTurns {
		w.turns, w.turnsWhy = can, fmt.Sprintf("so few copies for %d stages", mk.Options.Stages)
	}
	return w
}

// fit is the shrunk kernel with sizes, not further from the real ones than need
// be, at which its ring turns, its matrices are shared unevenly and it has
// positions for n steps. What asked, the options before anything was chosen,
// says of the ring stays. Where no size will do, see within.
func fit(real *megakernel.Kernel, asked megakernel.Options, steps int) (*megakernel.Kernel, error) {
	c, o := shrink(real)
	for {
		small, err := megakernel.Build(c, o)
		if err != nil {
			return nil, err
		}
		if n := cachedTokens(small); o.Unsplit > 0 && o.Unsplit != n {
			o.Unsplit = n // the first step's KV heads are one SM's each, and later steps have splits
		} else if n := positions(small, steps); n > c.MaxPositions {
			c.MaxPositions = n // only the session asks for it
		} else if !adjust(&c, &o, small, real, asked) {
			return small, nil
		}
	}
}

// positions are how many a check of n steps asks for.
func positions(small *megakernel.Kernel, steps int) int {
	if small.Ragged() {
		return longest(small) + (fixedLaunches+steps)*(small.Options.Tokens+maxGrowth)
	}
	return cachedTokens(small) + max(steps, freeSteps)
}

// adjust makes one size better suited; false when small is good or nothing helps.
// Each size moves in one direction only, so this ends.
func adjust(c *models.Config, o *megakernel.Options, small, real *megakernel.Kernel, asked megakernel.Options) bool {
	if o.SMs > 1 && even(small.Plan) {
		c.Vocab -= pipeline.TileRows // a multiple of the SMs, at least 2 tiles
		return true
	}
	if turns(small) >= wantTurns {
		return false
	}
	apart := 0 // chunks that copies in flight leave in the ring
	if takes(real) {
		apart = small.BlocksApart()
	}
	fewest := max(2, asked.InFlight+apart, 1+apart) // stages
	if leads := small.Plan.Throttles; len(leads) > 0 {
		fewest = max(fewest, leads[len(leads)-1].Chunks+1, leads[0].InFlight+1+apart)
	}
	halved := o.StageBytes / 2 / pipeline.StageAlign * pipeline.StageAlign
	switch {
	case c.Layers < min(real.Config.Layers, mostLayers):
		c.Layers = min(2*c.Layers, real.Config.Layers, mostLayers)
	case asked.Stages == 0 && o.Stages > fewest:
		o.Stages = max(fewest, min(o.Stages-1, copies(small)/wantTurns))
		o.InFlight = min(o.InFlight, o.Stages-apart)
	case o.SMs > leastSMs:
		o.SMs--
	case asked.StageBytes == 0 && halved >= max(pipeline.GroupBytes, pipeline.KVTokenMultiple*small.KV.TokenBytes()):
		o.StageBytes = halved
	default:
		return false
	}
	return true
}

// takes is whether attention's warps go from one of their blocks to the next and wait for no
// chunk between, for which there is code of its own; see pipeline.Consumer.Reach.
func takes(mk *megakernel.Kernel) bool { return mk.BlocksApart() <= mk.Plan.Stages-mk.Plan.InFlight }

// even reports whether all SMs have equally many tiles of every matrix.
func even(p *pipeline.Plan) bool {
	for _, ms := range [][]pipeline.MatrixPlan{p.Layer, p.Final} {
		for _, m := range ms {
			if m.Tiles%p.SMs != 0 {
				return false
			}
		}
	}
	return true
}

// turns is how often the ring goes round in a launch, on the SM that copies least.
func turns(mk *megakernel.Kernel) int { return copies(mk) / mk.Options.Stages }

// copies is how many chunks the SM with the fewest copies in the first launch, or, if that is fewer, in the second,
// where the first has no splits.
func copies(mk *megakernel.Kernel) int {
	context, fewest := cachedTokens(mk), math.MaxInt
	for sm := range mk.Options.SMs {
		kv := kvCopies(mk, sm, context)
		if _, unsplit := mk.UnsplitIn(context); unsplit {
			kv = min(kv, kvCopies(mk, sm, context+1))
		}
		layer := int(mk.Plan.ChunkCount(sm, 0)) + kv
		fewest = min(fewest, mk.Config.Layers*layer+int(mk.Plan.ChunkCount(sm, pipeline.FinalLayer)))
	}
	return fewest
}

// kvCopies is how many chunks of the cache an SM copies in a layer without a window.
func kvCopies(mk *megakernel.Kernel, sm, cached int) (n int) {
	chunks := pipeline.CeilDiv(cached, mk.ChunkTokens()) // of a KV head
	items, splits := mk.AttentionItems(), mk.Options.Splits
	all, unsplit := mk.UnsplitIn(cached)
	for item := sm; !mk.Ragged() && item < items*splits; item += mk.Options.SMs {
		switch split := item / items; {
		case !unsplit:
			n += (split+1)*chunks/splits - split*chunks/splits
		case split == all:
			n += chunks
		}
	}
	return n
}
