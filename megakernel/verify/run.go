package verify

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/tasks/draw"
)

// Run is one schedule's outcome. A finding ends it, and what comes after the
// steps is then missing.
type Run struct {
	// Findings is empty for a run that came to its end.
	Findings []Finding
	seed     uint64
	table    []uint32
	logits   [][]float32 // after each step
	next     []int
	outputs  []output    // after the last step
	fresh    [][]kvToken // [layer][step]: what the steps appended
	ran      measured
}

// output is the fingerprint of one buffer that the kernel wrote.
type output struct {
	name string
	sum  [sha256.Size]byte
}

// session is a device and a session on it.
type session struct {
	t     *Trial
	sim   *runtime.Sim
	s     *runtime.Sequence
	table []uint32
	pages int
}

// start sets up one device. Page order is shuffled by the seed, never
// ascending but of a single page, and a page that
// nobody may touch lies before and behind each that is used; the table has no
// entry too many.
func (t *Trial) start(k *ir.Kernel, seed uint64) (*session, error) {
	sim, err := runtime.NewSim(k, seed)
	if err != nil {
		return nil, err
	}
	n := (t.context + max(t.steps, freeSteps) + t.mk.KV.Page - 1) / t.mk.KV.Page
	x := &session{t: t, sim: sim, pages: 2*n + 1}
	for _, p := range rand.New(rand.NewPCG(seed, 0x7061676573)).Perm(n) {
		x.table = append(x.table, uint32(2*p+1))
	}
	if slices.IsSorted(x.table) {
		slices.Reverse(x.table)
	}
	o := runtime.Options{Pages: x.pages, Table: x.table, Epoch: t.epoch, KVScales: t.scales, HeadScales: t.heads}
	if x.s, err = runtime.OpenSequence(context.Background(), t.mk, sim,
		runtime.FromTensors(t.weights, runtime.LoadOptions{}), o); err != nil {
		return nil, err
	}
	for l, tokens := range t.cache {
		for i, kv := range tokens {
			if err := x.write(l, i, kv); err != nil {
				return nil, err
			}
		}
	}
	return x, x.s.Skip(t.context)
}

// write puts a token into the cache.
func (x *session) write(layer, token int, kv kvToken) error {
	return x.t.write(x.sim, x.place(layer, token), kv)
}

// read takes a token out of the cache.
func (x *session) read(layer, token int) (kvToken, error) {
	return x.t.readToken(x.sim, x.place(layer, token))
}

func (x *session) place(layer, token int) slot {
	return slot{pages: x.pages, layer: layer, page: int(x.table[token/x.t.mk.KV.Page]), slot: token % x.t.mk.KV.Page}
}

// Run runs the trial's kernel, or k, a variant of it, under one schedule. The
// error is for what is not the kernel's fault.
func (t *Trial) Run(ctx context.Context, k *ir.Kernel, seed uint64) (*Run, error) {
	x, err := t.start(k, seed)
	if err != nil {
		return nil, err
	}
	r := &Run{seed: seed, table: x.table}
	before, err := x.all("kv")
	if err != nil {
		return nil, err
	}
	for i, id := range t.tokens {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		row := t.rule(i)
		if err := x.s.SetDraw(row); err != nil {
			return nil, err
		}
		next, err := x.s.Step(id)
		var fault *interp.Fault
		if errors.As(err, &fault) {
			r.Findings = append(r.Findings, finding(fault, seed, i))
			return r, nil
		} else if err != nil {
			return nil, err
		}
		logits := make([]float32, t.mk.Config.Vocab)
		if err := x.s.Logits(logits); err != nil {
			return nil, err
		}
		r.next, r.logits = append(r.next, next), append(r.logits, logits)
		if tops := row.Tops(); tops >= 0 {
			got, err := x.s.Logprobs(next)
			if err != nil {
				return nil, err
			}
			if wrong := scored(next, logits, got, tops); wrong != "" {
				r.Findings = append(r.Findings, Finding{Kind: "wrong log-probabilities", Seed: seed, Step: i, Text: wrong})
			}
		}
		r.ran.launch(t, x.sim.Last)
	}
	if err := x.finish(r, before); err != nil || len(r.Findings) > 0 {
		return r, err
	}
	if err := x.again(r); err != nil || len(r.Findings) > 0 {
		return r, err
	}
	if err := x.free(r); err != nil || len(r.Findings) > 0 {
		return r, err
	}
	for _, launches := range []func(*Run) error{x.masked, x.listed, x.greedy} {
		if err := launches(r); err != nil || len(r.Findings) > 0 {
			return r, err
		}
	}
	return r, x.givenUp(r)
}

// rule is how a step draws its token: the last as the launches behind it, without scores, not at all where the step
// is a graph of kernels.
func (t *Trial) rule(step int) (r draw.Rule) {
	if t.mk.Draws() {
		r = ruleOf(step, t.mk.Config.Vocab, t.context+step+1)
		if step < t.steps-1 {
			r.SetTops(topsOf(step))
		}
	}
	return r
}

// again decodes the same tokens in launches of several steps: one that is
// stopped after its first, and one that runs the rest. It must leave the same
// logits as a launch for each.
func (x *session) again(r *Run) error {
	t := x.t
	if err := x.s.Rewind(t.context); err != nil {
		return err
	}
	for i, from := range []int{0, 1} {
		if err := x.sim.Write("stop", 0, []byte{byte(1 - i), 0, 0, 0}); err != nil {
			return err
		}
		_, err := x.s.Generate(t.tokens[from:], 1)
		var fault *interp.Fault
		if errors.As(err, &fault) {
			r.Findings = append(r.Findings, finding(fault, r.seed, from))
			return nil
		} else if err != nil {
			return err
		}
	}
	r.ran.count(x.sim.Last)
	return x.sameLogits(r, "after one launch of "+plural.Of(t.steps-1, "step"))
}

// sameLogits compares the logits of the last step with those of the first run: bit by bit,
// or within the tolerance of a kernel that is not repeatable.
func (x *session) sameLogits(r *Run, when string) error {
	t, logits := x.t, make([]float32, x.t.mk.Config.Vocab)
	if err := x.s.Logits(logits); err != nil {
		return err
	}
	last := r.logits[len(r.logits)-1]
	for i, v := range logits {
		same := math.Float32bits(v) == math.Float32bits(last[i])
		if !t.mk.Options.Repeatable() {
			same = math.Abs(float64(v)-float64(last[i])) <= logitTolerance*t.scale
		}
		if !same {
			r.Findings = append(r.Findings, Finding{Kind: "wrong value", Seed: r.seed, Step: t.steps - 1,
				Text: fmt.Sprintf("logit %d is %g %s, %g after a launch for each step", i, v, when, last[i])})
			return nil
		}
	}
	return nil
}

// finish looks at the memory that the run left behind.
func (x *session) finish(r *Run, before []byte) error {
	for _, b := range x.t.mk.IR.Globals() {
		if b.ReadOnly || b.Name == "kv" || b.Name == "times" || b.Name == "draw_lists" { // a list's order is any
			continue
		}
		data, err := x.all(b.Name)
		if err != nil {
			return err
		}
		r.outputs = append(r.outputs, output{b.Name, sha256.Sum256(data)})
	}
	r.fresh = make([][]kvToken, x.t.mk.Config.Layers)
	for l := range r.fresh {
		for i := x.t.context; i < x.t.context+x.t.steps; i++ {
			kv, err := x.read(l, i)
			if err != nil {
				return err
			}
			r.fresh[l] = append(r.fresh[l], kv)
		}
	}
	return r.ran.memory(x, before)
}

// all is the content of a buffer.
func (x *session) all(name string) ([]byte, error) {
	data := make([]byte, x.sim.Size(name))
	return data, x.sim.Read(name, 0, data)
}

func finding(f *interp.Fault, seed uint64, step int) Finding {
	out := Finding{Kind: f.Kind.String(), Text: f.Text, Seed: seed, Step: step}
	for _, s := range f.Sides {
		out.Sides = append(out.Sides, Side{What: s.What, Op: s.Op, Thread: s.Thread, Pos: s.Pos})
	}
	return out
}
