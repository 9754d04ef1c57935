//go:build cuda

package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tests/gate"
)

// before is called before the token at a position is fed.
type before func(position int) error

func nothing(int) error { return nil }

// scored is a position whose logits wait for being measured.
type scored struct {
	sequence, position int
	o, h, k            []float32
}

// judge feeds the reference's sequences and measures the kernel.
func (b *bench) judge(hook before) (gate.Result, error) {
	g := gate.New(gate.DefaultRules())
	for q := range b.ref.Sequences {
		if err := b.sequence(g, q, hook); err != nil {
			return gate.Result{}, err
		}
	}
	return g.Result(), nil
}

// sequence runs one sequence from an empty cache; the logits are measured by
// other goroutines while the GPU goes on.
func (b *bench) sequence(g *gate.Gate, q int, hook before) error {
	tokens, err := b.ref.Tokens(q)
	if err != nil {
		return err
	}
	if err := b.s.Rewind(0); err != nil {
		return err
	}
	digest := sha256.New()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	results := map[int]gate.Position{}
	slots := make(chan struct{}, 16)
	err = b.ref.EachRow(q, func(position int, o, h []float32) error {
		for b.s.Pos() <= position {
			if err := hook(b.s.Pos()); err != nil {
				return err
			}
			if _, err := b.s.Step(tokens[b.s.Pos()]); err != nil {
				return err
			}
		}
		p := scored{q, position, slices.Clone(o), slices.Clone(h), make([]float32, len(o))}
		if err := b.s.Logits(p.k); err != nil {
			return err
		}
		if err := binary.Write(digest, binary.LittleEndian, p.k); err != nil {
			return err
		}
		slots <- struct{}{}
		wg.Go(func() {
			m, err := gate.Measure(p.o, p.h, p.k)
			mu.Lock()
			results[p.position] = m
			if err != nil {
				failed = err
			}
			mu.Unlock()
			<-slots
		})
		return nil
	})
	wg.Wait()
	if err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	b.digest = hex.EncodeToString(digest.Sum(nil))
	for position := range len(tokens) {
		if m, ok := results[position]; ok {
			g.Put(q, position, m)
		}
	}
	return nil
}

// repeats runs the first sequence twice and compares every bit of the logits.
func (b *bench) repeats() (bool, error) {
	var digests [2]string
	for i := range digests {
		if err := b.sequence(gate.New(gate.DefaultRules()), 0, nothing); err != nil {
			return false, err
		}
		digests[i] = b.digest
	}
	return digests[0] == digests[1], nil
}

// faulty judges the kernel with one fault planted.
func (b *bench) faulty(name string) (gate.Result, error) {
	switch name {
	case gate.NormGainSkipped:
		return b.withoutGain()
	case gate.PagesSwapped:
		return b.withSwappedPages()
	}
	planted := map[string]megakernel.Fault{
		gate.KVTokenDropped: megakernel.FaultDropToken, gate.RopeOffByOne: megakernel.FaultRope, gate.MergeWeightWrong: megakernel.FaultMergeShare}
	fault, ok := planted[name]
	if !ok {
		return gate.Result{}, fmt.Errorf("no way to plant it")
	}
	code, err := os.ReadFile(b.cubin(string(fault)))
	if err != nil {
		return gate.Result{}, err
	}
	restore, err := b.gpu.Swap(code)
	if err != nil {
		return gate.Result{}, err
	}
	defer restore()
	return b.judge(nothing)
}

// withoutGain replaces the gains of the middle layer's attention norm by 1.
func (b *bench) withoutGain() (gate.Result, error) {
	gains, err := b.mk.Gains(b.weights)
	if err != nil {
		return gate.Result{}, err
	}
	row := b.config.Hidden * 2
	at := b.config.Layers / 2 * 2 * row
	ones := make([]byte, 0, row)
	for range b.config.Hidden {
		ones = binary.LittleEndian.AppendUint16(ones, 0x3f80)
	}
	if err := b.gpu.Write("gains", int64(at), ones); err != nil {
		return gate.Result{}, err
	}
	r, err := b.judge(nothing)
	if err != nil {
		return r, err
	}
	return r, b.gpu.Write("gains", int64(at), gains[at:at+row])
}

// withSwappedPages swaps the first and the third page of the table when the
// third is half full. Two full pages would be no fault: keys carry their
// positions, so attention does not depend on the order of tokens.
func (b *bench) withSwappedPages() (gate.Result, error) {
	swapped := slices.Clone(b.table)
	swapped[0], swapped[2] = swapped[2], swapped[0]
	r, err := b.judge(func(position int) error {
		switch position {
		case 0:
			return b.s.SetTable(slices.Clone(b.table))
		case 2*b.mk.KV.Page + b.mk.KV.Page/2:
			return b.s.SetTable(swapped)
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	return r, b.s.SetTable(slices.Clone(b.table))
}
