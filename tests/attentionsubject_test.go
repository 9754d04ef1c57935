package tests

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/stretchr/testify/require"
)

// attentionPlay is what an attention-only kernel is put through: launches of two
// steps over a cache of random tokens.
type attentionPlay struct {
	mk       *attend.Kernel
	pages    int
	epoch    uint32
	cached   map[uint32][]byte // what the cache holds of a page: all layers
	launches []map[string][]byte
	plans    []*kv.Plan // copies
}

// attentionLaunch is sequences of n cached and new tokens; pin cuts their KV.
type attentionLaunch struct {
	seqs [][2]int
	pin  int
}

func newAttentionPlay(t *testing.T, c attend.Config, launches ...attentionLaunch) *attentionPlay {
	t.Helper()
	mk, err := attend.Build(c)
	require.NoError(t, err)
	p := &attentionPlay{mk: mk, pages: 512, cached: map[uint32][]byte{}, epoch: 1<<32 - 5}
	rng := rand.New(rand.NewPCG(3, 3))
	free := rng.Perm(p.pages)
	for _, l := range launches {
		q := kv.Request{Classes: mk.Classes(), PinTokens: l.pin}
		for _, x := range l.seqs {
			n := (x[0] + x[1] + c.Page - 1) / c.Page
			s := kv.Sequence{Cached: x[0], New: x[1]}
			for _, page := range free[:n] {
				s.Pages = append(s.Pages, uint32(page))
				p.cached[uint32(page)] = randomBF16(rng, c.Layers*2*c.Page*c.KVHeads*c.HeadDim)
			}
			free = free[n:]
			q.Sequences = append(q.Sequences, s)
		}
		p.plan(t, q)
	}
	return p
}

// plan adds a launch.
func (p *attentionPlay) plan(t *testing.T, q kv.Request) {
	t.Helper()
	limits := p.mk.Limits(p.pages)
	limits.Costs = smallCosts
	planner, err := kv.NewPlanner(limits)
	require.NoError(t, err)
	plan, err := planner.Plan(q)
	require.NoError(t, err)
	work, merge := make([]uint32, limits.WorkWords(len(q.Classes))), make([]uint32, limits.MergeWords(len(q.Classes)))
	plan.EncodeWork(work)
	plan.EncodeMerge(merge)
	p.plans = append(p.plans, plan)
	p.launches = append(p.launches,
		map[string][]byte{attend.BufferRows: u32Bytes(plan.Rows), attend.BufferEntries: u32Bytes(plan.Entries),
			attend.BufferWork: u32Bytes(work), attend.BufferMerges: u32Bytes(merge)})
}

func u32Bytes(words []uint32) (out []byte) {
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

// randomBF16 is n elements.
func randomBF16(rng *rand.Rand, n int) (out []byte) {
	for range n {
		out = reference.ToBF16(rng.NormFloat64()).Append(out)
	}
	return out
}

// run plays, and returns a fingerprint of all that the kernel wrote.
func (p *attentionPlay) run(k *ir.Kernel, seed uint64) (string, error) {
	sim, err := runtime.NewSim(k, seed)
	if err != nil {
		return "", err
	}
	c, page := &p.mk.Config, 4*p.mk.Config.Page*p.mk.Config.KVHeads*p.mk.Config.HeadDim
	for _, b := range p.mk.IR.Globals() {
		bytes := b.Bytes()
		switch b.Name {
		case attend.BufferCache:
			bytes = int64(c.Layers * p.pages * page)
		case attend.BufferEntries:
			bytes = 4 * int64(p.pages)
		}
		if err := sim.Alloc(b.Name, bytes); err != nil {
			return "", err
		}
	}
	for n, data := range p.cached {
		for l := range c.Layers {
			if err := sim.Write(attend.BufferCache, int64((l*p.pages+int(n))*page), data[l*page:][:page]); err != nil {
				return "", err
			}
		}
	}
	q := randomBF16(rand.New(rand.NewPCG(4, 4)), c.Rows*c.Heads*c.HeadDim)
	for name, data := range map[string][]byte{attend.BufferQ: q, "barrier": u32Bytes([]uint32{p.epoch}),
		"epoch": u32Bytes([]uint32{p.epoch})} {
		if err := sim.Write(name, 0, data); err != nil {
			return "", err
		}
	}
	if err := sim.Zero(attend.BufferStates); err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, l := range p.launches {
		for name, data := range l {
			if err := sim.Write(name, 0, data); err != nil {
				return "", err
			}
		}
		if err := runtime.Launch(sim, p.mk.Scalars(p.pages, 2)); err != nil {
			return "", err
		}
		for _, b := range p.mk.IR.Globals() {
			if b.ReadOnly {
				continue
			}
			data := make([]byte, sim.Size(b.Name))
			if err := sim.Read(b.Name, 0, data); err != nil {
				return "", err
			}
			sum.Write(data)
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// subject makes mutants of the kernel that is played.
func (p *attentionPlay) subject(t *testing.T) *subject {
	t.Helper()
	good, err := p.run(p.mk.IR, 1)
	require.NoError(t, err)
	s := &subject{seeds: seedsPerMutant(), ir: p.mk.IR,
		run: func(_ context.Context, k *ir.Kernel, seed uint64) (report, place string, err error) {
			print, err := p.run(k, seed)
			switch {
			case err != nil:
				return reportOf(err)
			case print != good:
				return "wrong value in memory", "", nil
			}
			return "", "", nil
		}}
	s.mustPass(t)
	return s
}
