package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// PrefillAttentionSuite measures causal attention of prompts alone, by a kernel of the parts of a prefill kernel, and
// checks outputs against float64.
type PrefillAttentionSuite struct {
	Machine   Machine
	Config    attend.PrefillConfig
	Sequences int
	Lengths   []int // tokens of each sequence, each at least 1
	Rounds    int
	Progress  func(what string)
}

// AttentionNoise is the tensor of package models/synth that inputs are cut from: a row of HeadDim elements begins at
// element AttentionOffset of it.
var AttentionNoise = synth.Tensor{Name: "attention", Shape: []int{1<<20 + 256}, Recipe: synth.Normal(1)}

// AttentionSeed is the seed of AttentionNoise.
const AttentionSeed = 1

// AttentionOffset is where row number row of queries (t = 0), keys (1) or values (2) begins in AttentionNoise. Row
// numbers count [sequence][token][head].
func AttentionOffset(t int, row uint64) int {
	return int(uint32(row*2654435761+uint64(t)*40503077) >> 12)
}

// MaxAttentionError is the largest error of a row that passes: the root mean square of what its elements differ by from
// float64, of that of their size, o² + Σ(p·v)². Weights p and outputs o are rounded to bf16, by 2⁻⁸ of each at most,
// which comes to half of it; a token lost shows up to 40000 tokens.
const MaxAttentionError = 1.25 * 0x1p-8

// Run measures all lengths. Outputs that are too far from float64 are an error.
func (s *PrefillAttentionSuite) Run(ctx context.Context) (*AttentionFile, error) {
	mk, err := attend.BuildPrefill(s.Config)
	if err != nil {
		return nil, err
	}
	c := mk.Config
	noise := make([]half.BF16, AttentionNoise.Elems())
	if err := synth.Fill(noise, AttentionSeed, AttentionNoise, 0); err != nil {
		return nil, err
	}
	f := &AttentionFile{Attention: c.Variant.String(), Page: c.Page,
		AttentionHeader: AttentionHeader{What: AttentionWhat, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
			Sequences: s.Sequences}}
	for _, n := range s.Lengths {
		if s.Progress != nil {
			s.Progress(fmt.Sprintf("attention of %d prompts of %d tokens", s.Sequences, n))
		}
		r := &attentionRun{s: s, mk: mk, n: n, noise: noise, scaled: scaled(noise, c.HeadDim)}
		one, err := r.measure(ctx)
		if err != nil {
			return nil, err
		}
		f.Cases = append(f.Cases, *one)
	}
	facts := s.Machine.Facts()
	f.GPU, f.Driver, f.CUDA, f.Compiler = facts.GPU, facts.Driver, facts.CUDA, facts.Compiler
	return f, nil
}

// attentionRun is one length.
type attentionRun struct {
	s             *PrefillAttentionSuite
	mk            *attend.Prefill
	n             int
	noise, scaled []half.BF16 // scaled: what queries are cut from
	dev           Loaded
	table         []uint32
	launches      int // so far
}

func (r *attentionRun) measure(ctx context.Context) (_ *AttentionCase, err error) {
	if r.dev, err = r.s.Machine.Load(ctx, r.mk.IR); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.dev.Close()) }()
	if err := r.fill(); err != nil {
		return nil, err
	}
	c := &r.mk.Config
	out := &AttentionCase{Tokens: r.n,
		FLOP: float64(r.s.Sequences) * seenPairs(r.n, c.Variant.Window) * 4 * float64(c.Heads*c.HeadDim)}
	for i := range r.s.Rounds + 1 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		took, err := r.launch()
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first one warms up
			out.Rounds = append(out.Rounds, significant(float64(took)/float64(time.Microsecond)))
		}
	}
	out.Micros = significant(median(out.Rounds))
	out.TFLOPS = significant(out.FLOP / out.Micros / 1e6)
	return out, r.check(out)
}

// seenPairs is how many pairs there are of a token of n and one that it sees: itself and those before it, with a window
// that many at most; 0 is none.
func seenPairs(n, window int) float64 {
	w := float64(n)
	if window > 0 {
		w = min(w, float64(window))
	}
	return w*(w+1)/2 + (float64(n)-w)*w
}

func (r *attentionRun) launch() (time.Duration, error) {
	r.launches++
	if err := r.dev.Start(r.mk.Scalars(r.launches, r.s.Sequences, r.n, len(r.table))); err != nil {
		return 0, err
	}
	if err := r.dev.Wait(); err != nil {
		return 0, err
	}
	return r.dev.Elapsed(), nil
}

// row is a row of queries (t = 0) as the kernel has them, of keys or of values, see AttentionOffset.
func (r *attentionRun) row(t, sequence, token, head int) []half.BF16 {
	c := &r.mk.Config
	heads, from := c.KVHeads, r.noise
	if t == 0 {
		heads, from = c.Heads, r.scaled
	}
	return from[AttentionOffset(t, uint64((sequence*r.n+token)*heads+head)):][:c.HeadDim]
}

// scaled is noise times log2(e)/√HeadDim, in bf16.
func scaled(noise []half.BF16, dim int) (out []half.BF16) {
	for _, x := range noise {
		out = append(out, half.BF16Of(float32(float64(x.Float32())*math.Log2E/math.Sqrt(float64(dim)))))
	}
	return out
}

// fill allocates all buffers and writes inputs.
func (r *attentionRun) fill() error {
	c, layout := &r.mk.Config, r.mk.Layout()
	perSequence := (r.n + c.Page - 1) / c.Page
	for i := range r.s.Sequences * perSequence {
		r.table = append(r.table, uint32(i))
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(r.table), func(i, j int) { r.table[i], r.table[j] = r.table[j], r.table[i] })
	rows := int64(r.s.Sequences * r.mk.Room(r.n))
	sizes := map[string]int64{attend.BufferPrefillQ: 2 * rows * int64(c.Heads*c.HeadDim),
		attend.BufferOut:          2 * rows * int64(c.Heads*c.HeadDim),
		attend.BufferPrefillTable: int64(4 * len(r.table)),
		attend.BufferBlocks:       int64(r.mk.Blocks(r.s.Sequences, r.n)) * int64(r.mk.BlockBytes()),
		attend.BufferBlockParts:   int64(4 * r.mk.Blocks(r.s.Sequences, r.n) * c.KVHeads),
		attend.BufferCache:        int64(len(r.table)) * int64(layout.PageBytes())}
	for _, b := range r.mk.IR.Globals() {
		if b.Map != nil {
			continue // the device makes it of its description
		}
		if err := r.dev.Alloc(b.Name, max(b.Bytes(), sizes[b.Name])); err != nil {
			return fmt.Errorf("buffer %s of %d bytes: %w", b.Name, sizes[b.Name], err)
		}
		if err := r.dev.Zero(b.Name); err != nil {
			return err
		}
	}
	var words []byte
	for _, p := range r.table {
		words = binary.LittleEndian.AppendUint32(words, p)
	}
	if err := r.dev.Write(attend.BufferPrefillTable, 0, words); err != nil {
		return err
	}
	if c.Variant.ALiBi {
		var slopes []byte
		for _, x := range attention.ALiBiSlopes(c.Heads) {
			slopes = binary.LittleEndian.AppendUint32(slopes, math.Float32bits(x))
		}
		if err := r.dev.Write(attend.BufferSlopes, 0, slopes); err != nil {
			return err
		}
	}
	queries, caches := make([][]byte, r.s.Sequences), make([][]byte, r.s.Sequences)
	if err := sideBySide(r.s.Sequences, func(q int) error {
		queries[q], caches[q] = r.queries(q), r.cache(q, perSequence, layout)
		return nil
	}); err != nil {
		return err
	}
	for q, cache := range caches {
		if err := r.dev.Write(attend.BufferPrefillQ, int64(2*q*r.mk.Room(r.n)*c.Heads*c.HeadDim), queries[q]); err != nil {
			return err
		}
		for i := range perSequence {
			bytes := layout.PageBytes()
			if err := r.dev.Write(attend.BufferCache, int64(r.table[q*perSequence+i])*int64(bytes),
				cache[i*bytes:][:bytes]); err != nil {
				return err
			}
		}
	}
	return nil
}

// queries are a sequence's.
func (r *attentionRun) queries(q int) (all []byte) {
	for token := range r.n {
		for head := range r.mk.Config.Heads {
			for _, x := range r.row(0, q, token, head) {
				all = x.Append(all)
			}
		}
	}
	return all
}

// cache is a sequence's keys and values, page by page.
func (r *attentionRun) cache(q, pages int, layout attention.KVLayout) []byte {
	c := &r.mk.Config
	all := make([]byte, pages*layout.PageBytes())
	for token := range r.n {
		page := all[token/c.Page*layout.PageBytes():]
		for head := range c.KVHeads {
			for v := range 2 {
				row := r.row(1+v, q, token, head)
				for d := 0; d < c.HeadDim; d += 8 { // a unit's elements lie together
					at := 2 * layout.Index(1, 0, 0, head, token%c.Page, v, d)
					for j, x := range row[d : d+8] {
						x.Put(page[at+2*j:])
					}
				}
			}
		}
	}
	return all
}

// sampled is the number of rows that are checked: the last tokens of the first and last sequence, and others.
const sampled = 48

// check compares rows of the outputs with float64, and keeps some of them.
func (r *attentionRun) check(to *AttentionCase) error {
	c, rng := &r.mk.Config, rand.New(rand.NewPCG(3, uint64(r.n)))
	for i := range sampled {
		at := AttentionSample{Sequence: rng.IntN(r.s.Sequences), Token: rng.IntN(r.n), Head: rng.IntN(c.Heads)}
		if i < 2 {
			at.Sequence, at.Token = i*(r.s.Sequences-1), r.n-1
		}
		got, err := r.output(at)
		if err != nil {
			return err
		}
		want, size := r.reference(at)
		var difference, bound float64
		for d, x := range got {
			e := float64(x) - want[d]
			difference, bound = difference+e*e, bound+size[d]
		}
		worst := math.Sqrt(difference / bound)
		if !(worst <= MaxAttentionError) {
			return fmt.Errorf("attention of %d tokens: sequence %d, token %d, head %d is %.2g from float64, want at most %.2g",
				r.n, at.Sequence, at.Token, at.Head, worst, MaxAttentionError)
		}
		to.Worst = max(to.Worst, significant(worst))
		if at.Out = got; i < 8 {
			to.Sample = append(to.Sample, at)
		}
	}
	return nil
}

// output reads a row of the kernel's.
func (r *attentionRun) output(at AttentionSample) (out []float32, err error) {
	c := &r.mk.Config
	place := prefill.Activations{K: c.Heads * c.HeadDim}
	unit := make([]byte, 16)
	for d := 0; d < c.HeadDim; d += 8 {
		i := place.Index(at.Sequence*r.mk.Room(r.n)+at.Token, at.Head*c.HeadDim+d)
		if err := r.dev.Read(attend.BufferOut, int64(2*i), unit); err != nil {
			return nil, err
		}
		for j := range 8 {
			out = append(out, half.BF16At(unit[2*j:]).Float32())
		}
	}
	return out, nil
}

// reference is a row in float64, and the squares of its elements' sizes.
func (r *attentionRun) reference(at AttentionSample) (out, size []float64) {
	c := &r.mk.Config
	q, head := r.row(0, at.Sequence, at.Token, at.Head), at.Head/(c.Heads/c.KVHeads)
	scores, total := make([]float64, at.Token+1), 0.0
	for j := range scores {
		for d, x := range r.row(1, at.Sequence, j, head) {
			scores[j] += float64(q[d].Float32()) * float64(x.Float32())
		}
		scores[j] = varied(&c.Variant, scores[j], at, j, c.Heads)
	}
	most := slices.Max(scores)
	out, size = make([]float64, c.HeadDim), make([]float64, c.HeadDim)
	for j, s := range scores {
		w := math.Exp2(s - most)
		total += w
		for d, x := range r.row(2, at.Sequence, j, head) {
			out[d] += w * float64(x.Float32())
			size[d] += w * w * float64(x.Float32()) * float64(x.Float32())
		}
	}
	for d := range out {
		out[d] /= total
		size[d] = size[d]/total/total + out[d]*out[d]
	}
	return out, size
}

// varied is the score in base 2 of a key, by what a variant says of logits.
func varied(v *attend.PrefillVariant, score float64, at AttentionSample, key, heads int) float64 {
	switch {
	case v.Window > 0 && key+v.Window <= at.Token:
		return math.Inf(-1)
	case v.SoftCap > 0:
		return v.SoftCap * math.Tanh(score*math.Ln2/v.SoftCap) * math.Log2E
	case v.ALiBi:
		return score + float64(attention.ALiBiSlopes(heads)[at.Head])*float64(key-at.Token)*math.Log2E
	}
	return score
}
