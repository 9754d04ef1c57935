package mutate_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/stretchr/testify/require"
)

// kernel is a hand-made kernel with one of each kind of synchronisation.
func kernel() *ir.Kernel {
	x := &ir.Buf{Name: "x", Elem: ir.U32, Len: 64, Align: 4}
	bar := &ir.Buf{ID: 1, Name: "bar", Space: ir.Shared, Elem: ir.MBar, Len: 1, Align: 8}
	k := &ir.Kernel{Name: "k", Warps: 2, SharedLimit: 64, SharedBytes: 8, Bufs: []*ir.Buf{x, bar}}
	u := func(n int64) *ir.Value { return ir.ConstInt(ir.U32, n) }
	val := func(t ir.Type) *ir.Value {
		k.NumValues++
		return &ir.Value{ID: k.NumValues - 1, Type: t}
	}
	in := func(op ir.Op, args []*ir.Value, mem []ir.Addr, a ir.Attr, res ...*ir.Value) *ir.Instr {
		s := &ir.Instr{Pos: ir.Pos{Line: op.String()}, Op: op, T: ir.U32, Args: args, Mem: mem, Attr: a, Res: res}
		for _, r := range res {
			r.Def = s
		}
		return s
	}
	atX, atBar := []ir.Addr{{Buf: x}}, []ir.Addr{{Buf: bar}}
	lane, first, old := val(ir.U32), val(ir.Pred), val(ir.U32)
	k.Body = &ir.Block{Stmts: []ir.Stmt{
		in(ir.OpMBarInit, []*ir.Value{u(4)}, atBar, ir.Attr{}),
		in(ir.OpBarCTA, nil, nil, ir.Attr{}),
		in(ir.OpLane, nil, nil, ir.Attr{}, lane),
		in(ir.OpEq, []*ir.Value{lane, u(0)}, nil, ir.Attr{}, first),
		&ir.Region{Name: "sync", Body: &ir.Block{Stmts: []ir.Stmt{
			&ir.If{Cond: first, Then: &ir.Block{Stmts: []ir.Stmt{
				in(ir.OpAtomAdd, []*ir.Value{u(1)}, atX, ir.Attr{Order: ir.AcqRel, Scope: ir.GPU}, old),
			}}},
			in(ir.OpFenceProxy, nil, nil, ir.Attr{}),
			in(ir.OpWaitMem, []*ir.Value{u(3)}, atX, ir.Attr{Order: ir.Acquire, Scope: ir.GPU, Cond: ir.CondGE}),
		}}},
		in(ir.OpMBarExpect, []*ir.Value{u(32)}, atBar, ir.Attr{}),
		in(ir.OpWaitMBar, []*ir.Value{u(0)}, atBar, ir.Attr{}),
		in(ir.OpBarSync, nil, nil, ir.Attr{Imm: 1, N: 64}),
	}}
	return k
}

func TestListNamesEveryMutation(t *testing.T) {
	var names []string
	for _, m := range mutate.List(kernel()) {
		names = append(names, m.String())
	}
	require.Equal(t, []string{
		"remove mbar.init @bar at mbar.init",
		"count mbar.init @bar: one arrival more at mbar.init",
		"count mbar.init @bar: one arrival less at mbar.init",
		"remove bar.cta at bar.cta",
		"earlier bar.cta at bar.cta",
		"later bar.cta at bar.cta",
		`remove atom.add @x in "sync" at atom.add`,
		`weaken atom.add @x: acq_rel to relaxed in "sync" at atom.add`,
		`weaken atom.add @x: acq_rel to acquire in "sync" at atom.add`,
		`weaken atom.add @x: acq_rel to release in "sync" at atom.add`,
		`weaken atom.add @x: scope gpu to cta in "sync" at atom.add`,
		`later atom.add @x in "sync" at atom.add`,
		`remove fence.proxy.async in "sync" at fence.proxy.async`,
		`weaken fence.proxy.async: global memory only in "sync" at fence.proxy.async`,
		`weaken fence.proxy.async: shared memory only in "sync" at fence.proxy.async`,
		`earlier fence.proxy.async in "sync" at fence.proxy.async`,
		`later fence.proxy.async in "sync" at fence.proxy.async`,
		`remove wait @x in "sync" at wait`,
		`weaken wait @x: acquire to relaxed in "sync" at wait`,
		`weaken wait @x: scope gpu to cta in "sync" at wait`,
		`count wait @x: one less in "sync" at wait`,
		`earlier wait @x in "sync" at wait`,
		"remove mbar.expect @bar at mbar.expect",
		"bytes mbar.expect @bar: 16 bytes more at mbar.expect",
		"bytes mbar.expect @bar: 16 bytes less at mbar.expect",
		"earlier mbar.expect @bar at mbar.expect",
		"later mbar.expect @bar at mbar.expect",
		"remove wait.mbar @bar at wait.mbar",
		"parity wait.mbar @bar: the other parity at wait.mbar",
		"earlier wait.mbar @bar at wait.mbar",
		"later wait.mbar @bar at wait.mbar",
		"remove bar.sync at bar.sync",
		"count bar.sync: one warp more at bar.sync",
		"count bar.sync: one warp less at bar.sync",
		"earlier bar.sync at bar.sync",
	}, names)
}

// broken applies the only mutation of that name and lists the ops that remain.
func broken(t *testing.T, k *ir.Kernel, name string) (*ir.Kernel, []string) {
	t.Helper()
	for _, m := range mutate.List(k) {
		if m.Name != name {
			continue
		}
		b, err := mutate.Apply(k, m)
		require.NoError(t, err)
		var ops []string
		b.Instrs(func(in *ir.Instr) { ops = append(ops, in.Op.String()) })
		return b, ops
	}
	t.Fatalf("no mutation %s", name)
	return nil, nil
}

func TestApplyLeavesTheOriginalAlone(t *testing.T) {
	k, same := kernel(), kernel()
	for _, m := range mutate.List(k) {
		b, err := mutate.Apply(k, m)
		require.NoError(t, err)
		require.NotEqual(t, same.String(), b.String(), "%s changes nothing", m)
	}
	require.Equal(t, same.String(), k.String())
}

func TestApplyOfTwoBreaksBothWhicheverComesFirst(t *testing.T) {
	k := kernel()
	named := map[string]mutate.Mutation{}
	for _, m := range mutate.List(k) {
		named[m.Name] = m
	}
	fence, wait := named["remove fence.proxy.async"], named["count wait @x: one less"]
	for _, ms := range [][]mutate.Mutation{{fence, wait}, {wait, fence}} {
		both, err := mutate.Apply(k, ms...)
		require.NoError(t, err)
		ops := map[string]int{}
		both.Instrs(func(in *ir.Instr) { ops[in.Op.String()]++ })
		require.Equal(t, []int{0, 1, 1}, []int{ops["fence.proxy.async"], ops["sub"], ops["wait"]})
	}
	_, err := mutate.Apply(k, named["remove wait @x"], wait)
	require.ErrorContains(t, err, "another mutation is of the same instruction")
	require.Equal(t, kernel().String(), k.String())
}

func TestRemovedResultsBecomeZero(t *testing.T) {
	k := kernel()
	_, ops := broken(t, k, "remove atom.add @x")
	require.NotContains(t, ops, "atom.add")
}

func TestMovesTakeTheirArithmeticAlong(t *testing.T) {
	k := kernel()
	_, ops := broken(t, k, "later bar.cta") // behind the region, over lane and eq
	require.Equal(t, []string{"mbar.init", "lane", "eq", "atom.add", "fence.proxy.async", "wait", "bar.cta", "mbar.expect",
		"wait.mbar", "bar.sync"}, ops)
	_, ops = broken(t, k, "later atom.add @x") // with its If
	require.Equal(t, []string{"mbar.init", "bar.cta", "lane", "eq", "fence.proxy.async", "atom.add"}, ops[:6])
	_, ops = broken(t, k, "earlier mbar.expect @bar") // before the whole region
	require.Equal(t, []string{"mbar.init", "bar.cta", "lane", "eq", "mbar.expect", "atom.add"}, ops[:6])
}

func TestCountsAreShifted(t *testing.T) {
	b, _ := broken(t, kernel(), "bytes mbar.expect @bar: 16 bytes less")
	found := false
	b.Instrs(func(in *ir.Instr) {
		if in.Op == ir.OpMBarExpect {
			add := in.Args[0].Def
			require.Equal(t, ir.OpAdd, add.Op)
			require.Equal(t, int32(-16), int32(add.Args[1].Bits))
			found = true
		}
	})
	require.True(t, found)
}

func TestApplyOfAForeignMutation(t *testing.T) {
	muts := mutate.List(kernel())
	empty := &ir.Kernel{Name: "empty", Body: &ir.Block{}}
	_, err := mutate.Apply(empty, muts[len(muts)-1])
	require.ErrorContains(t, err, "kernel empty has no instruction")
}

func TestKeysSayWhereAnInstructionIsWithoutLines(t *testing.T) {
	keys := map[string]string{}
	for _, m := range mutate.List(kernel()) {
		keys[m.Name] = m.Key.String()
	}
	require.Equal(t, "mbar.init @bar; bar.cta; atom.add.acq_rel @x", keys["remove bar.cta"])
	require.Equal(t, "sync: fence.proxy.async; wait.acquire @x; mbar.expect @bar", keys["remove wait @x"])
	require.Equal(t, "wait.mbar @bar; bar.sync; ", keys["remove bar.sync"])
}

func TestExcusesAreCitedNeededAndEnough(t *testing.T) {
	var gone []mutate.Mutation
	for _, m := range mutate.List(kernel()) {
		if m.Class == mutate.Remove && m.Key.Op != "mbar.init @bar" {
			gone = append(gone, m)
		}
	}
	waits := mutate.Excuse{Op: "wait.acquire @x | wait.mbar @bar", Classes: mutate.Gone,
		Front: "fence.proxy.async | mbar.*", Why: "nobody reads", Rule: mutate.Conflict}
	both := mutate.Excuses{waits}
	survivors := []mutate.Mutation{gone[3], gone[5]}
	require.NoError(t, both.Check(survivors, both))
	require.ErrorContains(t, both.Check(gone[:1], nil),
		"nothing reports remove bar.cta at bar.cta (mbar.init @bar; bar.cta; atom.add.acq_rel @x), and no excuse names it")
	require.ErrorContains(t, both.Check(nil, both),
		"no mutant survives for the excuse of [remove earlier later] wait.acquire @x")
	elsewhere := waits
	elsewhere.Front = "fence.proxy.async.shared"
	require.ErrorContains(t, mutate.Excuses{elsewhere}.Check(survivors, nil), "nothing reports remove wait @x")
	uncited := waits
	uncited.Rule = "it seems so"
	require.ErrorContains(t, mutate.Excuses{uncited}.Check(nil, nil), `found rule "it seems so"`)
}
