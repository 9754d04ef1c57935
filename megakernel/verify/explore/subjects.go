// Package explore runs small subjects, and a model's kernel of one layer, in every order of their synchronising
// operations up to a bound (interp.Explore). The subjects are built of the templates that real kernels are built of.
package explore

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// subject is a kernel that is small enough to be explored.
type subject struct {
	name string
	what string
	ctas int
	// warps counts those that are consumers; there is one more with a ring, or a warpgroup where registers move.
	warps     int
	registers bool // move from the producer's warpgroup to the consumers'
	body      func(k *dsl.Kernel, e *grid.Env, ring *pipeline.Ring) []dsl.Role
	ring      *pipeline.Plan
	// want is what each word of "out" is at the end of every execution.
	want  []uint32
	lanes int    // threads of each warp in the model for SPIN
	fault string // planted
	// without is a mutation that the kernel gets, by its name; the first of that name, or the last.
	without string
	last    bool
	differs string // why SPIN says deadlock where the executor says that a phase is skipped
	states  string // why SPIN is not asked
}

const sharedLimit = 232448

// subjects are all of them. Each ends with a value that a lost or early step would change.
func subjects() []subject {
	plan := func(stages, inFlight int) *pipeline.Plan {
		p, err := pipeline.RingOnly(512, stages, inFlight, sharedLimit)
		if err != nil {
			panic("BUG: explore: " + err.Error())
		}
		return p
	}
	ones := func(n, of int) (want []uint32) {
		for range n {
			want = append(want, uint32(of))
		}
		return want
	}
	list := []subject{
		{name: "ring", what: "6 chunks through 2 stages to 3 consumer warps", ctas: 1, warps: 3, ring: plan(2, 2),
			body: ringBody(6, 0), want: ones(3, 6*32)},
		{name: "ring, 1 in flight", what: "7 chunks through 3 stages to 2 consumer warps, one copy in flight", ctas: 1,
			warps: 2, ring: plan(3, 1), body: ringBody(7, 0), want: ones(2, 7*32)},
		{name: "step", what: "step_ready and step_ack: 3 steps, of which a producer warp begins each before it is told that it runs", ctas: 1, warps: 1, ring: plan(2, 2),
			body: stepBody(3, 1), want: ones(1, 3)},
		{name: "grid barrier", what: "3 CTAs, 3 rounds: each reads what all wrote in plain memory", ctas: 3, warps: 1,
			body: gridBody(3, 0, false), want: ones(3, 3+6+9)},
		{name: "grid barrier, 2 warps", what: "2 CTAs of 2 consumer warps, 3 rounds", ctas: 2, warps: 2,
			body: gridBody(3, 0, false), want: ones(2, 2+4+6)},
		{name: "LL packets", what: "3 CTAs hand each other a packet, 2 rounds, behind a count of arrivals that orders nothing", ctas: 3, warps: 1, body: packetBody(2, true, 2), want: ones(3, 3+6)},
		{name: "LL packets, two buffers",
			what: "2 CTAs hand each other a packet, 3 rounds, without a count, two buffers in turn", ctas: 2, warps: 1,
			body: packetBody(3, false, 2), want: ones(2, 2+4+6)},
		{name: "turns",
			what: "2 warpgroups take turns, 3 each: each warp reads what the other group's have written in theirs", ctas: 1,
			warps: 2 * dsl.WarpsPerGroup, body: turnsBody(3), want: turnsWant(3)},
		{name: "registers", what: "4 warps leave registers to 8, each of which waits for as many as it lacks", ctas: 1,
			warps: 2 * dsl.WarpsPerGroup, registers: true, body: registersBody, want: ones(8, 1)},
		{name: "ring, registers",
			what: "a producer and 3 idle warps leave registers to 8 consumer warps, which take 3 chunks from 2 stages",
			ctas: 1, warps: 2 * dsl.WarpsPerGroup, registers: true, ring: plan(2, 2), body: ringBody(3, 0), want: ones(8, 3*32),
			states: "8 consumers at their own places in a chunk have some 10^8 states, each of 2 kB"},
	}
	for i := range list {
		if list[i].lanes = 1; list[i].ctas*list[i].warps <= 2 && len(list[i].want) == list[i].ctas { // else minutes
			list[i].lanes = 2
		}
	}
	return list
}

// lanesApart is one fault with two names.
const lanesApart = "mbarrier.test_wait with a parity is valid for the current phase and the one before. The executor reports a lane whose wait need not end " +
	"before the next phase completes. SPIN's lanes run apart, so there the lane waits for ever"

// planted are subjects with a fault each.
func planted() (list []subject) {
	for _, f := range []struct {
		of, fault string
		edit      func(s *subject)
	}{
		{"ring", "a consumer releases nothing", func(s *subject) { s.body = ringBody(6, 1) }},
		{"grid barrier", "a CTA does not arrive", func(s *subject) { s.body = gridBody(2, 2, false) }},
		{"grid barrier", "a barrier orders nothing", func(s *subject) { s.body = gridBody(2, 0, true) }},
		{"LL packets, two buffers", "flags do not change", func(s *subject) { s.body = packetBody(3, false, 0) }},
		{"step", "no ack of a step", func(s *subject) { s.body = stepBody(3, 0) }},
		{"step", "no syncwarp before a release", func(s *subject) { s.without, s.differs = "remove syncwarp", lanesApart }},
		{"turns", "a turn is not waited for", func(s *subject) { s.without = "remove wait.mbar @turns" }},
		{"turns", "a turn is not passed on", func(s *subject) { s.without = "remove mbar.arrive @turns" }},
		{"turns", "a turn's other phase is waited for",
			func(s *subject) { s.without = "parity wait.mbar @turns: the other parity" }},
		{"registers", "no registers are given up", func(s *subject) { s.without = "remove setmaxreg"; s.last = true }},
		{"registers", "8 registers too few are given up",
			func(s *subject) { s.without = "count setmaxreg: 8 registers more"; s.last = true }},
		{"registers", "three of four warps give registers up",
			func(s *subject) { s.without = "count setmaxreg: not the last warp"; s.last = true }},
	} {
		for _, s := range subjects() {
			if s.name == f.of {
				f.edit(&s)
				s.fault = f.fault
				list = append(list, s)
			}
		}
	}
	return list
}

// ringBody streams chunks of ones and sums a lane's word of each. lost plants a fault: a consumer that releases
// nothing.
func ringBody(chunks, lost int) func(*dsl.Kernel, *grid.Env, *pipeline.Ring) []dsl.Role {
	return func(k *dsl.Kernel, e *grid.Env, ring *pipeline.Ring) []dsl.Role {
		in := dsl.Global[dsl.B128](k, "ones", int64(chunks*ring.StageBytes()/16), dsl.ReadOnly())
		out := dsl.Global[dsl.U32](k, "out", int64(e.Consumers))
		return []dsl.Role{
			{Name: "consumers", First: 0, End: e.Consumers, Body: func() {
				if k.Warps() > e.Consumers+1 {
					k.MoreRegisters(consumerRegisters)
				}
				c, sum := ring.Consumer(), dsl.NewVar(k.U32(0), "sum")
				c.Lost = lost
				k.For(k.U32(0), k.U32(chunks), func(dsl.Val[dsl.U32]) {
					c.Drain(func(base dsl.Val[dsl.U32]) {
						word := dsl.Split(ring.Data.Load(base.Add(e.Lane)))
						sum.Set(sum.Get().Add(word[0]))
					})
				})
				total := dsl.WarpSum(sum.Get())
				k.If(e.Lane.EqC(0), func() { out.Store(e.Warp, total) })
			}},
			{Name: "producer", First: e.Consumers, End: k.Warps(), Body: func() {
				produce := func() {
					p, bytes := ring.Producer(), k.U32(ring.StageBytes())
					k.For(k.U32(0), k.U32(chunks), func(i dsl.Val[dsl.U32]) {
						p.Fill(bytes, func(base dsl.Val[dsl.U32]) {
							k.If(e.Lane.EqC(0), func() { p.Copy(base, in, i.MulC(ring.StageBytes()/16), bytes) })
						})
					})
					p.Finish()
				}
				if k.Warps() == e.Consumers+1 {
					produce()
					return
				}
				k.FewerRegisters(producerRegisters)
				e.Producing(0, produce)
			}},
		}
	}
}

// What a subject's warps have of an SM's registers: as many in all as they begin with.
const (
	consumerRegisters = 224
	producerRegisters = 56
)

// registersBody is how a producer's warpgroup leaves its registers to the consumers', alone.
func registersBody(k *dsl.Kernel, e *grid.Env, _ *pipeline.Ring) []dsl.Role {
	out := dsl.Global[dsl.U32](k, "out", int64(e.Consumers))
	return []dsl.Role{
		{Name: "consumers", First: 0, End: e.Consumers, Body: func() {
			k.MoreRegisters(consumerRegisters)
			k.If(e.Lane.EqC(0), func() { out.Store(e.Warp, k.U32(1)) })
		}},
		{Name: "producer", First: e.Consumers, End: k.Warps(), Body: func() { k.FewerRegisters(producerRegisters) }},
	}
}

// turnsBody lets each warp of two warpgroups read, in its turn, what the other one's warps have written in their last
// turn, and write its own word. In a kernel a product stands where the warp's lanes come together here.
func turnsBody(rounds int) func(*dsl.Kernel, *grid.Env, *pipeline.Ring) []dsl.Role {
	return func(k *dsl.Kernel, e *grid.Env, _ *pipeline.Ring) []dsl.Role {
		out := dsl.Global[dsl.U32](k, "out", int64(e.Consumers))
		words := dsl.Shared[dsl.U32](k, "words", e.Consumers)
		turns := pipeline.NewTurns(k, nil)
		k.If(e.Tid.EqC(0), turns.Init)
		k.If(e.Lane.EqC(0), func() { words.Store(e.Warp, k.U32(0)) })
		k.Barrier()
		return []dsl.Role{{Name: "consumers", First: 0, End: e.Consumers, Body: func() {
			turn, sum := turns.Start(), dsl.NewVar(k.U32(0), "sum")
			group := e.Warp.DivC(dsl.WarpsPerGroup)
			other := group.XorC(1).MulC(dsl.WarpsPerGroup)
			k.For(k.U32(0), k.U32(rounds), func(i dsl.Val[dsl.U32]) {
				turn.Take()
				k.If(e.Lane.EqC(0), func() {
					for w := range dsl.WarpsPerGroup {
						sum.Set(sum.Get().Add(words.Load(other.AddC(w))))
					}
					words.Store(e.Warp, i.MulC(2).Add(group).AddC(1))
				})
				k.SyncWarp()
				turn.Pass()
			}, dsl.Unroll(1))
			k.If(e.Lane.EqC(0), func() { out.Store(e.Warp, sum.Get()) })
		}}}
	}
}

// turnsWant is what each warp has read.
func turnsWant(rounds int) (want []uint32) {
	for w := range pipeline.TurnGroups * dsl.WarpsPerGroup {
		sum, group := 0, w/dsl.WarpsPerGroup
		for i := range rounds {
			sum += dsl.WarpsPerGroup * (2*i + group)
		}
		want = append(want, uint32(sum))
	}
	return want
}

// gridBody lets each CTA write a word a round and read all CTAs' behind a barrier. Faults: lost is a CTA, plus 1, that
// does not arrive; a weak barrier orders nothing.
func gridBody(rounds, lost int, weak bool) func(*dsl.Kernel, *grid.Env, *pipeline.Ring) []dsl.Role {
	return func(k *dsl.Kernel, e *grid.Env, _ *pipeline.Ring) []dsl.Role {
		words := dsl.Global[dsl.U32](k, "words", int64(rounds*e.Grid))
		out := dsl.Global[dsl.U32](k, "out", int64(e.Grid))
		counter := dsl.Global[dsl.U32](k, "barrier", 1)
		return []dsl.Role{{Name: "consumers", First: 0, End: e.Consumers, Body: func() {
			bar, sum := grid.NewGridBarrier(e, counter, k.U32(0)), dsl.NewVar(k.U32(0), "sum")
			bar.Lost = lost
			k.For(k.U32(0), k.U32(rounds), func(i dsl.Val[dsl.U32]) {
				row := i.MulC(e.Grid)
				k.If(e.Tid.EqC(0), func() { words.Store(row.Add(e.CTA), i.AddC(1)) })
				if weak {
					bar.Count(nil, nil)
				} else {
					bar.Sync()
				}
				for c := range e.Grid {
					sum.Set(sum.Get().Add(words.Load(row.AddC(c))))
				}
			}, dsl.Unroll(1))
			k.If(e.Tid.EqC(0), func() { out.Store(e.CTA, sum.Get()) })
		}}}
	}
}

// packetBody lets each CTA hand a packet to the others a round, by lane 0, of which each sums all. Flags go up by
// steps; 0 plants a fault.
func packetBody(rounds int, counted bool, steps int) func(*dsl.Kernel, *grid.Env, *pipeline.Ring) []dsl.Role {
	return func(k *dsl.Kernel, e *grid.Env, _ *pipeline.Ring) []dsl.Role {
		packets := dsl.Global[dsl.B128](k, "packets", int64(2*e.Grid))
		out := dsl.Global[dsl.U32](k, "out", int64(e.Grid))
		counter := dsl.Global[dsl.U32](k, "barrier", 1)
		return []dsl.Role{{Name: "consumers", First: 0, End: e.Consumers, Body: func() {
			bar, sum := grid.NewGridBarrier(e, counter, k.U32(0)), dsl.NewVar(k.U32(0), "sum")
			flag := dsl.NewVar(k.U32(1), "flag")
			k.For(k.U32(0), k.U32(rounds), func(i dsl.Val[dsl.U32]) {
				row := i.AndC(1).MulC(e.Grid)
				w := &grid.LL{Flag: flag.Get}
				k.If(e.Tid.EqC(0), func() {
					packets.Store(row.Add(e.CTA), dsl.Join(i.AddC(1), k.U32(0), k.U32(0), flag.Get()), dsl.Relaxed(dsl.GPUScope))
				})
				if counted {
					bar.Count(nil, nil)
				}
				k.If(e.Tid.EqC(0), func() {
					var at []dsl.Val[dsl.U32]
					for c := range e.Grid {
						at = append(at, row.AddC(c))
					}
					for _, p := range w.All(e, packets, at, "waits for packet %d") {
						word := dsl.Split(p)
						sum.Set(sum.Get().Add(word[0].Or(word[1].Or(word[2]))))
					}
				})
				flag.Set(flag.Get().AddC(steps))
			}, dsl.Unroll(1))
			k.If(e.Tid.EqC(0), func() { out.Store(e.CTA, sum.Get()) })
		}}}
	}
}

// stepBody is how consumers tell the producer that a step runs, and hear that it knows, as megakernel's kernels do: the
// producer fetches the first chunk of a step before, and the second behind it. acks 0 plants a fault: nobody waits for
// the producer's ack.
func stepBody(steps, acks int) func(*dsl.Kernel, *grid.Env, *pipeline.Ring) []dsl.Role {
	return func(k *dsl.Kernel, e *grid.Env, ring *pipeline.Ring) []dsl.Role {
		in := dsl.Global[dsl.B128](k, "ones", int64(2*ring.StageBytes()/16), dsl.ReadOnly())
		out := dsl.Global[dsl.U32](k, "out", 1)
		ready, ack := dsl.NewMBars(k, "step_ready", 1), dsl.NewMBars(k, "step_ack", 1)
		runs := dsl.Shared[dsl.U32](k, "runs", 1)
		k.If(e.Tid.EqC(0), func() { ready.Init(dsl.At(0), k.U32(1)); ack.Init(dsl.At(0), k.U32(1)) })
		return []dsl.Role{
			{Name: "consumers", First: 0, End: e.Consumers, Body: func() {
				c, sum := ring.Consumer(), dsl.NewVar(k.U32(0), "sum")
				k.For(k.U32(0), k.U32(steps), func(s dsl.Val[dsl.U32]) {
					k.If(e.Tid.EqC(0), func() {
						if acks > 0 {
							ack.Wait(dsl.At(0), s.AddC(1).AndC(1))
						}
						runs.Store(dsl.At(0), s.AddC(1))
						ready.Arrive(dsl.At(0))
					})
					c.Skip()
					c.Skip()
					sum.Set(sum.Get().AddC(1))
				}, dsl.Unroll(1))
				k.If(e.Tid.EqC(0), func() { out.Store(dsl.At(0), sum.Get()) })
			}},
			{Name: "producer", First: e.Consumers, End: e.Consumers + 1, Body: func() {
				p, bytes := ring.Producer(), k.U32(ring.StageBytes())
				fill := func() {
					p.Fill(bytes, func(base dsl.Val[dsl.U32]) { k.If(e.Lane.EqC(0), func() { p.Copy(base, in, dsl.At(0), bytes) }) })
				}
				k.For(k.U32(0), k.U32(steps), func(s dsl.Val[dsl.U32]) {
					fill()
					ready.Wait(dsl.At(0), s.AndC(1))
					k.If(dsl.Uniform(runs.Load(dsl.At(0)), dsl.CTAScope).Eq(s.AddC(1)), func() {
						k.SyncWarp()
						k.If(e.Lane.EqC(0), func() { ack.Arrive(dsl.At(0)) })
						fill()
					})
				}, dsl.Unroll(1))
				p.Finish()
			}},
		}
	}
}

// kernel builds the subject.
func (s *subject) kernel() (*ir.Kernel, error) {
	warps := s.warps
	switch {
	case s.registers:
		warps += dsl.WarpsPerGroup
	case s.ring != nil:
		warps++
	}
	k := dsl.New("subject", dsl.Options{Warps: warps, Grid: s.ctas, SharedLimit: sharedLimit})
	var ring *pipeline.Ring
	if s.ring != nil {
		ring = pipeline.NewRing(k, s.ring, s.warps)
	}
	e := grid.NewEnv(k, s.ctas, s.warps, dsl.Shared[dsl.F32](k, "scratch", s.warps))
	roles := s.body(k, e, ring)
	if ring != nil {
		k.If(e.Tid.EqC(0), ring.Init)
		k.Barrier()
	}
	k.Roles(roles...)
	whole, err := k.Finish()
	if err != nil || s.without == "" {
		return whole, err
	}
	all := mutate.List(whole)
	if s.last {
		slices.Reverse(all)
	}
	for _, m := range all {
		if m.Name == s.without {
			return mutate.Apply(whole, m)
		}
	}
	panic("BUG: explore: no mutation " + s.without)
}

// memory is what an execution begins with: zeros, and ones.
func memory(k *ir.Kernel) *interp.Memory {
	m := interp.NewMemory()
	for _, b := range k.Globals() {
		data := make([]byte, b.Bytes())
		if b.Name == "ones" {
			for i := 0; i < len(data); i += 16 {
				data[i] = 1
			}
		}
		m.Bind(b.Name, data)
	}
	return m
}

// check compares an execution's end.
func (s *subject) check(m *interp.Memory) error {
	out := m.Bytes("out")
	for i, want := range s.want {
		if got := binary.LittleEndian.Uint32(out[4*i:]); got != want {
			return fmt.Errorf("out[%d] is %d at the end of an execution, want %d", i, got, want)
		}
	}
	return nil
}
