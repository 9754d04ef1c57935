package pipeline

import "github.com/mkgen/mkgen/dsl"

// Landing is one mbarrier that bulk copies beside the ring complete on: what a
// phase must read behind its sync and the ring therefore does not carry. A
// phase of it is one set of copies; all consumer warps take part in every phase.
type Landing struct {
	k      *dsl.Kernel
	bars   dsl.MBars
	parity *dsl.Var[dsl.U32] // of the next phase to wait for
	watch  *Watch
}

// LandingBytes is the size of its mbarrier in shared memory.
const LandingBytes = mbarrierBytes

// NewLanding declares the mbarrier. watch may be nil.
func NewLanding(k *dsl.Kernel, name string, watch *Watch, opts ...dsl.BufOpt) *Landing {
	return &Landing{k: k, watch: watch,
		bars: dsl.NewMBars(k, name, 1, append(opts, dsl.Doc("copies beside the ring have landed"))...)}
}

// Init initialises the mbarrier. One thread of the CTA runs it, before what makes
// the ring's mbarriers visible (Ring.Init, which fences).
func (l *Landing) Init() { l.bars.Init(dsl.At(0), l.k.U32(1)) }

// Start declares what a consumer warp keeps; it runs at the top of the consumers'
// role.
func (l *Landing) Start() { l.parity = dsl.NewVar(l.k.U32(0), "landing_parity") }

// Expect announces a phase's bytes (a multiple of 16, more than 0): one thread does
// it, before the copies start. What lay where they go has been read before a
// barrier of the consumer warps; the fence of the threads that copy orders these
// reads before the copies.
func (l *Landing) Expect(bytes dsl.Val[dsl.U32]) { l.bars.ArriveExpect(dsl.At(0), bytes) }

// Copy starts a copy of the announced phase, see dsl.BulkCopy.
func (l *Landing) Copy(dst dsl.Buf[dsl.B128], di dsl.Index, src dsl.Buf[dsl.B128], si dsl.Index,
	bytes dsl.Val[dsl.U32]) {
	dsl.BulkCopy(dst, di, src, si, bytes, l.bars, dsl.At(0))
}

// Wait waits for a phase's copies, in every consumer warp.
func (l *Landing) Wait() {
	l.watch.landed(l.k, l.bars, dsl.At(0), l.parity.Get(), l.k.U32(0))
	l.parity.Set(l.parity.Get().XorC(1))
}
