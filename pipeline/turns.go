package pipeline

import "github.com/mkgen/mkgen/dsl"

// Turns are how the two consumer warpgroups of a CTA start wgmmas in turn: while the products of one run, the other
// works on its sums, and finds the tensor cores free when it has. Turns order time alone: nothing may be read behind
// one that was not there before.
type Turns struct {
	k     *dsl.Kernel
	bars  dsl.MBars // a warpgroup's turn has come
	watch *Watch
}

// TurnGroups is the number of warpgroups that take turns.
const TurnGroups = 2

// NewTurns declares the mbarriers. watch is as NewTileRing's.
func NewTurns(k *dsl.Kernel, watch *Watch) *Turns {
	return &Turns{k: k, watch: watch,
		bars: dsl.NewMBars(k, "turns", TurnGroups, dsl.Doc("the other warpgroup has started its products"))}
}

// Init initialises the mbarriers in one thread, in front of TileRing.Init, whose fence is for these, too. Nil turns
// have none.
func (t *Turns) Init() {
	if t == nil {
		return
	}
	t.k.For(t.k.U32(0), t.k.U32(TurnGroups), func(i dsl.Val[dsl.U32]) { t.bars.Init(i, t.k.U32(dsl.WarpsPerGroup)) },
		dsl.Unroll(1))
}

// Turn is a warp's place in the turns of its warpgroup; a nil one waits for nobody.
type Turn struct {
	t      *Turns
	group  dsl.Val[dsl.U32]
	parity *dsl.Var[dsl.U32]
}

// Start is at the top of the role of two consumer warpgroups, warps 0 to 7, of which the first has the first turn.
//
// A fresh mbarrier counts as having completed the phase before its first, of parity 1: so the first warpgroup does not
// wait for its first turn.
func (t *Turns) Start() *Turn {
	if t == nil {
		return nil
	}
	group := t.k.Warp().DivC(dsl.WarpsPerGroup).Named("group")
	return &Turn{t: t, group: group, parity: dsl.NewVar(group.XorC(1), "turn")}
}

// Take waits for the warpgroup's turn: until the other one has passed its own on as often as this one has taken one
// before, and the second warpgroup once more.
func (t *Turn) Take() {
	if t == nil {
		return
	}
	t.t.watch.patient(t.t.k, t.t.bars, t.group, t.parity.Get(), t.group, "waits for the turn of warpgroup %d")
	t.parity.Set(t.parity.Get().XorC(1))
}

// Pass gives the other warpgroup its turn, once all warps have come here.
func (t *Turn) Pass() {
	if t == nil {
		return
	}
	k := t.t.k
	k.If(k.Lane().EqC(0), func() { t.t.bars.Arrive(t.group.XorC(1)) })
}
