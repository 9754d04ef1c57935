package interp

import (
	"fmt"
	"math/rand/v2"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Options of a run. The zero value runs the kernel's own grid with seed 0 and
// every check.
type Options struct {
	Grid     int               // CTAs; 0: the kernel's Grid, or 1
	Seed     uint64            // chooses the schedule
	Params   map[string]uint64 // bits of every scalar parameter
	MaxSteps int64             // warp instructions before the run counts as hung; 0: 4·10⁹
	NoRaces  bool              // leave out happens-before checks and weak memory
	Policy   Policy            // how the schedule is made; the zero value picks by seed
	Length   int64             // steps of the run that PolicyPCT counts on; 0: 65536
	Host     Host              // of buffers shared with the host during the run; nil: it does nothing
	Ended    func()            // is called at the end of each execution of Explore; nil: nothing is
	Watch    Watcher           // hears of copies, stores and tagged waits; nil: nobody does

	// Dependent makes the run a programmatic dependent launch behind the run before on
	// the same Memory: what that accessed is settled only where griddep.wait has been
	// passed. The kernels of both must have such an op.
	Dependent bool
}

func (o *Options) races() bool { return !o.NoRaces }

// Result of a complete run.
type Result struct {
	Steps int64           // warp instructions executed
	Ops   map[ir.Op]int64 // by op; control transfers are not listed
	Ran   []int64         // how often each instruction was executed, in the order of ir.Kernel.Instrs
	CTAs  []CTAResult
}

// CTAResult is what one CTA did.
type CTAResult struct {
	Steps    int64
	Copies   int64         // bulk copies completed
	Bytes    int64         // bytes they moved
	MBarrier []MBarrierUse // by buffer and index
}

// MBarrierUse is one mbarrier's history: how often its ring slot went round.
type MBarrierUse struct {
	Buf    string
	Index  int
	Phases int   // completed
	Bytes  int64 // transaction bytes completed
}

// machine is the state of one run.
type machine struct {
	p        *Program
	o        Options
	rng      *rand.Rand
	global   []*region // by root; nil for shared roots
	ctas     []*cta
	clusters []barrier // of the clusters
	warps    []*warp
	comps    int32 // clock components a CTA: warps, then mbarriers
	places   []compPlace
	warpsPer int32
	// the number in a CTA of the component of its first warp's cp.asyncs, the last ones of all
	firstCopy int32
	sched     scheduler
	flight    []*flight
	params    map[*ir.Param]uint64
	since     int64 // steps of the launches before this one
	steps     int64
	limit     int64
	live      int
	fault     *Fault
	counts    []int64
	sc        stamp // fence.sc of gpu and wider scope
	unif      uniformLog
	turnAt    int64     // the step from which the host has its turn
	void      bool      // a wait was abandoned
	ex        *explorer // chooses instead of the scheduler; nil: none

	parts   int   // of a clock: one a CTA, the prior's where there is one, and the host's
	prior   int32 // the part of the launches that may not have ended; −1: none
	host    int32 // the host's part; −1: none
	settled stamp // what griddep.wait tells
	waited  bool  // somebody has come to griddep.wait
	early   bool  // dependents were let start before that

	hostEpoch uint32 // of the host's last write
}

// cta is the state of one CTA.
type cta struct {
	id      int32
	warps   []*warp
	shared  []*region // by root; nil for global roots
	mbars   []mbar
	bars    [16]barrier
	logs    []groupLog // of the warpgroups
	nreg    int        // registers a thread that warps have given up
	wanting []*warp    // warps that want such
	sc      stamp      // fence.sc executed in this CTA
	live    int
	steps   int64
	copies  int64
	bytes   int64
	unif    uniformLog
}

// warp is the state of one warp.
type warp struct {
	regs   []row
	pc     int32
	mask   uint32
	frames []frame
	cta    *cta
	id     int32 // in the grid: its place in machine.warps
	wi     int32 // in its CTA
	comp   int32 // clock component
	state  warpState
	runPos int32
	wait   waiting
	clk    warpClock
	group  *groupState // nil: it has no wgmmas
	copies copyState   // its cp.asyncs
	nreg   int         // registers a thread; 0: what it began with
	regset []record    // its setmaxnregs
}

type warpState uint8

const (
	running warpState = iota
	blocked
	exited
)

// frame is an open If or For.
type frame struct {
	mask uint32 // lanes active outside
	rest uint32 // if: lanes of the else branch
	iter uint32 // for: iterations begun
}

// Run executes the program once over a grid. The error is a *Fault when the
// kernel is at fault, and another when mem or o do not fit the kernel.
func (p *Program) Run(mem *Memory, o Options) (*Result, error) {
	m, err := p.newMachine(mem, o)
	if err != nil {
		return nil, err
	}
	m.run()
	mem.steps += m.steps
	m.checkWaited()
	if m.fault != nil {
		mem.prior = nil
		m.fault.finish(m)
		return nil, m.fault
	}
	m.leave(mem)
	return m.result(), nil
}

func (p *Program) newMachine(mem *Memory, o Options) (*machine, error) {
	k := p.kernel
	if o.Grid == 0 {
		o.Grid = max(k.Grid, 1)
	}
	if o.Grid < 0 || k.Grid != 0 && o.Grid != k.Grid {
		return nil, fmt.Errorf("kernel %s is run over %d CTAs, want %d", k.Name, o.Grid, k.Grid)
	}
	m := &machine{p: p, o: o, since: mem.steps, rng: rand.New(rand.NewPCG(o.Seed, 0x6d6b67656e)),
		params: map[*ir.Param]uint64{}, global: make([]*region, len(p.roots)), counts: make([]int64, len(p.code)),
		limit: o.MaxSteps}
	if m.limit == 0 {
		m.limit = 4e9
	}
	m.comps, m.parts, m.prior, m.host = int32(k.Warps+p.mbars), o.Grid, -1, -1
	if len(p.groupVars) > 0 {
		m.comps += int32(k.Warps)
	}
	if m.firstCopy = m.comps; p.copies {
		m.comps += int32(k.Warps)
	}
	m.clusters = make([]barrier, o.Grid/max(k.ClusterSize, 1)+1)
	if o.Dependent && mem.prior != nil && o.races() {
		m.parts, m.prior = o.Grid+1, int32(o.Grid)
	}
	if o.Host != nil && o.races() {
		m.host = int32(m.parts)
		m.parts++
	}
	if n := int64(m.comps) * int64(m.parts); n > maxComp {
		return nil, fmt.Errorf("kernel %s: %d CTAs of %d warps and %d mbarriers need %d clock components, there are %d",
			k.Name, o.Grid, k.Warps, p.mbars, n, maxComp)
	}
	for _, pa := range k.Params {
		v, ok := o.Params[pa.Name]
		if !ok {
			return nil, fmt.Errorf("kernel %s: parameter %s has no value", k.Name, pa.Name)
		}
		if pa.Type.Size() == 4 {
			v = uint64(uint32(v))
		}
		m.params[pa] = v
	}
	if err := m.bindGlobals(mem); err != nil {
		return nil, err
	}
	m.warpsPer = int32(k.Warps)
	for i := range m.comps * int32(m.parts) {
		m.places = append(m.places, compPlace{i / m.comps, i % m.comps})
	}
	for c := range o.Grid {
		m.addCTA(int32(c))
	}
	m.sched.init(m)
	m.meetPrior(mem.prior)
	return m, nil
}

func (m *machine) addCTA(id int32) {
	k := m.p.kernel
	c := &cta{id: id, live: k.Warps, shared: make([]*region, len(m.p.roots)), mbars: make([]mbar, m.p.mbars),
		logs: make([]groupLog, k.Warps/4)}
	for i := range m.p.roots {
		info := &m.p.roots[i]
		if info.buf.Space != ir.Shared || info.mbar0 >= 0 {
			continue
		}
		rg := newRegion(info, id, make([]byte, info.size), m.o.races(), false)
		rg.valid = make([]uint64, (info.size+63)/64)
		c.shared[i] = rg
	}
	for i := range m.p.roots {
		info := &m.p.roots[i]
		if info.mbar0 < 0 {
			continue
		}
		for j := range info.buf.Len {
			c.mbars[info.mbar0+int32(j)].name(info.buf, int(j))
		}
	}
	regs := make([]row, k.Warps*m.p.rows)
	for wi := range k.Warps {
		w := &warp{regs: regs[wi*m.p.rows:][:m.p.rows], mask: fullMask, cta: c, id: int32(len(m.warps)), wi: int32(wi)}
		w.comp = id*m.comps + int32(wi)
		w.clk.init()
		c.warps = append(c.warps, w)
		m.warps = append(m.warps, w)
	}
	m.ctas = append(m.ctas, c)
	m.live += k.Warps
}

// run steps until every warp has left or a fault is found.
func (m *machine) run() {
	for m.live > 0 && m.fault == nil {
		w, burst := m.sched.next(m)
		if m.fault != nil {
			return
		}
		if w == nil && m.turn(true) {
			continue
		}
		if w == nil {
			m.deadlock()
			return
		}
		m.burst(w, burst)
		if m.o.Host != nil && m.steps >= m.turnAt && m.fault == nil {
			m.turn(false)
		}
	}
}

func (m *machine) burst(w *warp, n int) {
	code := m.p.code
	for ; n > 0 && w.state == running; n-- {
		in := &code[w.pc]
		w.pc++
		m.steps++
		m.counts[in.pc]++
		in.fn(m, w, in)
		if m.fault != nil {
			return
		}
	}
	if m.steps > m.limit {
		m.livelock()
	}
}

func (m *machine) result() *Result {
	r := &Result{Steps: m.steps, Ops: map[ir.Op]int64{}}
	for i, n := range m.counts {
		op := m.p.code[i].op
		if op == ir.OpInvalid {
			continue
		}
		r.Ran = append(r.Ran, n)
		if n > 0 {
			r.Ops[op] += n
		}
	}
	for _, c := range m.ctas {
		cr := CTAResult{Steps: c.steps, Copies: c.copies, Bytes: c.bytes}
		for i := range c.mbars {
			b := &c.mbars[i]
			cr.MBarrier = append(cr.MBarrier, MBarrierUse{Buf: b.buf.Name, Index: b.index, Phases: int(b.phase), Bytes: b.total})
		}
		r.CTAs = append(r.CTAs, cr)
	}
	return r
}

// in is the row of an argument.
func (m *machine) in(w *warp, o operand) *row {
	if o >= 0 {
		return &w.regs[o]
	}
	return &m.p.consts[^o]
}

// in2 is the row of the high half of a b128 argument.
func (m *machine) in2(w *warp, o operand) *row {
	if o >= 0 {
		return &w.regs[o+1]
	}
	return &m.p.consts[^o+1]
}
