package verify

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
)

const (
	prefillSecond = 17 // tokens of a prompt's second step, which begins amid a tile of attention
	prefillFew    = 3  // tokens that the prompts beside the first one begin with
)

// prefillSequence is a sequence that every schedule feeds: its tokens over all steps, and what must come of them.
type prefillSequence struct {
	tokens []int
	table  []uint32
	cached [][]kvToken // [layer][token]
	logits [][]float64 // behind each token
}

// prefillStep is how many tokens of each sequence a step feeds; 0: the sequence has no part in it.
type prefillStep []int

// prefillSteps are the steps of a kernel of steps of room tokens of up to n sequences. Of one sequence: a prompt in
// three steps. Of several: prompts side by side; the end of the first one beside sequences that decode and a new
// prompt; and the first one alone. room is at least n.
func prefillSteps(room, n int) []prefillStep {
	if n == 1 {
		return []prefillStep{{room}, {min(prefillSecond, room)}, {min(prefillFew, room)}}
	}
	first, second, third := make(prefillStep, n), make(prefillStep, n), make(prefillStep, n)
	few, late := max(1, min(prefillFew, room/n-1)), n > 2
	for i := range n {
		first[i], second[i] = few, 1
	}
	if late {
		first[n-1] = 0
	}
	first[0] = room - few*(n-1)
	if late {
		first[0] += few
		second[n-1] = max(1, min(prefillSecond+few, (room-n)/2))
	}
	second[0] = max(1, min(prefillSecond, (room-n)/2))
	third[0] = 1 + few
	return []prefillStep{first, second, third}
}

// leadBy puts steps of room tokens of the first sequence alone in front, until those of the first step that chooses see
// more than block tokens. It returns how many tokens the sequence has in all.
func (t *prefillTrial) leadBy(room, block int) (n int) {
	t.lead = pipeline.CeilDiv(max(0, block+1-t.steps[0][0]), room)
	alone := make(prefillStep, len(t.steps[0]))
	alone[0] = room
	t.steps = slices.Concat(slices.Repeat([]prefillStep{alone}, t.lead), t.steps)
	return t.before(0, len(t.steps))
}

// mostParts is how many parts keys and values of a sequence are split into, in the step with the most.
func (t *prefillTrial) mostParts() (most int) {
	for i := t.lead + 1; i < len(t.steps); i += 2 { // see step
		var of []megakernel.Sequence
		for s, n := range t.steps[i] {
			if n > 0 {
				of = append(of, megakernel.Sequence{New: n, Cached: t.before(s, i)})
			}
		}
		most = max(most, t.p.Parts(of, t.p.SplitMost(of)))
	}
	return most
}

// parts are the sequences of step i, and their numbers.
func (t *prefillTrial) parts(i int) (of []batch.Sequence, numbers []int) {
	for s := range t.sequences {
		q, n := &t.sequences[s], t.steps[i][s]
		if n == 0 {
			continue
		}
		cached := t.before(s, i)
		numbers = append(numbers, s)
		of = append(of, batch.Sequence{New: q.tokens[cached : cached+n], Cached: cached, Pages: q.table})
	}
	return of, numbers
}

// before is how many tokens of sequence s the steps before step i feed.
func (t *prefillTrial) before(s, i int) (n int) {
	for _, step := range t.steps[:i] {
		n += step[s]
	}
	return n
}

// feed plans the sequences' tokens and pages, and computes what must come of them.
func (t *prefillTrial) feed() error {
	mk, used := t.mk, 0
	c := mk.Config
	weights, hooks := syntheticOf(mk, c), reference.AsKernel(c) // inputs are bf16, whatever the weights are
	if t.coded() {
		hooks = reference.AsKernelByToken(c)
	}
	if t.scales != nil {
		hooks = reference.WithE4M3Cache(hooks, c, t.scales)
	}
	hooks = withAttention(hooks, mk, t.Trial)
	for s := range t.steps[0] {
		n := t.before(s, len(t.steps))
		q := prefillSequence{tokens: synth.Tokens(weightSeed, s, n, c.Vocab),
			table: make([]uint32, (n+mk.KV.Page-1)/mk.KV.Page)}
		ref, err := reference.NewModel(c, weights, hooks)
		if err != nil {
			return err
		}
		for _, id := range q.tokens {
			q.logits = append(q.logits, ref.Step(id))
		}
		for l := range c.Layers {
			keys, values := ref.Cache(l)
			var tokens []kvToken
			for i := range n {
				tokens = append(tokens, kvToken{keys[i], values[i]})
			}
			q.cached = append(q.cached, tokens)
		}
		used += len(q.table)
		t.sequences = append(t.sequences, q)
	}
	last := t.sequences[0].logits
	t.scale = max(rms(last[len(last)-1]), synth.LogitSD(c.Vocab))
	t.pages = 2*used + 1 // one that nobody may touch before and behind each
	pages := rand.New(rand.NewPCG(weightSeed, 0x7061676573)).Perm(used)
	if slices.IsSorted(pages) {
		slices.Reverse(pages)
	}
	for s := range t.sequences {
		for i := range t.sequences[s].table {
			t.sequences[s].table[i], pages = uint32(2*pages[0]+1), pages[1:]
		}
	}
	return nil
}

// coded is whether the inputs of products are e4m3.
func (t *prefillTrial) coded() bool { return t.p.Options.Activations == pipeline.FormatE4M3 }

// codedTolerance is how many times further values may be from the reference's where inputs are e4m3: what falls the
// other way in bf16 changes a code, by up to an eighth of the element.
const codedTolerance = 8

// looser is what tolerances are multiplied by.
func (t *prefillTrial) looser() float64 {
	if t.coded() {
		return codedTolerance
	}
	return 1
}

// owned is whether a page of every layer is one of the sequences'.
func (t *prefillTrial) owned(page uint32) bool {
	return slices.ContainsFunc(t.sequences, func(q prefillSequence) bool { return slices.Contains(q.table, page) })
}

// judgeStep compares the logits behind step i, and what it chose, with the reference's and with each other.
func (t *prefillTrial) judgeStep(r *runtime.Prefill, run *prefillRun, chosen []int, numbers []int, seed uint64,
	i int) error {
	got := make([]float32, t.mk.Config.Vocab)
	logits := Comparison{What: fmt.Sprintf("logits behind step %d, seed %d", i, seed),
		Tolerance: t.looser() * logitTolerance * t.scale}
	for at, s := range numbers {
		if err := r.Logits(at, got); err != nil {
			return err
		}
		want := t.sequences[s].logits[t.before(s, i+1)-1]
		for id, x := range got {
			logits.see(float64(x), want[id], func() string { return fmt.Sprintf("sequence %d, token %d", s, id) })
			fmt.Fprintf(run.hash, "%x ", math.Float32bits(x))
		}
		if best := slices.Index(got, slices.Max(got)); best != chosen[at] {
			run.findings = append(run.findings, Finding{Kind: "wrong token", Seed: seed, Step: i,
				Text: fmt.Sprintf("chose token %d behind sequence %d, the largest logit is that of %d", chosen[at], s, best)})
		}
	}
	run.values = append(run.values, logits)
	return nil
}

// judge compares the cache behind the last step with the reference's, and looks for pages that changed and are no
// sequence's.
func (t *prefillTrial) judge(decode *runtime.Sim, run *prefillRun, seed uint64, before []byte) error {
	after := make([]byte, len(before))
	if err := decode.Read("kv", 0, after); err != nil {
		return err
	}
	size, stray := t.mk.KV.PageBytes(), 0
	for at := 0; at < len(after); at += size {
		if !t.owned(uint32(at/size%t.pages)) && !bytes.Equal(before[at:at+size], after[at:at+size]) {
			stray++
		}
	}
	if stray > 0 {
		run.findings = append(run.findings, Finding{Kind: "stray write", Seed: seed, Step: len(t.steps) - 1,
			Text: fmt.Sprintf("%d KV pages changed that are not in the page table", stray)})
		return nil
	}
	kv := Comparison{What: fmt.Sprintf("keys and values ÷ rms, seed %d", seed),
		Tolerance: t.looser() * cacheTolerance(t.mk.Config.Layers)}
	for s := range t.sequences {
		q := &t.sequences[s]
		for l, tokens := range q.cached {
			for i, want := range tokens {
				at := slot{pages: t.pages, layer: l, page: int(q.table[i/t.mk.KV.Page]), slot: i % t.mk.KV.Page}
				got, err := t.readToken(decode, at)
				if err != nil {
					return err
				}
				t.compareToken(&kv, l, got, want,
					func() string { return fmt.Sprintf("sequence %d, layer %d, position %d", s, l, i) })
			}
		}
	}
	run.hash.Write(after)
	run.hash.Sum(run.digest[:0])
	run.values = append(run.values, kv)
	return nil
}
