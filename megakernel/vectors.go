package megakernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks"
)

// WordsNone is the Options.Words of a kernel whose vectors all stand behind barriers.
const WordsNone = "none"

// VectorPhases are the phases whose output vector may be handed on in words. That of
// gate_up never is: it is the longest, and a barrier a layer keeps the SMs from writing
// words anew that another one has yet to read.
func VectorPhases() []string { return []string{phaseAttention, "o", "down"} }

// handsOn is whether a phase's output vector is handed on in words.
func (o *Options) handsOn(phase string) bool {
	return slices.Contains(strings.Split(o.Words, ","), phase)
}

// completeWords chooses for vectors, brings what was chosen into its one form, and
// refuses what cannot be.
func (o *Options) completeWords() error {
	if o.Words == "" {
		o.Words = WordsNone
		if o.Tokens == 1 && !o.graph() {
			o.Words = strings.Join(VectorPhases(), ",")
		}
	}
	if o.Words == WordsNone {
		return nil
	}
	given := strings.Split(o.Words, ",")
	for _, name := range given {
		if !slices.Contains(VectorPhases(), name) {
			return refuse("Words", "found phase %q in %q, want some of %s with commas between them, or none", name, o.Words, strings.Join(VectorPhases(), ", "))
		}
	}
	var all []string
	for _, name := range VectorPhases() {
		if slices.Contains(given, name) {
			all = append(all, name)
		}
	}
	if len(all) != len(given) {
		return refuse("Words", "a phase twice in %q", o.Words)
	}
	o.Words = strings.Join(all, ",")
	switch {
	case o.Tokens > 1:
		return refuse("Words", "%q with %d query rows a step, want one row", o.Words, o.Tokens)
	case o.graph():
		return refuse("Words", "%q in a graph of kernels, where a kernel's end is the hand-off; want none", o.Words)
	case !o.handsOn("o") && o.barriersBeforeO() == 0:
		return refuse("Words", "%q: no barrier from down to o, where SMs that are ahead would write the residual vector that others read; want o, too, or a barrier between", o.Words)
	}
	return nil
}

// barriersBeforeO is how many grid barriers a layer has from its beginning to o.
func (o *Options) barriersBeforeO() (n int) {
	for _, is := range []bool{o.Queries == HandoffBarrier, o.Merge == MergePhase, !o.handsOn(phaseAttention)} {
		if is {
			n++
		}
	}
	return n
}

// alternates is whether a layer has no barrier but the one behind gate_up: what that
// orders has two places then, which the layers use in turn.
func (o *Options) alternates() bool {
	return o.barriersBeforeO() == 0 && o.handsOn("o") && o.handsOn("down")
}

// BufferWords is the buffer of a phase's output vector where it is handed on in words.
func BufferWords(phase string) string { return phase + "_words" }

// vectorWords are those buffers.
type vectorWords struct{ attention, o, down dsl.Buf[dsl.B128] }

func (mk *Kernel) declareVectors(k *dsl.Kernel, b *buffers) {
	c, o := &mk.Config, &mk.Options
	words := func(phase string, n int, of string) (w dsl.Buf[dsl.B128]) {
		if o.handsOn(phase) {
			w = dsl.Global[dsl.B128](k, BufferWords(phase), int64(n), bufDoc("%s, a pair and a tag in each", of))
		}
		return w
	}
	const planes = "[2][%d] words of the residual vector behind %s: pairs of even index, then the others"
	b.vectorWords.attention = words(phaseAttention, c.Heads*c.HeadDim/2, fmt.Sprintf("[4][%d] words of attention's output: pair i is in part i%%4", c.Heads*c.HeadDim/8))
	b.vectorWords.o = words("o", c.Hidden/2, fmt.Sprintf(planes, c.Hidden/4, "attention"))
	b.vectorWords.down = words("down", c.Hidden/2, fmt.Sprintf(planes, c.Hidden/4, "the MLP"))
}

// vectors are what phases hand on to all SMs: the residual vector, and attention's output.
type vectors struct {
	f         *single
	attention *tasks.Handed // nil behind a barrier
}

func (f *single) vectors() *vectors {
	c := &f.mk.Config
	v := &vectors{f: f}
	if f.mk.Options.handsOn(phaseAttention) {
		v.attention = &tasks.Handed{Words: f.words(0), Buf: f.bufs.vectorWords.attention, Pairs: c.Heads * c.HeadDim / 2, Planes: 4, What: "waits for attention's output, word %d"}
	}
	return v
}

// handed is the residual vector behind o or down, as it was handed on so many barriers
// ago.
func (v *vectors) handed(phase string, barriers int) *tasks.Handed {
	buf := v.f.bufs.vectorWords.o
	if phase == "down" {
		buf = v.f.bufs.vectorWords.down
	}
	return &tasks.Handed{Words: v.f.words(barriers), Buf: buf, Pairs: v.f.mk.Config.Hidden / 2, Planes: 2, What: "waits for the residual vector, word %d"}
}

// source is that vector for all consumers, right behind the phase.
func (v *vectors) source(phase string) tasks.Source {
	if v.f.mk.Options.handsOn(phase) {
		return v.handed(phase, 0)
	}
	return tasks.FromBuf(v.f.bufs.x)
}

// some is the same vector for a few elements, so many barriers later.
func (v *vectors) some(phase string, barriers int) tasks.Vector {
	if v.f.mk.Options.handsOn(phase) {
		return v.handed(phase, barriers).Vector(v.f.env)
	}
	return tasks.FromBuf(v.f.bufs.x)
}

func (v *vectors) embedding() tasks.Vector {
	return v.f.embedding().Row(v.f.env, v.f.token.Get())
}

// first is the residual vector before attention: the token's embedding in the first
// layer, so that no hand-off is needed to begin a step.
func (v *vectors) first(s tasks.Step) tasks.Source {
	return tasks.EitherSource(s.Layer.EqC(0), v.embedding(), v.source("down"))
}

// middle is the residual vector behind attention, last the one behind the last layer.
func (v *vectors) middle() tasks.Source { return v.source("o") }
func (v *vectors) last() tasks.Source   { return v.source("down") }

// afterO and afterDown add a projection to the residual vector.
func (v *vectors) afterO(s tasks.Step) tasks.Epilogue {
	f := v.f
	old := tasks.Either(f.env, s.Layer.EqC(0), v.embedding(), v.some("down", f.mk.Options.barriersBeforeO()))
	return v.add("o", old)
}

func (v *vectors) afterDown() tasks.Epilogue { return v.add("down", v.some("o", 1)) }

func (v *vectors) add(phase string, old tasks.Vector) tasks.Epilogue {
	if v.f.mk.Options.handsOn(phase) {
		return tasks.HandResidual(v.f.env, v.handed(phase, 0), old)
	}
	return tasks.AddResidual(v.f.bufs.x, old)
}

// actAt is where a layer's act begins in the buffer.
func (f *single) actAt(s tasks.Step) dsl.Val[dsl.U32] {
	if !f.mk.Options.alternates() {
		return f.k.U32(0)
	}
	return s.Index.MulC(f.mk.Config.Layers).Add(s.Layer).AndC(1).MulC(f.mk.Config.Intermediate)
}
