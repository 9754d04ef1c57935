package tests

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
)

// text is a sequence of a play.
type text struct {
	pages  []uint32
	length int // tokens in the cache
}

// newPlay makes a play whose texts begin with n random tokens in the cache,
// all that are long enough with the same prefix, a multiple of the page size; each
// has room for 24 more.
func newPlay(t *testing.T, mk *megakernel.Kernel, prefix int, lengths ...int) (*play, []*text) {
	t.Helper()
	p := &play{mk: mk, weights: syntheticWeights(mk), cached: map[uint32][]byte{},
		epoch: -uint32(3 * mk.Barriers() * mk.Options.SMs / 2)}
	page, need := mk.KV.Page, prefix/mk.KV.Page
	for _, n := range lengths {
		need += (n+24)/page + 1
	}
	p.pages = need + 2
	rng := rand.New(rand.NewPCG(7, 7))
	free := rng.Perm(p.pages - 1) // nobody has the last one
	var shared []uint32
	take := func() uint32 {
		page := uint32(free[0])
		free = free[1:]
		return page
	}
	for range prefix / page {
		shared = append(shared, take())
	}
	var texts []*text
	for _, n := range lengths {
		x := &text{length: n}
		if n >= prefix {
			x.pages = append(x.pages, shared...)
		}
		for len(x.pages)*page < n+24 {
			x.pages = append(x.pages, take())
		}
		for _, used := range x.pages[:(n+page-1)/page] {
			if p.cached[used] == nil {
				p.cached[used] = randomPage(rng, mk)
			}
		}
		texts = append(texts, x)
	}
	return p, texts
}

// randomPage is a page of all layers.
func randomPage(rng *rand.Rand, mk *megakernel.Kernel) []byte {
	var out []byte
	for range mk.Config.Layers * mk.KV.PageBytes() / 2 {
		out = reference.ToBF16(rng.NormFloat64()).Append(out)
	}
	return out
}

// feed is the sequence with n new tokens in a launch that will run n steps to
// their end, and leave as many tokens in the cache.
func (x *text) feed(n, ran int) batch.Sequence {
	s := batch.Sequence{Pages: x.pages, Cached: x.length,
		Draw: draws[(x.length+n)%len(draws)].Rule(&sampling.Penalties{Repetition: 1.5, Bias: map[int]float64{3: 1}},
			[]int{x.length % 8}, nil, 0)}
	for i := range n {
		s.New = append(s.New, (7*x.length+3*i)%16)
	}
	if ran > 0 {
		x.length += n + ran - 1
	}
	return s
}

// mixedPlay is a play of launches of all kinds.
func mixedPlay(t *testing.T, mk *megakernel.Kernel) *play {
	t.Helper()
	p, x := newPlay(t, mk, 32, 70, 33, 3, 0, 48)
	add := func(l playLaunch, seqs ...batch.Sequence) {
		l.greedy, l.masked = l.greedy || !mk.Draws(), l.masked && mk.Draws()
		for i := range seqs {
			if l.greedy {
				seqs[i].Draw = batch.Sequence{}.Draw
				continue
			}
			if l.plain {
				p := sampling.Params{Temperature: 1.5, TopK: 12, Seed: uint64(i)}
				seqs[i].Draw = p.Rule(&sampling.Penalties{}, nil, nil, 0)
				seqs[i].Draw.SetTops(sampling.MaxLogprobs - i)
				continue
			}
			if l.masked {
				seqs[i].Draw.SetMask(maskOf(mk, 0, i))
			} else if !l.stop && !l.end && !l.givenUp && i%2 == 0 {
				seqs[i].Draw.SetTops(5 * i)
			}
		}
		l.seqs = seqs
		p.launches = append(p.launches, l)
	}
	rows := mk.Options.Tokens
	add(playLaunch{steps: 1}, x[0].feed(1, 1), x[3].feed(rows-3, 1), x[2].feed(2, 1)) // chunks of prompts beside a token
	add(playLaunch{steps: 1, quiet: true}, x[1].feed(rows-1, 1), x[4].feed(1, 1))     // whose logits nobody wants
	add(playLaunch{steps: 3, masked: true}, x[0].feed(1, 3))                          // a row whose states one SM merges
	add(playLaunch{steps: 1}, x[0].feed(rows, 1))                                     // rows that a phase merges
	add(playLaunch{steps: 2}, x[0].feed(1, 2), x[1].feed(1, 2), x[4].feed(1, 2))      // a prefix of all
	add(playLaunch{steps: 1, greedy: true}, x[2].feed(rows-1, 1), x[1].feed(1, 1))    // as many rows as there is room for
	// the host ends it after its first step
	add(playLaunch{steps: 4, stop: true}, x[1].feed(1, 1), x[3].feed(1, 1))
	// what it chooses in its second step ends it
	add(playLaunch{steps: 4, end: true}, x[0].feed(1, 1), x[2].feed(1, 1))
	add(playLaunch{steps: 2, givenUp: true}, x[0].feed(1, 0), x[2].feed(1, 0))
	add(playLaunch{steps: 1, plain: true}, x[0].feed(1, 1), x[2].feed(1, 1))
	return p
}

// playSubject is a mixed play of a kernel with some sizes changed.
func playSubject(t *testing.T, kvHeads, intermediate, vocab, pin int, o megakernel.Options) *subject {
	t.Helper()
	o.Page, o.Stages, o.InFlight = 4, 3, 2
	p := mixedPlay(t, raggedShape(t, 3*kvHeads, kvHeads, intermediate, vocab, o))
	p.pin = pin
	return p.subject(t)
}

// Every synchronisation of a ragged kernel, removed, weakened, miscounted or moved,
// is reported, but for those that ringExcuses and raggedExcuses explain.
func TestMutantsOfARaggedKernelAreReported(t *testing.T) {
	deep.Only(t)
	start := time.Now()
	excuses := slices.Concat(ringExcuses, raggedExcuses)
	o := megakernel.Options{SMs: 2, Tokens: 8, Consumers: 3, StageBytes: 1024, Draws: true}
	first := playSubject(t, 1, 120, 96, 0, o)
	outcomes := first.tryAll(t, sample(t, first.ir, raggedEvery, excuses), excuses)
	again := func(open func() *subject) { tryAgain(t, outcomes, excuses, open) }
	for _, p := range attentionPlays(t, 1) {
		again(func() *subject { return p.subject(t) })
	}
	// some SMs have no rows of the LM head
	again(func() *subject {
		return playSubject(t, 2, 120, 24, 32, megakernel.Options{SMs: 4, Tokens: 6, Consumers: 4, StageBytes: 2048,
			Draws: true})
	})
	// a thread has four loads of logits under way
	again(func() *subject {
		return playSubject(t, 1, 16, 832, 0, megakernel.Options{SMs: 2, Tokens: 8, Consumers: 3, StageBytes: 1024,
			Draws: true})
	})
	again(func() *subject {
		o := o
		o.Stages, o.InFlight, o.Page = 3, 2, 4
		return newRaggedHanging(t, o)
	})
	// some have none at all
	again(func() *subject {
		return playSubject(t, 1, 16, 24, 0, megakernel.Options{SMs: 50, Tokens: 5, Consumers: 1, StageBytes: 1024,
			Draws: true})
	})
	judge(t, "mutants of a ragged kernel on the executor", outcomes, excuses, raggedExcuses, start)
}

// The same of what a kernel has twice whose layers take turns with a window.
func TestMutantsOfARaggedKernelOfTwoClassesAreReported(t *testing.T) {
	deep.Only(t)
	start := time.Now()
	excuses := slices.Concat(ringExcuses, raggedExcuses)
	first := playSubject(t, 1, 16, 32, 0, megakernel.Options{SMs: 2, Tokens: 8, Consumers: 3, StageBytes: 1024,
		Draws: true, Attention: "window=40+sinks=4/causal"})
	// which attention-only kernels call attention
	inClass := func(m mutate.Mutation) bool { return strings.HasPrefix(m.Region, "layers of ") }
	name := func(m mutate.Mutation) string {
		if inClass(m) {
			return strings.Replace(m.String(), m.Region, "attention", 1)
		}
		return m.String()
	}
	var chosen []mutant
	for _, m := range sampleOf(t, mutantsNamed(first.ir, name), attentionEvery, excuses) {
		if inClass(m.Mutation) || strings.Contains(m.Region, "merge") || m.Region == "prologue" {
			chosen = append(chosen, m)
		}
	}
	outcomes := first.tryAll(t, chosen, excuses)
	for _, p := range attentionPlays(t, 2) {
		tryAgain(t, outcomes, excuses, func() *subject { return p.subject(t) })
	}
	judge(t, "mutants of a ragged kernel of two classes on the executor", outcomes, excuses, nil, start)
}
