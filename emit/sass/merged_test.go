package sass_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/engine/compile"
	"github.com/stretchr/testify/require"
)

// compiled is a kernel's text and its machine code, which passes.
func compiled(t *testing.T, k *dsl.Kernel) (compile.Source, *listing) {
	t.Helper()
	kernel, err := k.Finish()
	require.NoError(t, err)
	s, err := compile.SourceOfKernel("sides", kernel, "sm_90a")
	require.NoError(t, err)
	whole := machineCode(t, s)
	require.NoError(t, check(t, s, whole).Err())
	return s, whole
}

// TestStoresOfBothSidesOfAConditionAreTold has a template's statement on both sides of a condition, of which the
// compiler makes two stores with opposite guards. Its notes may lead from both to one side, as they do in kernels with
// norms of queries and keys: that is no loss. Where one of them is missing, or another statement's store is, there is a
// finding.
func TestStoresOfBothSidesOfAConditionAreTold(t *testing.T) {
	k := dsl.New("sides", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 1024})
	a, b := dsl.Global[dsl.B128](k, "a", 64), dsl.Global[dsl.B128](k, "b", 64)
	in, out := dsl.Global[dsl.U32](k, "in", 64), dsl.Global[dsl.U32](k, "out", 64)
	store := func(to dsl.Buf[dsl.B128], v dsl.Val[dsl.U32]) {
		to.Store(k.Tid(), dsl.Join(v, v, v, v), dsl.Relaxed(dsl.GPUScope))
	}
	v := in.Load(k.Tid())
	k.IfElse(v.Gt(k.U32(7)), func() { store(a, v) }, func() { store(b, v.AddC(1)) })
	out.Store(k.Tid(), v, dsl.Relaxed(dsl.GPUScope))
	s, whole := compiled(t, k)
	const wide = `STG\.E\.128\.STRONG\.GPU`
	first := whole.find(t, 0, wide)
	second := whole.find(t, first+1, wide)
	guard := regexp.MustCompile(`@!?P\d `)
	require.Regexp(t, guard, whole.lines[first].text, "a store a side")
	require.Regexp(t, guard, whole.lines[second].text, "a store a side")

	same := whole.clone()
	require.NotEqual(t, same.lines[first].notes, same.lines[second].notes)
	same.lines[first].notes = same.lines[second].notes
	require.NoError(t, check(t, s, same).Err(), "notes lead to one side")

	for name, l := range map[string]*listing{"notes of each": whole, "notes of one": same} {
		for _, at := range []int{first, second, l.find(t, 0, `STG\.E\.STRONG\.GPU`)} {
			lost := l.clone()
			lost.drop(at)
			require.Error(t, check(t, s, lost).Err(), "%s: %s", name, l.lines[at].text)
		}
	}
}

// TestOneStoreBehindBothSidesOfAConditionIsTold has a template's line store to shared memory on both sides of a
// condition, and the other side wait for a value before. Of the two stores the compiler may make one behind both sides,
// whose notes lead to one side: that is no fault. A store of another line there is one, and so is one that has moved to
// behind the barrier.
func TestOneStoreBehindBothSidesOfAConditionIsTold(t *testing.T) {
	k := dsl.New("sides", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 1024})
	in, out := dsl.Global[dsl.U32](k, "in", 64), dsl.Global[dsl.U32](k, "out", 64)
	words := dsl.Shared[dsl.U32](k, "words", 64)
	store := func(v dsl.Val[dsl.U32]) { words.Store(k.Tid(), v) }
	v := in.Load(k.Tid())
	words.Store(k.Tid().AddC(32), v.XorC(5))
	k.Barrier()
	k.IfElse(v.Gt(k.U32(7)), func() { store(v) }, func() {
		store(in.Load(k.Tid().AddC(1), dsl.Relaxed(dsl.GPUScope)))
	})
	k.Barrier()
	out.Store(k.Tid(), words.Load(k.Tid().XorC(1)), dsl.Relaxed(dsl.GPUScope))
	s, whole := compiled(t, k)
	other := whole.find(t, 0, `STS `)
	one := whole.find(t, other+1, `STS `)
	barrier := whole.find(t, one+1, `BAR\.SYNC`)
	require.Regexp(t, `@!?P\d `, whole.lines[whole.find(t, other, `LDG\.E\.STRONG\.GPU`)].text, "one side loads")
	require.NotRegexp(t, `@|STS `, whole.lines[whole.find(t, one+1, `STS |BAR`)].text, "both sides have one store")

	var sides []string // the notes of the store on each side
	for i, line := range strings.Split(string(s.Text), "\n") {
		if strings.Contains(line, "words[tid] = ") {
			sides = append(sides, fmt.Sprintf("line %d", i+1))
		}
	}
	require.Len(t, sides, 2)
	for _, side := range sides {
		l := whole.clone()
		l.lines[one].notes = regexp.MustCompile(`line \d+`).ReplaceAllString(l.lines[one].notes, side)
		require.NoError(t, check(t, s, l).Err(), side)
	}

	wrong := whole.clone()
	wrong.lines[one].notes = whole.lines[other].notes
	require.Error(t, check(t, s, wrong).Err(), "notes lead to another line")
	late := whole.clone()
	late.move(one, barrier+1)
	require.Error(t, check(t, s, late).Err(), "behind the barrier")
}
