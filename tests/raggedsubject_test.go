package tests

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// raggedShape is a ragged kernel with all that makes its code take every turn in a
// few milliseconds: tiny with smaller matrices and fewer heads.
func raggedShape(t *testing.T, heads, kvHeads, intermediate, vocab int, o megakernel.Options) *megakernel.Kernel {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Heads, c.KVHeads, c.HeadDim, c.Intermediate, c.Vocab, c.BOS, c.EOS = heads, kvHeads, 16, intermediate, vocab,
		models.NoToken, nil
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	return mk
}

// smallCosts make the planner split and share what is short.
var smallCosts = kv.EagerCosts()

// play is what a ragged kernel is put through: launches on one session, whose
// sequences begin with random tokens in the cache.
type play struct {
	mk       *megakernel.Kernel
	weights  runtime.Weights
	pages    int
	cached   map[uint32][]byte // the pages filled at first, all layers: what the cache holds of each
	launches []playLaunch
	epoch    uint32
	pin      int // see runtime.Options
}

// playLaunch is one launch.
type playLaunch struct {
	steps   int
	seqs    []batch.Sequence
	quiet   bool // nobody wants its tokens
	greedy  bool // every row takes its highest logit, which another branch of the kernel finds
	stop    bool // the host wants it to end after its first step
	end     bool // a token that it chooses in its second step ends it
	givenUp bool // the host gives it up somewhere
	masked  bool // the host gives every step masks of its own
	plain   bool // rows draw from few tokens, with log-probabilities, of logits that nothing changes
}

// done is what a play leaves.
type done struct {
	chosen [][][]int // [launch][step][sequence]
	prints []string  // of all memory behind each launch, as far as it is the same under all schedules
	took   int64     // warp instructions of the last launch
}

// run plays. The error of a broken kernel is one that reportOf knows.
func (p *play) run(ctx context.Context, k *ir.Kernel, seed uint64, ends [][]int) (*done, error) {
	sim, err := runtime.NewSim(k, seed)
	if err != nil {
		return nil, err
	}
	s, err := p.open(ctx, sim)
	if err != nil {
		return nil, err
	}
	d := &done{}
	dirty := false // a given-up launch has left anything anywhere
	for i, l := range p.launches {
		s.HangTimeout = 0
		if l.givenUp {
			dirty, s.HangTimeout = true, time.Minute // the executor says when
			sim.ClaimStuck(rand.New(rand.NewPCG(seed, uint64(i))).Int64N(max(d.took*3/4, 1)))
		}
		if l.stop {
			if err := sim.Write("stop", 0, []byte{1, 0, 0, 0}); err != nil {
				return nil, err
			}
		}
		if err := s.SetEnds(nil); err != nil {
			return nil, err
		}
		if l.end && ends != nil {
			if err := s.SetEnds(ends[i]); err != nil {
				return nil, err
			}
		}
		sim.Late = l.masked && seed%2 == 1
		q, step := batch.StepRequest{Sequences: l.seqs, Steps: l.steps, Quiet: l.quiet}, 0
		if l.masked {
			q.Each = func([]int) bool { step++; return true }
			q.Mask = func(row int) []uint32 { return maskOf(p.mk, step, row) }
		}
		chosen, err := s.Run(ctx, q)
		var hang *runtime.HangError
		if l.givenUp && errors.As(err, &hang) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if l.stop {
			if err := sim.Write("stop", 0, make([]byte, 4)); err != nil {
				return nil, err
			}
		}
		if l.givenUp {
			continue
		}
		d.took = sim.Last.Steps
		d.chosen = append(d.chosen, chosen)
		print, err := p.print(sim, l, dirty)
		if err != nil {
			return nil, err
		}
		d.prints = append(d.prints, print)
	}
	return d, nil
}

// maskOf is the mask of a row in a step: one token in four may be chosen, others in the next step.
func maskOf(mk *megakernel.Kernel, step, row int) []uint32 {
	return slices.Repeat([]uint32{0x11111111 << ((step + row) % 4)}, (mk.Config.Vocab+31)/32)
}

// open is a session whose cache is filled.
func (p *play) open(ctx context.Context, sim *runtime.Sim) (*runtime.Session, error) {
	s, err := runtime.Open(ctx, p.mk, sim, p.weights, runtime.Options{Pages: p.pages, Steps: 4, Epoch: p.epoch, Pin: p.pin,
		Costs: smallCosts, Guard: uint32(p.pages - 1)})
	if err != nil {
		return nil, err
	}
	return s, p.fill(sim)
}

// fill writes what the cache holds at first; the rest of it is uninitialised.
func (p *play) fill(sim *runtime.Sim) error {
	for page, data := range p.cached {
		bytes := p.mk.KV.PageBytes()
		for l := range p.mk.Config.Layers {
			if err := sim.Write("kv", int64(l*p.pages+int(page))*int64(bytes), data[l*bytes:][:bytes]); err != nil {
				return err
			}
		}
	}
	return nil
}

// print is a fingerprint of what the kernel has written: all of it, or, where a
// launch before was given up, the logits of this launch's rows.
func (p *play) print(sim *runtime.Sim, l playLaunch, dirty bool) (string, error) {
	rows := 0
	for _, s := range l.seqs {
		rows += len(s.New)
	}
	sum := sha256.New()
	for _, b := range p.mk.IR.Globals() {
		if b.ReadOnly || b.Host == ir.HostWrites || b.Name == "times" || b.Name == "records" || dirty && b.Name != "logits" ||
			b.Name == "draw_lists" { // in any order
			continue
		}
		data := make([]byte, sim.Size(b.Name))
		if dirty && b.Name == "logits" {
			data = data[:4*rows*p.mk.Config.Vocab]
		}
		if err := sim.Read(b.Name, 0, data); err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %x\n", b.Name, sha256.Sum256(data))
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// subject makes mutants of the kernel that is played.
func (p *play) subject(t *testing.T) *subject {
	t.Helper()
	free, err := p.run(t.Context(), p.mk.IR, 1, nil)
	require.NoError(t, err)
	ends := make([][]int, len(p.launches))
	n := 0
	for i, l := range p.launches {
		if l.givenUp {
			continue
		}
		if l.end {
			ends[i] = []int{free.chosen[n][1][0]}
		}
		n++
	}
	good, err := p.run(t.Context(), p.mk.IR, 1, ends)
	require.NoError(t, err)
	s := &subject{seeds: seedsPerMutant(), ir: p.mk.IR,
		run: func(ctx context.Context, k *ir.Kernel, seed uint64) (report, place string, err error) {
			d, err := p.run(ctx, k, seed, ends)
			if err != nil {
				return reportOf(err)
			}
			for i, want := range good.prints {
				if fmt.Sprint(d.chosen[i]) != fmt.Sprint(good.chosen[i]) {
					return "wrong tokens", "", nil
				}
				if d.prints[i] != want {
					return "wrong value in memory", "", nil
				}
			}
			return "", "", nil
		}}
	s.mustPass(t)
	return s
}

func syntheticWeights(mk *megakernel.Kernel) runtime.Weights {
	return runtime.FromTensors(synth.NewWeights(1, mk.Config), runtime.LoadOptions{Workers: 1})
}
