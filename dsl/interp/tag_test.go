package interp_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

// tagged passes a word a lane from CTA 0, which stores it by store, to CTA 1, which
// has loaded it first, early or late, and writes the three words beside the tag to out.
func tagged(t *testing.T,
	store func(words dsl.Buf[dsl.B128], i dsl.Val[dsl.U32], v [4]dsl.Val[dsl.U32])) *interp.Program {
	return build(t, 1, 2, func(k *dsl.Kernel) {
		words, out := dsl.Global[dsl.B128](k, "words", 32), dsl.Global[dsl.U32](k, "out", 96)
		gpu, l := dsl.Relaxed(ir.GPU), k.Lane()
		k.IfElse(k.CTA().EqC(0), func() {
			store(words, l, [4]dsl.Val[dsl.U32]{l, l.AddC(100), l.AddC(200), k.U32(9)})
		}, func() {
			first := words.Load(l, gpu)
			got := dsl.Split(dsl.WaitTag(words, l, first, k.U32(9), gpu))
			for i, v := range got[:3] {
				out.Store(l.MulC(3).AddC(i), v)
			}
		})
	})
}

func TestTaggedWordsComeWhole(t *testing.T) {
	p := tagged(t, func(words dsl.Buf[dsl.B128], i dsl.Val[dsl.U32], v [4]dsl.Val[dsl.U32]) {
		words.Store(i, dsl.Join(v[0], v[1], v[2], v[3]), dsl.Relaxed(ir.GPU))
	})
	for seed := range uint64(100) {
		m := bufs(p)
		run(t, p, m, seed)
		out := u32s(m.Bytes("out"))
		for l := range 32 {
			for i := range 3 {
				require.EqualValues(t, l+100*i, out[3*l+i], "seed %d, lane %d, word %d", seed, l, i)
			}
		}
	}
}

func TestTaggedWordsThatRace(t *testing.T) {
	for _, test := range []struct {
		name  string
		want  interp.Kind
		store func(dsl.Buf[dsl.B128], dsl.Val[dsl.U32], [4]dsl.Val[dsl.U32])
	}{
		{"a weak store", interp.DataRace, func(words dsl.Buf[dsl.B128], i dsl.Val[dsl.U32], v [4]dsl.Val[dsl.U32]) {
			words.Store(i, dsl.Join(v[0], v[1], v[2], v[3]))
		}},
		{"a store of the CTA's scope", interp.ScopeRace,
			func(words dsl.Buf[dsl.B128], i dsl.Val[dsl.U32], v [4]dsl.Val[dsl.U32]) {
				words.Store(i, dsl.Join(v[0], v[1], v[2], v[3]), dsl.Relaxed(ir.CTA))
			}},
		{"four accesses", interp.DataRace, func(words dsl.Buf[dsl.B128], i dsl.Val[dsl.U32], v [4]dsl.Val[dsl.U32]) {
			for j := range v {
				dsl.View[dsl.U32](words).Store(i.MulC(4).AddC(j), v[j], dsl.Relaxed(ir.GPU))
			}
		}},
		{"a vector access, which is four", interp.DataRace,
			func(words dsl.Buf[dsl.B128], i dsl.Val[dsl.U32], v [4]dsl.Val[dsl.U32]) {
				dsl.View[dsl.U32](words).StoreN(i.MulC(4), v[:])
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, faultIn(t, tagged(t, test.store), 50).Kind)
		})
	}
}

func TestATagThatNeverComesIsADeadlock(t *testing.T) {
	p := tagged(t, func(words dsl.Buf[dsl.B128], i dsl.Val[dsl.U32], v [4]dsl.Val[dsl.U32]) {
		words.Store(i, dsl.Join(v[0], v[1], v[2], v[3].AddC(1)), dsl.Relaxed(ir.GPU))
	})
	require.Equal(t, interp.Deadlock, faultIn(t, p, 5).Kind)
}
