package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/lab/probe"
	"github.com/mkgen/mkgen/megakernel"
)

// Local is what the local checks found: of layers on their own, and of all rows of the cache.
type Local struct {
	Rows     probe.Figures  `json:"rows"`               // of all sequences, layers, heads and positions
	Settings []LocalSetting `json:"settings,omitempty"` // none where the kernel can have no probe
	Passed   bool           `json:"passed"`
	Reasons  []string       `json:"reasons,omitempty"`
}

// LocalSetting is a window of positions in which layers are checked, with and without faults.
type LocalSetting struct {
	Name      string        `json:"name"` // WindowShort or WindowLongest
	Sequence  int           `json:"sequence"`
	From      int           `json:"from"`
	To        int           `json:"to"`     // positions From to To−1 are run by each kernel
	Probed    []int         `json:"probed"` // those at which layers are checked
	Layers    int           `json:"layers"` // checked without a fault; with one, LayersFaulty
	Faulty    []int         `json:"layers_faulty"`
	Figures   probe.Figures `json:"figures"` // without a fault
	ByLogits  bool          `json:"logits_passed"`
	KL        Number        `json:"kl_ours"`
	KLKernels Number        `json:"kl_reference"`
	Faults    []LocalFault  `json:"faults"`
}

// LocalFault is what came of a local fault in a window.
type LocalFault struct {
	Fault    string        `json:"fault"`
	CaughtBy []string      `json:"caught_by"` // ByLogits, or what Figures are of
	KL       Number        `json:"kl_ours"`
	Flips    int           `json:"flips"`
	Figures  probe.Figures `json:"figures,omitempty"` // those beyond their limits
	Skipped  string        `json:"skipped,omitempty"` // why it was not planted
}

// ByLogits says that the logits' rules caught a fault.
const ByLogits = "logits"

// The settings.
const (
	WindowShort   = "short"
	WindowLongest = "longest"
)

// How many positions a window has at most, and at how many of them it looks for left-out pages.
const (
	shortWindow   = 256
	longestWindow = 128
	mostProbed    = 4
)

// window is a stretch of positions of a sequence.
type window struct {
	name     string
	sequence int
	from, to int
}

// pagesAt are the last positions of the window at which FirstPageDropped shows: not at every one
// of them does a page of a long context count for much.
func (w window) pagesAt() (list []int) {
	for p := w.to - 1; p >= max(w.from, 1) && len(list) < mostProbed; p-- {
		if p%megakernel.FirstPageEvery == megakernel.FirstPageAt {
			list = append(list, p)
		}
	}
	return list
}

// probed are the positions at which layers are checked, in order: two within the window, its
// last one, and those at which FirstPageDropped shows.
func (w window) probed() []int {
	list := append(w.pagesAt(), w.to-1)
	for i := 1; i <= 2; i++ {
		list = append(list, w.from+i*(w.to-w.from)/4)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (w window) probes(position int) bool { return slices.Contains(w.probed(), position) }

// windows are where layers are checked: the first positions of a sequence that is scored from its
// beginning, if there is one, and the last of the longest. There is none without a probe.
func (l *local) windows() (list []window) {
	if l.s.PlantProbe == nil {
		return nil
	}
	r, longest := l.ref, 0
	for q, s := range r.Sequences {
		if s.Length >= r.Sequences[longest].Length {
			longest = q
		}
	}
	end := r.Sequences[longest]
	list = append(list, window{WindowLongest, longest, max(end.First, end.Length-longestWindow), end.Length})
	if i := slices.IndexFunc(r.Sequences, func(s Sequence) bool { return s.First == 0 }); i >= 0 {
		list = append(list, window{WindowShort, i, 0, min(r.Sequences[i].Length, shortWindow)})
	}
	return list
}

// local is the local checks of a subject under way.
type local struct {
	s     *Subject
	ref   *Reference
	rules Rules
	check *probe.Checker
	store *probe.Store
	rows  probe.Figures
	holds int // the sequence whose tokens are in the cache; −1: none whole
}

// newLocal is nil where there is nothing to check with. Without PlantProbe only rows are compared.
func (s *Subject) newLocal(ref *Reference, rules Rules) (*local, error) {
	if s.Read == nil || !ref.HasRows() {
		return nil, nil
	}
	rules.MinPositions, rules.MinSequences = 1, 1
	l := &local{s: s, ref: ref, rules: rules, holds: -1,
		check: &probe.Checker{Kernel: s.Kernel, Weights: s.Weights},
		store: &probe.Store{Kernel: s.Kernel, Read: s.Read, Pages: len(s.Table), Table: s.Table}}
	l.check.Keep(l.layers())
	return l, ref.checkRows(s.Kernel)
}

// ran compares the rows of a sequence that has just been run whole.
func (l *local) ran(q int) error {
	if l == nil {
		return nil
	}
	l.holds = q
	return l.ref.compareRows(&l.rows, q, l.store, 0, l.ref.Sequences[q].Length)
}

// layers are those that are checked with a fault: the first, the one that faults concern and the
// last.
func (l *local) layers() []int {
	middle, _ := l.s.Kernel.FaultPlace()
	return slices.Compact([]int{0, middle, l.s.Kernel.Config.Layers - 1})
}

// judge checks layers in every window and then plants the local faults there.
func (l *local) judge(ctx context.Context) (*Local, error) {
	if l == nil {
		return nil, nil
	}
	r := &Local{Rows: l.rows}
	r.Reasons = append(r.Reasons, l.rows.Problems()...)
	for _, w := range l.windows() {
		set, err := l.setting(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("local checks, %s: %w", w.name, err)
		}
		r.Settings = append(r.Settings, *set)
		r.Reasons = append(r.Reasons, set.problems()...)
	}
	r.Passed = len(r.Reasons) == 0
	return r, nil
}

// withLocal takes the local checks into a record; nil changes nothing.
func (r *Record) withLocal(l *Local) {
	if r.Local = l; l != nil {
		r.Reasons = append(r.Reasons, l.Reasons...)
		r.Passed = r.Passed && l.Passed
	}
}

// OfCase is the record for the i-th case of a file: the local checks stand in the first alone.
func (r Record) OfCase(i int) Record {
	if i > 0 {
		r.Local = nil
	}
	return r
}

// problems says what is wrong in a setting.
func (s *LocalSetting) problems() (list []string) {
	for _, p := range s.Figures.Problems() {
		list = append(list, fmt.Sprintf("%s context: %s", s.Name, p))
	}
	for _, f := range s.Faults {
		if f.Skipped == "" && len(f.CaughtBy) == 0 {
			list = append(list, fmt.Sprintf("%s context: fault %s was not caught", s.Name, f.Fault))
		}
	}
	return list
}

func (l *local) setting(ctx context.Context, w window) (*LocalSetting, error) {
	mk := l.s.Kernel
	set := &LocalSetting{Name: w.name, Sequence: w.sequence, From: w.from, To: w.to, Probed: w.probed(),
		Layers: mk.Config.Layers, Faulty: l.layers()}
	if err := l.fill(ctx, w); err != nil {
		return nil, err
	}
	l.s.progress("layers, " + w.name + " context")
	all := make([]int, mk.Config.Layers)
	for i := range all {
		all[i] = i
	}
	good, err := l.planted(ctx, w, all)
	if err != nil {
		return nil, err
	}
	set.Figures, set.ByLogits = good.figures, good.logits.Passed
	set.KL, set.KLKernels = Number(good.logits.KLOurs), Number(good.logits.KLReference)
	for _, name := range LocalFaults() {
		l.s.progress(name + ", " + w.name + " context")
		f, err := l.faulty(ctx, w, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if !set.ByLogits { // then they say nothing
			f.CaughtBy = slices.DeleteFunc(f.CaughtBy, func(by string) bool { return by == ByLogits })
		}
		set.Faults = append(set.Faults, f)
	}
	return set, nil
}

// planted runs a window with the kernel that has a probe and no fault.
func (l *local) planted(ctx context.Context, w window, layers []int) (*localRun, error) {
	restore, err := l.s.PlantProbe(ctx, megakernel.NoFault)
	if err != nil {
		return nil, err
	}
	defer restore()
	return l.run(ctx, w, layers, nil)
}

// fill brings the cache to where a window begins. The longest sequence is there already where
// it was the last one to run.
func (l *local) fill(ctx context.Context, w window) error {
	if l.holds == w.sequence && l.s.Session.Pos() >= w.from {
		return nil
	}
	tokens, err := l.ref.Tokens(w.sequence)
	if err != nil {
		return err
	}
	l.holds = w.sequence
	if err := l.s.Session.Rewind(0); err != nil {
		return err
	}
	return l.s.advance(ctx, tokens, w.from-1, nil)
}

// localRun is what a run of a window left.
type localRun struct {
	figures probe.Figures
	logits  Result
}

// errWindowEnds ends the reading of a sequence's rows.
var errWindowEnds = errors.New("the window ends")

// run runs a window and checks layers and rows.
func (l *local) run(ctx context.Context, w window, layers []int, hooks []hook) (*localRun, error) {
	tokens, err := l.ref.Tokens(w.sequence)
	if err != nil {
		return nil, err
	}
	if err := l.s.Session.Rewind(w.from); err != nil {
		return nil, err
	}
	own, err := l.ref.Own(w.sequence)
	if err != nil {
		return nil, err
	}
	first := l.ref.Sequences[w.sequence].First
	var samples []*probe.Sample
	measured := newMeasured(w.to-w.from, newSlots())
	err = l.ref.eachFrom(w.sequence, w.from, func(position int, row row) error {
		if position >= w.to {
			return errWindowEnds
		}
		if err := l.s.advance(ctx, tokens, position, hooks); err != nil {
			return err
		}
		if w.probes(position) {
			s, err := probe.Take(l.s.Kernel, l.s.Read, position, tokens[position])
			if err != nil {
				return err
			}
			samples = append(samples, s)
		}
		k := make([]float32, l.ref.Vocab)
		if err := l.s.Session.Logits(k); err != nil {
			return err
		}
		measured.add(position-w.from, row, k, own[position-first])
		return nil
	})
	if errors.Is(err, errWindowEnds) {
		err = nil
	}
	if err := errors.Join(err, measured.wait()); err != nil {
		return nil, err
	}
	g := New(l.rules)
	for i, p := range measured.positions {
		g.Put(w.sequence, w.from+i, p)
	}
	r := &localRun{logits: g.Result()}
	for _, h := range hooks { // of the last position
		if h.at == w.to {
			if err := h.do(); err != nil {
				return nil, err
			}
		}
	}
	if r.figures, err = l.check.Check(layers, samples, l.store); err != nil {
		return nil, err
	}
	return r, l.ref.compareRows(&r.figures, w.sequence, l.store, w.from, w.to)
}
