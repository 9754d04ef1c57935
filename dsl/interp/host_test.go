package interp_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/stretchr/testify/require"
)

// hand is a host that writes 1 into word 0 of "go" when it has heard enough, or
// when the kernel is stuck.
type hand struct {
	heard []string
	after int // words to hear before it writes; 0: only when the kernel is stuck
}

func (h *hand) Stored(buffer string, word int64, value uint32) {
	h.heard = append(h.heard, fmt.Sprintf("%s[%d]=%d", buffer, word, value))
}

func (h *hand) Turn(stuck bool, set func(string, int64, uint32)) {
	if stuck || h.after > 0 && len(h.heard) >= h.after {
		set("go", 0, 1)
	}
}

// talk stores three words for the host and then waits for its word.
func talk(t *testing.T, wait func(k *dsl.Kernel, out, word, notes dsl.Buf[dsl.U32])) *ir.Kernel {
	t.Helper()
	k := dsl.New("talk", dsl.Options{Warps: 2, Grid: 1, SharedLimit: 4096})
	out := dsl.Global[dsl.U32](k, "out", 4, dsl.HostReads())
	word := dsl.Global[dsl.U32](k, "go", 1, dsl.HostWrites())
	notes := dsl.Shared[dsl.U32](k, "notes", 2*dsl.NoteWords, dsl.Align(16))
	k.If(k.Tid().LtC(2*dsl.NoteWords), func() { notes.Store(k.Tid(), k.U32(0)) })
	k.Barrier()
	k.If(k.Tid().EqC(32), func() {
		for i := range 3 {
			out.Store(dsl.At(i), k.U32(10+i), dsl.Relaxed(dsl.SysScope))
		}
		wait(k, out, word, notes)
	})
	p, err := k.Finish()
	require.NoError(t, err)
	return p
}

func runTalk(t *testing.T, k *ir.Kernel, h interp.Host) (*interp.Memory, error) {
	t.Helper()
	p, err := interp.Load(k)
	require.NoError(t, err)
	mem := interp.NewMemory()
	mem.Bind("out", make([]byte, 16))
	mem.Bind("go", make([]byte, 4))
	_, err = p.Run(mem, interp.Options{Seed: 3, Host: h})
	return mem, err
}

func TestTheHostHearsAndIsHeard(t *testing.T) {
	k := talk(t, func(k *dsl.Kernel, out, word, _ dsl.Buf[dsl.U32]) {
		dsl.WaitUntil(word, dsl.At(0), dsl.NE, k.U32(0), dsl.Acquire(dsl.SysScope))
		out.Store(dsl.At(3), word.Load(dsl.At(0), dsl.Relaxed(dsl.SysScope)), dsl.Volatile())
	})
	h := &hand{after: 3}
	_, err := runTalk(t, k, h)
	require.NoError(t, err)
	require.Equal(t, []string{"out[0]=10", "out[1]=11", "out[2]=12", "out[3]=1"}, h.heard)
	_, err = runTalk(t, k, nil)
	require.ErrorContains(t, err, "deadlock")
}

// never waits for a phase that does not come, and then copies its note out.
func never(k *dsl.Kernel, out, word, notes dsl.Buf[dsl.U32]) {
	bar := dsl.NewMBars(k, "bar", 1)
	bar.Init(dsl.At(0), k.U32(1))
	note := func(site int) dsl.Note {
		return dsl.Note{To: notes, Site: site, Tag: k.U32(70), Detail: k.U32(80)}
	}
	for _, site := range []int{6, 7} { // the first is the one that is noted
		bar.WaitOrNote(dsl.At(0), k.U32(0), word, dsl.At(0), note(site))
	}
	for i := range 3 {
		out.Store(dsl.At(i), notes.Load(dsl.At(dsl.NoteWords+i)), dsl.Relaxed(dsl.SysScope))
	}
}

func TestAWaitGivenUpIsNotedOnce(t *testing.T) {
	mem, err := runTalk(t, talk(t, never), &hand{})
	require.NoError(t, err)
	var got []uint32
	for i := range 3 {
		got = append(got, binary.LittleEndian.Uint32(mem.Bytes("out")[4*i:]))
	}
	require.Equal(t, []uint32{6, 70, 80}, got)
	_, err = runTalk(t, talk(t, never), nil)
	require.ErrorContains(t, err, "deadlock")
}

// Every weaker access to a word shared with the host races with it.
func TestWeakAccessesRaceWithTheHost(t *testing.T) {
	k := talk(t, func(k *dsl.Kernel, out, word, _ dsl.Buf[dsl.U32]) {
		out.Store(dsl.At(3), word.Load(dsl.At(0), dsl.Relaxed(dsl.SysScope)), dsl.Relaxed(dsl.SysScope))
	})
	tried := 0
	for _, m := range mutate.List(k) {
		if m.Class != mutate.Weaken {
			continue
		}
		tried++
		broken, err := mutate.Apply(k, m)
		require.NoError(t, err)
		_, err = runTalk(t, broken, &hand{})
		require.ErrorContains(t, err, "while the kernel runs, want a strong scalar access at scope sys", m.String())
		require.NotEmpty(t, ir.Verify(broken), m.String())
	}
	require.Equal(t, 10, tried, "weakenings of five accesses: to weak, and to a narrower scope")
}

func TestWordsForTheHostGoOneWay(t *testing.T) {
	for name, build := range map[string]func(k *dsl.Kernel){
		"reads @out, which is for the host to read while the kernel runs": func(k *dsl.Kernel) {
			out := dsl.Global[dsl.U32](k, "out", 4, dsl.HostReads())
			out.Store(dsl.At(0), out.Load(dsl.At(1), dsl.Relaxed(dsl.SysScope)), dsl.Relaxed(dsl.SysScope))
		},
		"writes @go, which is for the host to write while the kernel runs": func(k *dsl.Kernel) {
			dsl.Global[dsl.U32](k, "go", 4, dsl.HostWrites()).Store(dsl.At(0), k.U32(1), dsl.Volatile())
		},
		"touches @go, which the host writes while the kernel runs, want a load or store": func(k *dsl.Kernel) {
			dsl.ReduceAdd(dsl.Global[dsl.U32](k, "go", 4, dsl.HostWrites()), dsl.At(0), k.U32(1), dsl.Relaxed(dsl.SysScope))
		},
		"is a vector of 2 on @out": func(k *dsl.Kernel) {
			dsl.Global[dsl.U32](k, "out", 4, dsl.HostReads(), dsl.Align(8)).StoreN(dsl.At(0),
				[]dsl.Val[dsl.U32]{k.U32(1), k.U32(2)}, dsl.Relaxed(dsl.SysScope))
		},
		"is one that the host reads while the kernel runs, want global memory of u32": func(k *dsl.Kernel) {
			dsl.Global[dsl.F32](k, "out", 4, dsl.HostReads()).Store(dsl.At(0), k.F32(1), dsl.Relaxed(dsl.SysScope))
		},
		"shared buffer @kept: is one that the host keeps, want global memory that is not read-only": func(k *dsl.Kernel) {
			dsl.Shared[dsl.U32](k, "kept", 4, dsl.HostKeeps()).Store(dsl.At(0), k.U32(1))
		},
	} {
		k := dsl.New("wrong", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 4096})
		build(k)
		_, err := k.Finish()
		require.ErrorContains(t, err, name)
	}
}

// What the host only keeps is a buffer like others to the kernel.
func TestWhatTheHostKeepsIsWrittenAsAnyBuffer(t *testing.T) {
	k := dsl.New("keeps", dsl.Options{Warps: 1, Grid: 1, SharedLimit: 4096})
	kept := dsl.Global[dsl.F32](k, "kept", 64, dsl.HostKeeps(), dsl.Align(8))
	kept.StoreN(k.Lane().MulC(2), []dsl.Val[dsl.F32]{k.F32(1), k.F32(2)})
	program, err := k.Finish()
	require.NoError(t, err)
	require.Contains(t, program.String(), "host-keeps")
	loaded, err := interp.Load(program)
	require.NoError(t, err)
	m := interp.NewMemory()
	m.Bind("kept", make([]byte, 256))
	_, err = loaded.Run(m, interp.Options{})
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 128, 63, 0, 0, 0, 64}, m.Bytes("kept")[248:])
}

// writer is a host that writes data and then says so, again and again.
type writer struct{ n uint32 }

func (*writer) Stored(string, int64, uint32) {}

func (h *writer) Turn(_ bool, set func(string, int64, uint32)) {
	if h.n < 9 {
		h.n++
		set("data", 0, 100*h.n)
		set("said", 0, h.n)
	}
}

// What the host has written before a word is there for a thread that acquires the word, and may not be for one that
// only reads it.
func TestTheHostsWordIsAcquired(t *testing.T) {
	run := func(order dsl.MemOpt, seed uint64) (stale bool) {
		k := dsl.New("told", dsl.Options{Warps: 2, Grid: 2, SharedLimit: 4096})
		out := dsl.Global[dsl.U32](k, "out", 9*128)
		said, data := dsl.Global[dsl.U32](k, "said", 1, dsl.HostWrites()), dsl.Global[dsl.U32](k, "data", 1, dsl.HostWrites())
		thread := k.CTA().MulC(64).Add(k.Tid())
		for i := range 9 {
			dsl.WaitUntil(said, dsl.At(0), dsl.GE, k.U32(i+1), order)
			out.Store(thread.MulC(9).AddC(i), data.Load(dsl.At(0), dsl.Relaxed(dsl.SysScope)))
		}
		program, err := k.Finish()
		require.NoError(t, err)
		p, err := interp.Load(program)
		require.NoError(t, err)
		mem := interp.NewMemory()
		mem.Bind("out", make([]byte, 4*9*128))
		mem.Bind("said", make([]byte, 4))
		mem.Bind("data", make([]byte, 4))
		_, err = p.Run(mem, interp.Options{Seed: seed, Host: &writer{}})
		require.NoError(t, err)
		for i := range 9 * 128 {
			stale = stale || binary.LittleEndian.Uint32(mem.Bytes("out")[4*i:]) < uint32(100*(i%9+1))
		}
		return stale
	}
	often := 0
	for seed := range uint64(40) {
		require.False(t, run(dsl.Acquire(dsl.SysScope), seed), "seed %d", seed)
		if run(dsl.Relaxed(dsl.SysScope), seed) {
			often++
		}
	}
	require.Greater(t, often, 4)
}
