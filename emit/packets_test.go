package emit_test

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/emit"
	"github.com/stretchr/testify/require"
)

// polling says in what a poll differs from that of grid.LL.All; the zero value in nothing.
type polling struct {
	watched                                              bool
	place, flag, order, skip, twice, reader, other, note bool
}

// packets polls three packets.
func (c polling) packets(k *dsl.Kernel) {
	words, out := dsl.Global[dsl.B128](k, "words", 0), dsl.Global[dsl.U32](k, "out", 0)
	stop := dsl.Global[dsl.U32](k, "stop", 1)
	notes := dsl.Shared[dsl.U32](k, "notes", k.Warps()*dsl.NoteWords, dsl.Align(16))
	flag, site := dsl.Scalar[dsl.U32](k, "flag", ""), 1
	relaxed := dsl.Relaxed(dsl.GPUScope)
	at := []dsl.Val[dsl.U32]{k.Tid(), k.Tid().AddC(32), k.Tid().AddC(64)}
	var got []*dsl.Var[dsl.B128]
	for _, i := range at {
		got = append(got, dsl.NewVar(words.Load(i, relaxed), "packet"))
	}
	odd := func(differs bool, i int) bool { return differs && i == 2 }
	for i := range at {
		last := dsl.Split(got[i].Get())[3]
		compared := flag
		if odd(c.flag, i) {
			compared = flag.AddC(1)
		}
		k.If(last.Ne(compared), func() {
			detail := at[i]
			if odd(c.note, i) {
				detail = at[0]
			}
			if c.watched {
				got[i].Set(dsl.WaitTagOrNote(words, at[i], got[i].Get(), flag, stop, dsl.At(0),
					dsl.Note{To: notes, Site: site, Tag: flag, Detail: detail}, relaxed))
			} else {
				got[i].Set(dsl.WaitTag(words, at[i], got[i].Get(), flag, relaxed))
			}
			for j := i + 1; j < len(at) && !odd(c.skip, j); j++ {
				k.If(dsl.Split(got[j].Get())[3].Ne(flag), func() {
					place, into, order := at[j], got[j], relaxed
					if odd(c.place, j) {
						place = at[0]
					}
					if odd(c.other, j) {
						into = got[0]
					}
					if odd(c.order, j) {
						order = dsl.Acquire(dsl.GPUScope)
					}
					into.Set(words.Load(place, order))
					if odd(c.twice, j) {
						into.Set(words.Load(place, order))
					}
				})
			}
		})
		if odd(c.reader, i) {
			out.Store(k.Tid().AddC(99), last)
		}
	}
	for i, v := range got {
		out.Store(at[i], dsl.Split(v.Get())[0])
	}
}

// A poll of several packets is a call, and the line is of all its instructions.
func TestAPollOfPacketsIsACall(t *testing.T) {
	for _, watched := range []bool{false, true} {
		k := kernel(t, "test", polling{watched: watched}.packets)
		src, err := emit.Print(k, target(t), emit.Options{})
		require.NoError(t, err)
		want := "  ptx::wait_packets_relaxed_gpu(words, flag, tid, packet, v3, packet_2, v5, packet_3);"
		if watched {
			want = "  ptx::wait_packets_relaxed_gpu_noted(words, flag, stop, notes, 1, flag, tid, packet, v3, packet_2, v5, packet_3);"
		}
		found := 0
		for i, line := range strings.Split(string(src.Text), "\n") {
			if line == want {
				found++
				of := map[ir.Op]int{}
				for _, in := range src.Instrs[i] {
					of[in.Op]++
				}
				require.Equal(t, []int{3, 3, 6, 6}, []int{of[ir.OpWaitTag], of[ir.OpLd], of[ir.OpNe], of[ir.OpSet]})
			}
		}
		require.Equal(t, 1, found, "%s", src.Text)
	}
}

// What differs from a poll in one operand is no call.
func TestWhatIsNoPollIsPrintedInFull(t *testing.T) {
	for _, c := range []polling{
		{place: true}, {flag: true}, {order: true}, {twice: true}, {reader: true}, {other: true},
		{watched: true, note: true},
	} {
		text := body(t, c.packets)
		require.Equal(t, 3, strings.Count(text, " = ptx::wait_packet_relaxed_gpu"), "%+v\n%s", c, text)
		require.NotContains(t, text, "wait_packets", "%+v", c)
	}
}

// A packet that no earlier wait loads again is waited for behind the call.
func TestAPollEndsWhereAPacketIsNotLoadedAgain(t *testing.T) {
	text := body(t, polling{skip: true}.packets)
	has(t, text, "  ptx::wait_packets_relaxed_gpu(words, flag, tid, packet, v3, packet_2);\n  if (packet_3.w != flag) {\n")
}
