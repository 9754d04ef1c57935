package bounds_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir/bounds"
	"github.com/stretchr/testify/require"
)

type (
	u32 = dsl.Val[dsl.U32]
	buf = dsl.Buf[dsl.U32]
)

// analysed is what is found in a kernel of 4 CTAs of 2 warps whose body gets a buffer of 64
// words, n from 0 to 1000 and what else the launch gives.
func analysed(t *testing.T, body func(k *dsl.Kernel, x buf, n u32)) (kinds []bounds.Kind) {
	t.Helper()
	k := dsl.New("test", dsl.Options{Warps: 2, Grid: 4, SharedLimit: 1024})
	x := dsl.Global[dsl.U32](k, "x", 64)
	body(k, x, dsl.Scalar[dsl.U32](k, "n", "a number"))
	p, err := k.Finish()
	require.NoError(t, err)
	for _, f := range bounds.Analyze(p, &bounds.Facts{Params: map[string]bounds.Range{"n": {Lo: 0, Hi: 1000}}}).Findings {
		require.Contains(t, f.Pos.Line, "bounds_test.go")
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

func TestWhatIsProved(t *testing.T) {
	for name, body := range map[string]func(k *dsl.Kernel, x buf, n u32){
		"a branch bounds":    func(k *dsl.Kernel, x buf, n u32) { k.If(n.LtC(64), func() { x.Store(n, n) }) },
		"a mask bounds":      func(_ *dsl.Kernel, x buf, n u32) { x.Store(n.MulC(1<<30).AndC(63), n) },
		"a remainder bounds": func(_ *dsl.Kernel, x buf, n u32) { x.Store(n.RemC(64), n) },
		"a quotient and its rest": func(_ *dsl.Kernel, x buf,
			n u32) {
			m := n.MinC(63)
			x.Store(m.DivC(7).MulC(7).Add(m.RemC(7)), n)
		},
		"a difference of the same": func(_ *dsl.Kernel, x buf, n u32) { x.Store(n.AddC(9).Sub(n), n) },
		"low bits change": func(k *dsl.Kernel, x buf, n u32) {
			x.Store(n.MinC(35).Xor(k.U32(4)).AddC(24), n)
			x.Store(n.MinC(35).AddC(40).Xor(k.U32(4)).SubC(40).MinC(63), n)
		},
		"an assertion bounds": func(k *dsl.Kernel, x buf, n u32) { k.Assert(n.LtC(64), "small"); x.Store(n, n) },
		"a claim bounds": func(k *dsl.Kernel, x buf, n u32) {
			k.Claim("small", func() dsl.Pred { return n.MulC(2).LtC(128) })
			x.Store(n, n)
		},
		"what wraps is not chosen": func(k *dsl.Kernel, x buf, n u32) {
			m := n.MinC(64)
			x.Store(dsl.Select(m.EqC(0), k.U32(0), m.SubC(1)), n)
		},
		"a part of a share": func(k *dsl.Kernel, x buf, n u32) {
			m, c := n.MinC(64), k.CTA()
			k.For(c.Mul(m).DivC(4), c.AddC(1).Mul(m).DivC(4), func(i u32) { x.Store(i, n) })
		},
		"a cursor goes round": func(k *dsl.Kernel, x buf, n u32) {
			at := dsl.NewVar(k.U32(0), "at")
			k.For(k.U32(0), n, func(u32) {
				x.Store(at.Get(), n)
				next := at.Get().AddC(1)
				at.Set(dsl.Select(next.EqC(64), k.U32(0), next))
			})
		},
		"a cursor goes round behind branches": func(k *dsl.Kernel, x buf, n u32) { roundBehindBranches(k, x, n, 64) },
		"an index of long steps has one value": func(k *dsl.Kernel, x buf, n u32) {
			k.ForStep(k.U32(0), n.MinC(4), 16, func(i u32) { x.Store(i.MulC(30), n) })
		},
		"an index of long steps has two values": func(k *dsl.Kernel, x buf, n u32) {
			k.ForStep(k.U32(1), n.MinC(20), 16, func(i u32) { x.Store(i.MulC(3).AddC(12), n) })
		},
		"a cursor behind a loop whose first turn is left out": func(k *dsl.Kernel, x buf, n u32) {
			behindFirstTurn(k, x, n, 4)
		},
		"a sum over two loops": func(k *dsl.Kernel, x buf, n u32) {
			at := dsl.NewVar(k.U32(0), "at")
			k.For(k.U32(0), k.U32(8), func(u32) {
				k.For(k.U32(0), k.U32(8), func(u32) { x.Store(at.Get(), n); at.Set(at.Get().AddC(1)) })
			})
		},
	} {
		t.Run(name, func(t *testing.T) { require.Empty(t, analysed(t, body)) })
	}
}

func TestWhatIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		want bounds.Kind
		body func(k *dsl.Kernel, x buf, n u32)
	}{
		"one too many": {bounds.Outside,
			func(k *dsl.Kernel, x buf, n u32) { k.If(n.LtC(65), func() { x.Store(n, n) }) }},
		"one too few": {bounds.Overflow, func(_ *dsl.Kernel, x buf, n u32) { x.Store(n.MinC(64).SubC(1), n) }},
		"a product": {bounds.Overflow,
			func(_ *dsl.Kernel, x buf, n u32) { x.Store(n.MulC(1<<23).DivC(1<<30), n) }},
		"a mask that is too wide": {bounds.Outside, func(_ *dsl.Kernel, x buf, n u32) { x.Store(n.AndC(127), n) }},
		"low bits that change past the end": {bounds.Outside,
			func(k *dsl.Kernel, x buf, n u32) { x.Store(n.MinC(35).Xor(k.U32(4)).AddC(25), n) }},
		"low bits that change below": {bounds.Overflow,
			func(k *dsl.Kernel, x buf, n u32) { x.Store(n.MinC(23).AddC(41).Xor(k.U32(1)).SubC(41).MinC(63), n) }},
		"a remainder of a wrapped": {bounds.Overflow,
			func(_ *dsl.Kernel, x buf, n u32) { x.Store(n.MulC(1<<30).RemC(63), n) }},
		"a vector over the end": {bounds.Outside, func(k *dsl.Kernel, x buf, n u32) {
			k.If(n.LtC(62), func() { x.StoreN(n.MulC(4).MinC(64), []u32{n, n, n, n}) })
		}},
		"a vector that is askew": {bounds.Unaligned,
			func(_ *dsl.Kernel, x buf, n u32) { x.StoreN(n.MinC(60), []u32{n, n, n, n}) }},
		"a cursor that goes past": {bounds.Outside, func(k *dsl.Kernel, x buf, n u32) {
			at := dsl.NewVar(k.U32(0), "at")
			k.For(k.U32(0), n, func(u32) {
				x.Store(at.Get(), n)
				next := at.Get().AddC(1)
				at.Set(dsl.Select(next.EqC(65), k.U32(0), next))
			})
		}},
		"a cursor that goes past behind branches": {bounds.Outside,
			func(k *dsl.Kernel, x buf, n u32) { roundBehindBranches(k, x, n, 65) }},
		"an index whose last of long steps is outside": {bounds.Outside, func(k *dsl.Kernel, x buf, n u32) {
			k.ForStep(k.U32(1), n.MinC(20), 16, func(i u32) { x.Store(i.MulC(3).AddC(13), n) })
		}},
		"an index whose end is the first of long steps beyond": {bounds.Outside, func(k *dsl.Kernel, x buf, n u32) {
			k.ForStep(k.U32(0), n.MinC(33), 16, func(i u32) { x.Store(i.MulC(2), n) })
		}},
		"a cursor past the end behind a loop whose first turn is left out": {bounds.Outside,
			func(k *dsl.Kernel, x buf, n u32) { behindFirstTurn(k, x, n, 5) }},
		"a word that nobody knows": {bounds.Outside, func(_ *dsl.Kernel, x buf, n u32) { x.Store(x.Load(n.MinC(63)), n) }},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, []bounds.Kind{c.want}, analysed(t, c.body)) })
	}
}

// roundBehindBranches moves a cursor up to 64 on in each turn, as a sum of steps, and stores behind each turn.
func roundBehindBranches(k *dsl.Kernel, x buf, n u32, end int) {
	at := dsl.NewVar(k.U32(0), "at")
	advance := func() {
		next := at.Get().AddC(1)
		at.Set(dsl.Select(next.EqC(end), k.U32(0), next))
	}
	k.For(k.U32(0), n, func(u32) {
		x.Store(at.Get(), n)
		for i := range 32 {
			advance()
			k.If(x.Load(k.U32(i)).EqC(0), advance)
		}
	})
}

// behindFirstTurn moves a cursor from 56 on by 2 in every turn but the first. There are up to most turns, in batches of
// 16, and so one batch. A second loop moves the cursor round 64 words. With most of 5 that loop begins at word 64, and
// the wrap never catches it.
func behindFirstTurn(k *dsl.Kernel, x buf, n u32, most int) {
	at, turns := dsl.NewVar(k.U32(56), "at"), n.MinC(most)
	k.ForStep(k.U32(0), turns, 16, func(batch u32) {
		first := dsl.Select(batch.EqC(0), k.U32(1), k.U32(0))
		k.For(first, turns.Sub(batch).MinC(16), func(u32) { at.Set(at.Get().AddC(2)) })
	})
	k.For(k.U32(0), n, func(u32) {
		x.Store(at.Get(), n)
		next := at.Get().AddC(1)
		at.Set(dsl.Select(next.EqC(64), k.U32(0), next))
	})
}
