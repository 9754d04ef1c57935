package pipeline

import "github.com/mkgen/mkgen/dsl"

// Ring is the device code of the shared-memory ring: Stages slots that one
// producer warp fills with bulk copies and the consumer warps drain, in order.
// Each stage has two mbarriers: full (a copy has landed; one arrival plus the
// copy's bytes) and empty (drained; one arrival a consumer warp, of whom one may
// arrive for others). What a stage
// holds is nobody's business here: weights and KV of any op share the ring.
//
// Crossing proxies: completion on full makes the copied bytes visible to the
// consumers. Before a stage is overwritten the producer fences: the consumers'
// reads (generic proxy) happen before the wait on empty, and the fence that
// follows it orders them before the copy (async proxy).
type Ring struct {
	// Data is the ring's storage in 16-byte elements; a stage is
	// StageBytes/16 of them.
	Data dsl.Buf[dsl.B128]

	k                   *dsl.Kernel
	stages, stageBytes  int
	inFlight, consumers int
	leads               []Throttle
	full, empty         dsl.MBars
	watch               *Watch
	trace               *Trace
}

// NewRing declares the ring's shared memory as the plan's first three regions
// place it. consumers is the number of consumer warps.
func NewRing(k *dsl.Kernel, p *Plan, consumers int) *Ring {
	at := func(name string) dsl.BufOpt { return dsl.PlaceAt(p.Region(name).Offset) }
	return &Ring{
		k: k, stages: p.Stages, stageBytes: p.StageBytes, inFlight: p.InFlight, consumers: consumers,
		leads: p.Throttles,
		Data: dsl.Shared[dsl.B128](k, RegionRing, p.Stages*p.StageBytes/16, at(RegionRing), dsl.Align(StageAlign),
			dsl.Doc("the ring: stages that hold chunks of weights or KV")),
		full:  dsl.NewMBars(k, RegionFull, p.Stages, at(RegionFull), dsl.Doc("a stage's copy has landed")),
		empty: dsl.NewMBars(k, RegionEmpty, p.Stages, at(RegionEmpty), dsl.Doc("a stage has been drained")),
	}
}

// Watched makes the ring's waits end when the launch is given up.
func (r *Ring) Watched(w *Watch) { r.watch = w }

// Traced makes the ring's waits spans of a trace; call it behind Watched, and before
// Producer and Consumer.
func (r *Ring) Traced(t *Trace) {
	if r.trace = t; t != nil {
		t.ring.of(r.k, r.stages, r.limits())
	}
}

// StageBytes is the size of one stage.
func (r *Ring) StageBytes() int { return r.stageBytes }

// Init initialises the mbarriers. One thread of the CTA runs it; a CTA barrier
// must follow before anyone uses the ring.
func (r *Ring) Init() {
	k := r.k
	k.For(k.U32(0), k.U32(r.stages), func(i dsl.Val[dsl.U32]) {
		r.full.Init(i, k.U32(1))
		r.empty.Init(i, k.U32(r.consumers))
	}, dsl.Unroll(1))
	k.FenceMBarInit()
}

// cursor walks the stages: stage counts 0 … stages−1, parity flips at every wrap.
type cursor struct {
	k             *dsl.Kernel
	stages        int
	stage, parity *dsl.Var[dsl.U32]
}

func newCursor(k *dsl.Kernel, stages, stage, parity int, name string) cursor {
	return cursor{k: k, stages: stages, stage: dsl.NewVar(k.U32(stage), name),
		parity: dsl.NewVar(k.U32(parity), name+"_parity")}
}

func (c cursor) advance() {
	next := c.stage.Get().AddC(1).Named("next")
	wrap := next.EqC(c.stages).Named("wrap")
	c.stage.Set(dsl.Select(wrap, c.k.U32(0), next))
	c.parity.Set(dsl.Select(wrap, c.parity.Get().XorC(1), c.parity.Get()))
}

// ahead is the stage n on, and its parity.
func (c cursor) ahead(n dsl.Val[dsl.U32]) (stage, parity dsl.Val[dsl.U32]) {
	at := c.stage.Get().Add(n)
	return at.RemC(c.stages), c.parity.Get().Xor(at.DivC(c.stages).AndC(1))
}

// Producer is the producer warp's position in the ring.
type Producer struct {
	r          *Ring
	next, last cursor // the stage to fill; the stage filled inFlight chunks ago
	leads      []leadCursors
	filling    dsl.Val[dsl.U32] // the stage that Fill's copy starts copies into
}

// Producer starts the producer warp at the first stage. Declare it at the top
// of the producer's role.
//
// A fresh mbarrier counts as having completed the phase before its first, of
// parity 1, so waiting for that parity passes at once: thus the first lap waits
// for no consumer and the first inFlight chunks for no earlier copy.
func (r *Ring) Producer() *Producer {
	r.k.Note("ring: fill is the stage to fill next; the copy into landed, %d chunks before, must have landed", r.inFlight)
	for _, l := range r.leads {
		r.k.Note("ring: while led, filled %d chunks before, is not empty, the copy into near, %d before, must have landed",
			l.Chunks, l.InFlight)
	}
	p := &Producer{r: r,
		next: newCursor(r.k, r.stages, 0, 1, "fill"),
		last: r.ago(r.inFlight, "landed")}
	for _, l := range r.leads {
		p.leads = append(p.leads, leadCursors{r.ago(l.Chunks, "led"), r.ago(l.InFlight, "near")})
	}
	return p
}

// ago is the stage filled n chunks ago, before the first.
func (r *Ring) ago(n int, name string) cursor {
	return newCursor(r.k, r.stages, (r.stages-n)%r.stages, 1, name)
}

// Finish ends the producer's role: a copy in flight may not outlive the CTA. It
// waits for nothing unless a wait was given up before, or a trace notes when the last chunks
// are drained.
func (p *Producer) Finish() {
	r, k := p.r, p.r.k
	r.trace.rest(p)
	if r.watch == nil {
		return
	}
	k.For(k.U32(0), k.U32(r.inFlight), func(dsl.Val[dsl.U32]) {
		stage := p.last.stage.Get()
		r.watch.landed(k, r.full, stage, p.last.parity.Get(), stage)
		p.last.advance()
	}, dsl.Unroll(1))
}

// Ring is the ring the producer fills.
func (p *Producer) Ring() *Ring { return p.r }

// Fill waits for the next stage to be drained and for the copy inFlight chunks
// ago to have landed, announces bytes (a multiple of 16, at most a stage), and
// calls copy, which must start bulk copies of together that many bytes into the
// stage, from 16-byte element base of Data on, through Copy. All 32 lanes take
// part; copy chooses the lanes that issue.
func (p *Producer) Fill(bytes dsl.Val[dsl.U32], copy func(base dsl.Val[dsl.U32])) {
	r, k := p.r, p.r.k
	k.Note("ring: wait for an empty stage and for a copy before to land, announce the bytes, start the copies")
	stage := p.next.stage.Get().Named("stage")
	waits := r.trace.filling()
	r.watch.MBar(k, r.empty, stage, p.next.parity.Get(), stage, "waits for stage %d of the ring to be drained")
	waits.freed()
	if r.limits() {
		last := p.last.stage.Get()
		r.watch.landed(k, r.full, last, p.last.parity.Get(), last)
		waits.waited()
		p.last.advance()
	}
	p.yield(waits)
	waits.take(stage)
	k.FenceProxyAsyncShared()
	k.If(k.Lane().EqC(0), func() { r.full.ArriveExpect(stage, bytes) })
	k.SyncWarp()
	p.filling = stage
	copy(stage.MulC(r.stageBytes / 16))
	p.next.advance()
	waits.issued()
}

// limits is whether the producer waits for copies to land before it goes on: to
// limit those in flight, and since consumers that have given up release stages
// that they have not drained, and a stage must not be filled while it is.
func (r *Ring) limits() bool { return r.inFlight < r.stages || r.watch != nil }

// Copy starts one bulk copy into the stage being filled, from 16-byte element
// si of src to 16-byte element di of the ring. Weights are read once: evict first.
func (p *Producer) Copy(di dsl.Val[dsl.U32], src dsl.Buf[dsl.B128], si dsl.Index, bytes dsl.Val[dsl.U32],
	opts ...dsl.MemOpt) {
	dsl.BulkCopy(p.r.Data, di, src, si, bytes, p.r.full, p.filling, opts...)
}

// Consumer is one consumer warp's position in the ring.
type Consumer struct {
	r    *Ring
	next cursor

	// Lost plants a fault: warp 0 of this CTA, if not 0 its number plus 1, releases nothing.
	Lost int
}

// Consumer starts a consumer warp at the first stage. Declare it at the top of
// the consumers' role.
func (r *Ring) Consumer() *Consumer {
	r.k.Note("ring: drain is the stage to read next; a parity is that of the phase to wait for, and flips with every lap")
	return &Consumer{r: r, next: newCursor(r.k, r.stages, 0, 0, "drain")}
}

// DrainAt is Drain whose use is told where, which is computed before the chunk is there.
func (c *Consumer) DrainAt(where func(base dsl.Val[dsl.U32]) dsl.Val[dsl.U32], use func(at dsl.Val[dsl.U32])) {
	c.drain(func(stage dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return where(c.base(stage)) }, use)
}

// Skip waits for the next stage to be filled and releases it unread.
func (c *Consumer) Skip() { c.drain(itself, func(dsl.Val[dsl.U32]) {}) }

// Drain waits for the next stage to be filled, calls use with the stage's first
// 16-byte element in Data, and then releases the stage. All consumer warps drain
// every stage, whether they read from it or not, unless they share chunks out (Take).
func (c *Consumer) Drain(use func(base dsl.Val[dsl.U32])) {
	c.drain(itself, func(stage dsl.Val[dsl.U32]) { use(c.base(stage)) })
}

func itself(stage dsl.Val[dsl.U32]) dsl.Val[dsl.U32] { return stage }

// base is a stage's first 16-byte element in Data.
func (c *Consumer) base(stage dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
	return stage.MulC(c.r.stageBytes / 16)
}

// drain computes where before the wait, and hands it to use.
func (c *Consumer) drain(where func(stage dsl.Val[dsl.U32]) dsl.Val[dsl.U32], use func(at dsl.Val[dsl.U32])) {
	r, k := c.r, c.r.k
	stage := c.next.stage.Get().Named("stage")
	at := where(stage)
	waits := r.trace.draining()
	c.wait(stage, c.next.parity.Get())
	waits.landed()
	use(at)
	waits.drained(stage)
	k.SyncWarp()
	k.If(c.releases(), func() { r.empty.Arrive(stage) })
	c.next.advance()
}

// wait waits for the chunk in a stage.
func (c *Consumer) wait(stage, parity dsl.Val[dsl.U32]) {
	c.r.k.Helper()
	c.r.watch.MBar(c.r.k, c.r.full, stage, parity, stage, "waits for a chunk in stage %d of the ring")
}

// releases is whether this lane is the one that releases its warp's stages.
func (c *Consumer) releases() dsl.Pred {
	k := c.r.k
	if c.Lost == 0 {
		return k.Lane().EqC(0)
	}
	return k.Lane().EqC(0).And(k.CTA().EqC(c.Lost - 1).And(k.Warp().EqC(0)).Not())
}

// Region is the shared-memory region of that name; asking for one that the plan
// does not have is a bug of the caller.
func (p *Plan) Region(name string) Region {
	for _, r := range p.Shared {
		if r.Name == name {
			return r
		}
	}
	panic("BUG: the plan has no region " + name)
}
