package pipeline

import "github.com/mkgen/mkgen/dsl"

// TileRing is the ring of a kernel that multiplies many tokens: stages that a producer warp fills through tensor maps
// and consumer warpgroups multiply from by wgmma. In a cluster some of a stage's copies go to all its CTAs. So a stage
// is free when the consumers of every CTA of the cluster have released it.
//
// Consumers read stages in the async proxy only, so nothing is fenced on the way back to the copies.
type TileRing struct {
	Data dsl.Buf[dsl.B128] // stages, StageBytes/16 elements each

	k           *dsl.Kernel
	shape       TileStages
	full, empty dsl.MBars
	watch       *Watch
}

// TileStages is a TileRing's shape.
type TileStages struct {
	Stages  int
	Bytes   int // of a stage, a multiple of 1024
	Warps   int // consumer warps of a CTA
	Cluster int // CTAs of a cluster, 1 or 2

	// Producers is the number of producer warps, behind those of the consumers, where they gather (TileProducer.Gather):
	// all of them run the producer's role, in which the first alone starts what one warp starts. 0: one, which gathers
	// nothing.
	Producers int
}

// gatherLag is how many stages a producer has under way beside the one that it gathers, where the ring has two more:
// what consumers wait for is a stage behind one that they have not released.
const gatherLag = 2

// gatherBarrier is the named barrier of the warps that gather.
const gatherBarrier = 2

// lag is gatherLag, or less in a short ring.
func (s TileStages) lag() int { return min(gatherLag, s.Stages-2) }

// NewTileRing declares the ring's shared memory. watch, unless nil, makes its waits end when the launch is given up, by
// the second wish only: what hangs at first is a barrier of the grid, and once that lets go the ring runs on in step.
// Out of step a CTA's copies could come a lap too early for another one's stages.
func NewTileRing(k *dsl.Kernel, s TileStages, watch *Watch) *TileRing {
	k.Require(s.Stages >= 2 && s.Bytes > 0 && s.Bytes%1024 == 0,
		"tile ring: %d stages of %d bytes, want 2 or more of a multiple of 1024", s.Stages, s.Bytes)
	k.Require(s.Cluster == 1 || s.Cluster == 2, "tile ring: clusters of %d CTAs, want 1 or 2", s.Cluster)
	return &TileRing{
		k: k, shape: s, watch: watch,
		Data: dsl.Shared[dsl.B128](k, "tiles", s.Stages*s.Bytes/16, dsl.Align(1024),
			dsl.Doc("stages of tiles of weights and activations")),
		full:  dsl.NewMBars(k, RegionTilesFull, s.Stages, dsl.Doc("a stage's copies have landed")),
		empty: dsl.NewMBars(k, "tiles_empty", s.Stages, dsl.Doc("a stage has been multiplied, in every CTA of the cluster")),
	}
}

// Init initialises the mbarriers in one thread. A barrier of the cluster must follow.
func (r *TileRing) Init() {
	k := r.k
	k.For(k.U32(0), k.U32(r.shape.Stages), func(i dsl.Val[dsl.U32]) {
		r.full.Init(i, k.U32(1))
		r.empty.Init(i, k.U32(r.shape.Warps*r.shape.Cluster))
	}, dsl.Unroll(1))
	k.FenceMBarInit()
}

// TileProducer is a producer warp's position.
type TileProducer struct {
	r     *TileRing
	next  cursor
	first *dsl.Pred         // whether this is the first of the warps that gather; nil: there is one producer warp
	kept  *dsl.Var[dsl.U32] // stages that are gathered and not announced; nil: none ever are
}

// Producer starts a producer warp at the first stage, at the top of its role.
func (r *TileRing) Producer() *TileProducer {
	p := &TileProducer{r: r, next: newCursor(r.k, r.shape.Stages, 0, 1, "fill")}
	if r.shape.Producers > 0 {
		p.kept = dsl.NewVar(r.k.U32(0), "kept")
		first := r.k.Warp().EqC(r.shape.Warps)
		p.first = &first
	}
	return p
}

// Until polls until word i of flags is want.
func (p *TileProducer) Until(flags dsl.Buf[dsl.U32], i, want dsl.Val[dsl.U32], what string) {
	p.r.watch.Until(p.r.k, flags, i, dsl.EQ, want, what, dsl.Acquire(dsl.GPUScope))
}

// alone runs body in the first producer warp.
func (p *TileProducer) alone(body func()) {
	if p.first == nil {
		body()
		return
	}
	p.r.k.If(*p.first, body)
}

// TileStage is a stage being filled, or read.
type TileStage struct {
	r     *TileRing
	index dsl.Val[dsl.U32]
}

// Base is the stage's first byte as an element of Data.
func (s TileStage) Base() dsl.Val[dsl.U32] { return s.index.MulC(s.r.shape.Bytes / 16) }

// Copy starts the copy of a box to byte at (a multiple of 128) of the stage; with a mask to every CTA of the cluster
// that is in it.
func (s TileStage) Copy(at dsl.Val[dsl.U32], m dsl.TensorMap, coordinates [3]dsl.Val[dsl.I32], mask uint16) {
	r := s.r
	dsl.TensorCopy(r.Data, s.index.MulC(r.shape.Bytes/16).Add(at.DivC(16)), m, coordinates, r.full, s.index, mask)
}

// Fill waits for the next stage to be free, announces bytes, and calls copy in one lane, which starts copies of n
// bytes into this CTA's stage, those of other CTAs with a mask included.
func (p *TileProducer) Fill(bytes int, copy func(s TileStage)) {
	r, k := p.r, p.r.k
	k.Note("tiles: wait for a free stage, announce the bytes, start the copies")
	p.alone(func() {
		stage := p.free()
		k.If(k.Elect(), func() {
			r.full.ArriveExpect(stage, k.U32(bytes))
			copy(TileStage{r, stage})
		})
		k.SyncWarp()
	})
	p.next.advance()
}

// FillByLanes is Fill with copy in the warp's first lanes.
func (p *TileProducer) FillByLanes(bytes, lanes int, copy func(s TileStage)) {
	r, k := p.r, p.r.k
	p.alone(func() {
		stage := p.free()
		k.If(k.Elect(), func() { r.full.ArriveExpect(stage, k.U32(bytes)) })
		k.SyncWarp()
		k.If(k.Lane().LtC(lanes), func() { copy(TileStage{r, stage}) })
		k.SyncWarp()
	})
	p.next.advance()
}

// Gather fills this CTA's next stage with what copy, in all lanes of all producer warps, starts CopyAsyncs of, to
// elements of data from base on. The stage is announced when they have ended: a later Gather or Announce waits.
func (p *TileProducer) Gather(copy func(base dsl.Val[dsl.U32], data dsl.Buf[dsl.B128])) {
	k, lag := p.r.k, p.r.shape.lag()
	copy(TileStage{p.r, p.free()}.Base(), p.r.Data)
	k.CopyCommit()
	kept := p.kept.Get()
	k.IfElse(kept.EqC(lag), func() {
		p.ended(lag)
		p.arrive(lag)
	}, func() { p.kept.Set(kept.AddC(1)) })
	p.next.advance()
}

// Announce announces all stages that are gathered: behind the last Gather, before another Fill, and before the end.
func (p *TileProducer) Announce() {
	k := p.r.k
	k.If(p.kept.Get().NeC(0), func() {
		p.ended(0)
		for n := p.r.shape.lag(); n > 0; n-- {
			k.If(p.kept.Get().GeC(n), func() { p.arrive(n) })
		}
	})
	p.kept.Set(k.U32(0))
}

// ended waits, in all producer warps, until at most but stages are still under way. The fence that wgmma's reads need
// is the consumers': ptxas puts a fence of the CTA in front of it, which would wait for the copies under way, too.
func (p *TileProducer) ended(but int) {
	p.r.k.CopyWait(but)
	p.Meet()
}

// Meet makes the producer warps that gather wait for each other: nothing where there is one.
func (p *TileProducer) Meet() {
	if n := p.r.shape.Producers; n > 0 {
		p.r.k.NamedBarrier(gatherBarrier, n)
	}
}

// arrive announces the stage n before the next one.
func (p *TileProducer) arrive(n int) {
	r, k := p.r, p.r.k
	stage := p.next.stage.Get().AddC(r.shape.Stages - n).RemC(r.shape.Stages)
	p.alone(func() { k.If(k.Elect(), func() { r.full.Arrive(stage) }) })
}

// free waits for the next stage to be free.
func (p *TileProducer) free() dsl.Val[dsl.U32] {
	stage := p.next.stage.Get().Named("stage")
	p.r.watch.patient(p.r.k, p.r.empty, stage, p.next.parity.Get(), stage, "waits for stage %d of the tiles to be free")
	return stage
}

// At is the stage that the next Fill fills.
func (p *TileProducer) At() dsl.Val[dsl.U32] { return p.next.stage.Get() }

// Add calls copy in one lane for the stage that was filled n behind first (At before), to start what Fill has announced
// and not started.
func (p *TileProducer) Add(first, n dsl.Val[dsl.U32], copy func(s TileStage)) {
	k := p.r.k
	p.alone(func() {
		k.If(k.Elect(), func() { copy(TileStage{p.r, first.Add(n).RemC(p.r.shape.Stages).Named("stage")}) })
		k.SyncWarp()
	})
}

// TileConsumer is a consumer warp's position.
type TileConsumer struct {
	Turn *Turn // of its warpgroup, where two take turns; nil: none do

	r    *TileRing
	next cursor
}

// Consumer starts a consumer warp at the first stage, at the top of its role.
func (r *TileRing) Consumer() *TileConsumer {
	return &TileConsumer{r: r, next: newCursor(r.k, r.shape.Stages, 0, 0, "drain")}
}

// Steps calls use for n stages (at least 1), as they arrive, with the stage's first byte as an element of Data. use
// starts wgmmas on the stage, commits them as one group, and leaves that alone under way; so a stage is released behind
// the next one's, and the last one when its group has ended.
func (c *TileConsumer) Steps(n int, use func(base dsl.Val[dsl.U32])) {
	r, k := c.r, c.r.k
	k.For(k.U32(0), k.U32(n), func(i dsl.Val[dsl.U32]) {
		stage := c.next.stage.Get().Named("stage")
		r.watch.patient(k, r.full, stage, c.next.parity.Get(), stage, "waits for tiles in stage %d")
		use(stage.MulC(r.shape.Bytes / 16))
		k.WGMMACommit()
		k.WGMMAWait(1)
		k.If(i.NeC(0), func() { c.release(stage) })
		c.next.advance()
	}, dsl.Unroll(1))
	k.WGMMAWait(0)
	c.release(c.next.stage.Get())
}

// Next waits for the next stage, which is there until Release. what is the wait's name, of the stage's number.
func (c *TileConsumer) Next(what string) TileStage {
	r, k := c.r, c.r.k
	stage := c.next.stage.Get().Named("stage")
	r.watch.patient(k, r.full, stage, c.next.parity.Get(), stage, what)
	c.next.advance()
	return TileStage{r, stage}
}

// Fence orders what gathers brought into the stages waited for before wgmmas that read it; nothing where none gather.
func (c *TileConsumer) Fence() {
	if c.r.shape.Producers > 0 {
		c.r.k.FenceProxyAsyncShared()
	}
}

// release releases the stage before one.
func (c *TileConsumer) release(next dsl.Val[dsl.U32]) {
	c.Release(TileStage{c.r, next.AddC(c.r.shape.Stages - 1).RemC(c.r.shape.Stages)})
}

// Release releases a stage for this warp, in every CTA of the cluster.
func (c *TileConsumer) Release(s TileStage) {
	r, k, stage := c.r, c.r.k, s.index
	if r.shape.Cluster == 1 {
		k.If(k.Lane().EqC(0), func() { r.empty.Arrive(stage) })
		return
	}
	k.If(k.Lane().LtC(r.shape.Cluster), func() { r.empty.ArriveAt(stage, k.Lane()) })
}
