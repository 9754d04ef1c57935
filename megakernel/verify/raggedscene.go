package verify

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/tasks/attention"
)

// scene is one run of a raggedTrial: a device and the sequences on it.
type scene struct {
	t     *raggedTrial
	rng   *rand.Rand
	sim   *runtime.Sim
	r     *runtime.Session
	pages int
	free  []uint32 // pages that no sequence has
	texts []*sequence
	bits  []uint32 // what the mask buffer holds, where there is one
	now   now
	whole int64 // instructions of the launch that stops runs in several ways
	run   *raggedRun
}

// sequence is one on the device, and the reference's model of it.
type sequence struct {
	pages   []uint32
	ref     *reference.Model // of the tokens in the cache
	initial int              // tokens that the host wrote
	fed     bool
}

// now is where the reference's query stands.
type now struct {
	row, first int
	at         slot  // of the token's own keys and values, whatever layer
	tree       []int // of the tokens from the first new one on: their places behind it; nil: one after another
	selected   func(head, index int) bool
	move       func() float64 // of what is about to be rounded; nil: not at all
}

// raggedRun is one run's outcome; see Run.
type raggedRun struct {
	Findings []Finding
	seed     uint64 // of the scenario
	schedule uint64
	launches int
	rows     []rowResult
	common   int // of rows: those of launches that come to their last step
	guesses  []guess
	fresh    Comparison
	ran      measured
	seen     sights
}

// rowResult is the logits of a row in the last step of a launch.
type rowResult struct {
	where string
	got   []float32
	want  []float64
}

// guess is by how much the reference's logit of a token that the kernel chose falls
// short of its largest.
type guess struct {
	where string
	short float64
}

const (
	maxGrowth     = 3             // steps of a launch at most
	sequences     = 8             // of a scenario, see populate
	inTurn        = sequences / 2 // launches in which all come in turn
	fixedLaunches = inTurn + 6    // those that are not drawn at random, see shapes
)

// pinnable is at least n tokens of a pinned part that the kernel has room for all
// parts: a sequence has three at most.
func (t *raggedTrial) pinnable() int {
	chunk := t.mk.ChunkTokens()
	return (t.most()/3/chunk + 1) * chunk
}

// most is how many tokens a sequence may come to.
func (t *raggedTrial) most() int { return positions(t.mk, t.random) }

// start sets up the device and the sequences.
func (t *raggedTrial) start(k *ir.Kernel, scenario, schedule uint64) (*scene, error) {
	sim, err := runtime.NewSim(k, schedule)
	if err != nil {
		return nil, err
	}
	x := &scene{t: t, sim: sim, rng: rand.New(rand.NewPCG(scenario, 0x72616767)),
		run: &raggedRun{seed: scenario, schedule: schedule}}
	page := t.mk.KV.Page
	x.pages = sequences*((t.most()+page-1)/page) + 2 // the last one is the guard
	for _, p := range x.rng.Perm(x.pages - 1) {
		x.free = append(x.free, uint32(p))
	}
	o := runtime.Options{Pages: x.pages, Guard: uint32(x.pages - 1), Steps: maxGrowth, Epoch: t.epoch, KVScales: t.scales,
		HeadScales: t.heads, Pin: t.pin}
	if t.mk.Options.Selection { // each KV head has a list of its own, beside that of layers with a window
		o.Entries = t.mk.Options.Tokens * (t.mk.KV.Heads + 1) * x.pages / sequences
	}
	if t.mk.HasMask() {
		o.MaskWords = t.mk.Options.Tokens * x.maskWords()
	}
	if x.r, err = runtime.Open(context.Background(), t.mk, sim, runtime.FromTensors(t.weights, runtime.LoadOptions{}),
		o); err != nil {
		return nil, err
	}
	return x, x.populate()
}

// populate makes the sequences: of the lengths at which pages begin and end, and three
// of which the second shares pages of the first, and the third of the second.
func (x *scene) populate() error {
	page := x.t.mk.KV.Page
	whole := (longest(x.t.mk) - 3) / page
	for _, n := range []int{page + 1, 0, page, 1, max(page-1, 0)} {
		if err := x.add(nil, 0, n); err != nil {
			return err
		}
	}
	for i, n := range []int{longest(x.t.mk), whole*page + 1, (whole+1)/2*page + page} {
		shared, of := 0, (*sequence)(nil)
		if i > 0 {
			shared, of = []int{whole, (whole + 1) / 2}[i-1], x.texts[len(x.texts)-1]
		}
		if err := x.add(of, shared, n); err != nil {
			return err
		}
	}
	return nil
}

// add makes a sequence with n tokens in the cache, the first pages of them
// another's.
func (x *scene) add(of *sequence, shared, tokens int) error {
	t, page := x.t, x.t.mk.KV.Page
	shape := t.mk.Config
	s := &sequence{initial: tokens}
	if of != nil {
		s.pages, s.ref = append(s.pages, of.pages[:shared]...), of.ref.Clone(shared*page)
	} else {
		hooks := x.moved(reference.AsKernelWith(shape, t.mk.RoundInput, t.mk.RoundHeadInput))
		if t.scales != nil {
			hooks = x.asCached(reference.WithE4M3Cache(hooks, shape, t.scales))
		}
		var err error
		if s.ref, err = reference.NewModel(shape, t.weightsOf, x.attention(hooks)); err != nil {
			return err
		}
	}
	x.reserve(s, tokens)
	for i := s.ref.Len(); i < tokens; i++ {
		for l := range shape.Layers {
			token := t.Trial.random(x.rng, l)
			if err := t.write(x.sim, x.place(s, l, i), token); err != nil {
				return err
			}
			s.ref.Append(l, token.k, token.v)
		}
	}
	x.texts = append(x.texts, s)
	return nil
}

// reserve gives a sequence pages for n tokens.
func (x *scene) reserve(s *sequence, tokens int) {
	for len(s.pages)*x.t.mk.KV.Page < tokens {
		s.pages, x.free = append(s.pages, x.free[0]), x.free[1:]
	}
}

func (x *scene) place(s *sequence, layer, token int) slot {
	page := x.t.mk.KV.Page
	return slot{pages: x.pages, layer: layer, page: int(s.pages[token/page]), slot: token % page}
}

// attention makes the reference's attention what the kernel's layers have, for the
// query that now says.
func (x *scene) attention(h reference.Hooks) reference.Hooks {
	mk := x.t.mk
	h.Unrotated = mk.Unrotated
	tables := megakernel.Tables{HeadScales: x.t.heads, Visible: x.visible}
	h.Attend = func(layer int, q []float64, keys, values [][]float64) []float64 {
		n := &x.now
		at := attention.Place{Row: n.row, Position: len(keys) - 1, First: n.first}
		keysAt := places(len(keys))
		for i, behind := range n.tree {
			keysAt[n.first+i].Index = n.first + behind
		}
		v := mk.LayerAttention(layer, tables)
		var sees func(head int, k attention.Place) bool
		if n.selected != nil && (v == nil || v.Window == 0) {
			sees = func(head int, k attention.Place) bool { return n.selected(head, k.Index) }
		}
		return attend(mk, v, at, q, keysAt, keys, values, sees)
	}
	return h
}

// moved multiplies whatever the reference is about to round by what now.move returns. Where one element is large beside
// all others and nearly a tie, kernel and reference are a unit of that element apart, and so is all that follows. A
// reference that is moved a little falls on the kernel's side; a kernel that computes something else is as far from it
// as before.
func (x *scene) moved(h reference.Hooks) reference.Hooks {
	rounded := h.At
	h.At = func(layer int, p reference.Point, v []float64) {
		if x.now.move != nil {
			for i := range v {
				v[i] *= x.now.move()
			}
		}
		rounded(layer, p, v)
	}
	return h
}

// asCached makes the reference take the kernel's own key or value where that is a neighbour of the code that it rounds
// to itself. What was about to be rounded differs as in a bf16 cache; a code that is off would count in the token's own
// row and in each that sees it later, and hide what else is wrong there. finish compares the codes.
func (x *scene) asCached(h reference.Hooks) reference.Hooks {
	rounded := h.At
	h.At = func(layer int, p reference.Point, v []float64) {
		rounded(layer, p, v)
		if p != reference.Key && p != reference.Value {
			return
		}
		at := x.now.at
		at.layer = layer
		token, err := x.t.readToken(x.sim, at)
		if err != nil {
			return // whatever is wrong there is found when codes are compared
		}
		which, own := 0, token.k
		if p == reference.Value {
			which, own = 1, token.v
		}
		for i, w := range v {
			if math.Abs(own[i]-w) <= x.t.step(layer, i, which, w) {
				v[i] = own[i]
			}
		}
	}
	return h
}

// maskWords is how many words of mask bits a row has.
func (x *scene) maskWords() int { return (x.t.most() + 31) / 32 }

// visible is what the mask says.
func (x *scene) visible(row, index int) bool {
	return x.bits[row*x.maskWords()+index/32]>>(index%32)&1 == 1
}

// mask draws what each row of a launch sees, two of three tokens, and says so to the
// sequences.
func (x *scene) mask(sequences []kv.Sequence) error {
	if !x.t.mk.HasMask() {
		return nil
	}
	x.bits = make([]uint32, x.t.mk.Options.Tokens*x.maskWords())
	for i := range x.bits {
		x.bits[i] = x.rng.Uint32() | x.rng.Uint32()&x.rng.Uint32()
	}
	row := 0
	for i := range sequences {
		s := &sequences[i]
		for range s.New {
			s.Masks = append(s.Masks, uint32(row*x.maskWords()))
			row++
		}
	}
	return x.r.SetMask(0, x.bits)
}

// stray counts pages that changed though no sequence ever had them.
func (x *scene) stray(before, after []byte) (n int) {
	bytes := x.t.mk.KV.PageBytes()
	for l := range x.t.mk.Config.Layers {
		for _, p := range append(x.free, uint32(x.pages-1)) {
			at := (l*x.pages + int(p)) * bytes
			if string(before[at:at+bytes]) != string(after[at:at+bytes]) {
				n++
			}
		}
	}
	return n
}

// fault keeps what ended a launch.
func (x *scene) fault(f *interp.Fault) {
	x.run.Findings = append(x.run.Findings, finding(f, x.run.seed, x.run.launches))
}
