package skeleton

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
)

// device is the simulator with a session of the real kernel's host side on it.
type device struct {
	mk      *megakernel.Kernel
	sim     *runtime.Sim
	session *runtime.Sequence
	table   []uint32        // physical page of each page of the sequence
	page    map[uint32]int  // and the other way round
	pages   int             // of the cache
	epoch   uint32          // the barrier counter before the next launch
	filled  int             // tokens of the cache that hold something
	carries map[string]bool // buffers of LL packets
	packets *packets
}

// open makes the device. Pages come in an order drawn from the seed; before and behind each
// that the sequence has lies one that it has not. The barrier counter passes 2³² in the
// first step.
func open(ctx context.Context, mk *megakernel.Kernel, k *ir.Kernel, r *Request) (*device, error) {
	if err := checkShares(mk); err != nil {
		return nil, fmt.Errorf("skeleton: the plan: %w", err)
	}
	sim, err := runtime.NewSim(k, r.Seed)
	if err != nil {
		return nil, err
	}
	sim.Options = interp.Options{NoRaces: !r.Races, MaxSteps: 1 << 40}
	d := &device{mk: mk, sim: sim, page: map[uint32]int{}, epoch: -uint32(3 * mk.Options.SMs), carries: map[string]bool{},
		packets: newPackets(k.Warps)}
	k.Instrs(func(in *ir.Instr) {
		if in.Op == ir.OpWaitTag {
			d.carries[in.Mem[0].Buf.Base().Name] = true
		}
	})
	last := len(r.Contexts) - 1
	n := (r.Contexts[last] + r.steps(last) + mk.KV.Page - 1) / mk.KV.Page
	d.pages = 2*n + 1
	for i, p := range rand.New(rand.NewPCG(r.Seed, 0x7061676573)).Perm(n) {
		d.table = append(d.table, uint32(2*p+1))
		d.page[uint32(2*p+1)] = i
	}
	o := runtime.Options{Pages: d.pages, Table: d.table, Epoch: d.epoch}
	d.session, err = runtime.OpenSequence(ctx, mk, weightless{sim}, weightless{}, o)
	return d, err
}

// weightless is a device whose weights have no contents, and the weights for it.
type weightless struct{ *runtime.Sim }

// Alloc reserves a buffer. Weights take no memory.
func (w weightless) Alloc(name string, bytes int64) error {
	switch name {
	case "weights", "gains", megakernel.BufferEmbed, megakernel.BufferBiases, megakernel.BufferQKGains:
		return w.AllocKnown(name, bytes)
	}
	return w.Sim.Alloc(name, bytes)
}

// Load loads nothing.
func (weightless) Load(context.Context, *megakernel.Kernel, runtime.Device) (runtime.LoadStats, error) {
	return runtime.LoadStats{}, nil
}

// fillCache marks the first n tokens of every layer and KV head as written, and makes n the
// position of the next step. What lies behind them, and in pages of nobody, stays unwritten.
func (d *device) fillCache(n int) error {
	kv := d.mk.KV
	raw := make([]byte, kv.Page*kv.TokenBytes())
	for layer := range kv.Layers {
		for from := d.filled; from < n; {
			count := min(kv.Page-from%kv.Page, n-from)
			for head := range kv.Heads {
				at := d.row(layer, head, from) * int64(kv.TokenBytes())
				if err := d.sim.Write(bufferKV, at, raw[:count*kv.TokenBytes()]); err != nil {
					return err
				}
			}
			from += count
		}
	}
	d.filled = max(d.filled, n)
	return d.session.Skip(n)
}

// row is where token t of a layer and KV head lies in the cache, in tokens of one head:
// [layer][page][head][slot].
func (d *device) row(layer, head, t int) int64 {
	kv := d.mk.KV
	page := int64(layer)*int64(d.pages) + int64(d.table[t/kv.Page])
	return (page*int64(kv.Heads)+int64(head))*int64(kv.Page) + int64(t%kv.Page)
}

// checkArrivals compares the counter of the grid barrier with the arrivals that n
// steps make.
func (d *device) checkArrivals(steps int) error {
	raw := make([]byte, 4)
	if err := d.sim.Read("barrier", 0, raw); err != nil {
		return err
	}
	want := d.epoch + uint32(d.mk.Barriers()*d.mk.Options.SMs*steps)
	if have := binary.LittleEndian.Uint32(raw); have != want {
		return fmt.Errorf("the counter of the grid barrier is %d after the launch, want %d: %d and %d arrivals of %d SMs in each of %d steps",
			have, want, d.epoch, d.mk.Barriers(), d.mk.Options.SMs, steps)
	}
	d.epoch = want
	return nil
}

const (
	bufferKV      = "kv"
	bufferWeights = "weights"
)
