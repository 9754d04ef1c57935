package trace

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// Of a ring on the executor, by the SM's clock.
const (
	ringConsumers  = 2
	ringStageBytes = 512
	ringLong       = 2048 // clocks of a long wait
	ringSlack      = 420  // clocks that what brackets a wait takes beside it
)

var ringPhases = []int{40, 7, 21, 33} // chunks

// bracket is what a role did for a chunk, noted beside the trace: the clock before its
// waits and behind them. A consumer then drains the chunk, the producer has issued it.
type bracket struct{ before, after float64 }

// ringKernel is a ring whose consumers do something else for long before every phase, and
// whose producer does before every 13th chunk.
type ringKernel struct {
	k            *dsl.Kernel
	ring         *pipeline.Ring
	trace        *pipeline.Trace
	beside, idle dsl.Buf[dsl.U32] // [role][chunk][before, after]; what being busy comes to
	total        int              // chunks
}

const ringSpans = 1000 // room

func newRingKernel(t *testing.T, leads bool) *ringKernel {
	t.Helper()
	plan, err := pipeline.RingOnly(ringStageBytes, 5, 3, 232448)
	require.NoError(t, err)
	if leads {
		plan.Leads = []pipeline.Lead{{Chunks: 4, InFlight: 1}}
	}
	r := &ringKernel{k: dsl.New("ring", dsl.Options{Warps: ringConsumers + 1, Grid: 1, SharedLimit: 232448})}
	for _, n := range ringPhases {
		r.total += n
	}
	k := r.k
	src := dsl.Global[dsl.B128](k, "src", ringStageBytes/16, dsl.ReadOnly())
	r.beside = dsl.Global[dsl.U32](k, "beside", int64(2*2*r.total))
	r.idle = dsl.Global[dsl.U32](k, "idle", 32*(ringConsumers+1))
	r.ring, r.trace = pipeline.NewRing(k, plan, ringConsumers), pipeline.NewTrace(k, 1, ringSpans)
	r.ring.Traced(r.trace)
	k.If(k.Tid().EqC(0), r.ring.Init)
	k.Barrier()
	consumers := func() {
		c := r.ring.Consumer()
		r.role(0, func(n *dsl.Var[dsl.U32]) {
			r.note(0, n, 0)
			c.Drain(func(base dsl.Val[dsl.U32]) {
				dsl.Optional(base)
				r.note(0, n, 1)
			})
		})
	}
	producer := func() {
		p := r.ring.Producer()
		r.role(1, func(n *dsl.Var[dsl.U32]) {
			k.If(n.Get().AddC(7).RemC(13).EqC(0), r.busy)
			r.note(1, n, 0)
			p.Fill(k.U32(ringStageBytes), func(base dsl.Val[dsl.U32]) {
				r.note(1, n, 1)
				k.If(k.Lane().EqC(0), func() { p.Copy(base, src, dsl.At(0), k.U32(ringStageBytes)) })
			})
		})
	}
	k.Roles(dsl.Role{Name: Consumers, First: 0, End: ringConsumers, Body: consumers},
		dsl.Role{Name: Producer, First: ringConsumers, End: ringConsumers + 1, Body: producer})
	return r
}

// role runs the phases, chunk by chunk.
func (r *ringKernel) role(role int, chunk func(n *dsl.Var[dsl.U32])) {
	k := r.k
	r.trace.Start(role, role*ringConsumers)
	n := dsl.NewVar(k.U32(0), "n")
	for i, chunks := range ringPhases {
		r.trace.At(k.U32(0), k.U32(i))
		name := fmt.Sprint("phase ", i)
		k.Region(name, func() {
			r.trace.Span(k, pipeline.TracePhase, name, k.U32(0), func() {
				if role == 0 {
					r.trace.Span(k, pipeline.TraceTask, "busy", k.U32(0), r.busy)
				}
				k.For(k.U32(0), k.U32(chunks), func(dsl.Val[dsl.U32]) {
					chunk(n)
					n.Set(n.Get().AddC(1))
				}, dsl.Unroll(1))
			})
		})
	}
	r.trace.Finish()
}

// busy takes a warp longer than a long wait.
func (r *ringKernel) busy() {
	x := dsl.NewVar(r.k.U32(1), "x")
	r.k.For(r.k.U32(0), r.k.U32(1500), func(i dsl.Val[dsl.U32]) { x.Set(x.Get().Add(i)) }, dsl.Unroll(1))
	r.idle.Store(r.k.Tid(), x.Get())
}

// note notes the clock beside the trace, before chunk n's waits or behind them.
func (r *ringKernel) note(role int, n *dsl.Var[dsl.U32], word int) {
	clock := dsl.Cast[dsl.U32](r.k.Clock())
	r.k.If(r.k.Lane().EqC(0).And(r.k.Warp().EqC(role*ringConsumers)), func() {
		r.beside.Store(n.Get().MulC(2).AddC(2*r.total*role+word), clock)
	})
}

// ringRun runs it, and decodes what is left by the clock itself.
func ringRun(t *testing.T, seed uint64, leads bool) (tr *Trace, told [pipeline.TraceTracks][]bracket) {
	t.Helper()
	r := newRingKernel(t, leads)
	program, err := r.k.Finish()
	require.NoError(t, err)
	loaded, err := interp.Load(program)
	require.NoError(t, err)
	m := interp.NewMemory()
	for _, b := range program.Globals() {
		m.Bind(b.Name, make([]byte, b.Bytes()))
	}
	_, err = loaded.Run(m, interp.Options{Seed: seed})
	require.NoError(t, err)
	words := func(name string) (out []uint32) {
		for b := range slices.Chunk(m.Bytes(name), 4) {
			out = append(out, binary.LittleEndian.Uint32(b))
		}
		return out
	}
	tr = &Trace{Unit: Steps, Layers: len(ringPhases), Sites: sitesOf(r.trace.Sites)}
	spans, heads, clocks := words(pipeline.BufferSpans), words(pipeline.BufferSpanHeads), words("beside")
	for role, name := range pipeline.TraceRoles() {
		h, err := pipeline.DecodeHead(heads[role*pipeline.HeadWords:])
		require.NoError(t, err)
		track := Track{Role: name}
		for i := range h.Spans {
			s, err := pipeline.DecodeSpan(spans[(role*ringSpans+i)*pipeline.SpanWords:])
			require.NoError(t, err)
			track.Spans = append(track.Spans, Span{float64(s.Begin), float64(s.End), s.Site, s.Step, s.Layer, s.Detail})
		}
		tr.Tracks = append(tr.Tracks, track)
		for i := range r.total {
			at := 2*r.total*role + 2*i
			told[role] = append(told[role], bracket{float64(clocks[at]), float64(clocks[at+1])})
		}
	}
	require.NoError(t, tr.Check())
	return tr, told
}

// What a kernel notes agrees with clocks that it read beside the trace: each sum ends where
// it says, no more chunks are summed than may be, what waited long is told exactly, and of a
// phase all waiting is told, no more and no less.
func TestWhatAKernelNotesIsWhatItsWarpsWaited(t *testing.T) {
	long := map[string]int{}
	for seed := range uint64(6) {
		tr, told := ringRun(t, seed, seed%2 == 1)
		for role := range tr.Tracks {
			track, own, chunk := &tr.Tracks[role], map[uint32]bool{}, 0
			waited, last := 0.0, -1
			short, shortSum, floor := 0.0, 0.0, math.Inf(1) // waits that are summed, what brackets them, and the least of that
			for _, s := range track.Spans {
				name, d := tr.Sites[s.Site].Name, int(s.Detail)
				switch tr.kind(&s) {
				case Wait:
					waited += s.End - s.Begin
					if name != ChunkWait && name != StageWait {
						short += s.End - s.Begin
					}
					require.LessOrEqual(t, d-last, pipeline.SummedChunks, "%s up to chunk %d", name, d)
					b := told[role][d]
					switch name {
					case ChunkWait, StageWait:
						require.GreaterOrEqual(t, s.End-s.Begin, float64(ringLong))
						require.GreaterOrEqual(t, s.Begin, b.before)
						require.LessOrEqual(t, s.End, b.after)
						own[s.Detail] = true
						long[name]++
						last = d
					case ChunkWaits, StageWaits:
						require.GreaterOrEqual(t, s.End, b.before)
						require.LessOrEqual(t, s.End, b.after)
						last = d
					}
				case Phase:
					sum, n := 0.0, ringPhases[s.Layer]
					for i := chunk; i < chunk+n; i++ {
						b := told[role][i]
						sum += b.after - b.before
						floor = min(floor, b.after-b.before)
						if !own[uint32(i)] {
							shortSum += b.after - b.before
						}
						if role == 0 && b.after-b.before > ringLong+ringSlack {
							require.True(t, own[uint32(i)], "chunk %d was waited for from %g to %g", i, b.before, b.after)
						}
					}
					require.LessOrEqual(t, waited, sum, "%s of the %s", name, track.Role)
					require.GreaterOrEqual(t, waited, sum-float64(n)*ringSlack, "%s of the %s", name, track.Role)
					chunk, waited = chunk+n, 0
				}
			}
			require.LessOrEqual(t, short, shortSum)
			// Warps that run in between count, and seldom do so while another waits.
			require.GreaterOrEqual(t, short, []float64{0.5, 0.2}[role]*(shortSum-float64(chunk)*floor), "summed waits of the %s", track.Role)
		}
	}
	require.Positive(t, long[ChunkWait])
	require.Positive(t, long[StageWait])
}

// How full the ring was is told to within the chunks of a sum of either role, and where a
// span ends, to within those of the other.
func TestHowFullARingWasIsTold(t *testing.T) {
	for seed := range uint64(6) {
		tr, told := ringRun(t, seed, seed%2 == 1)
		for role, which := range []func(string) bool{chunkWait, stageWait} {
			all := tr.passings(&tr.Tracks[role], which)
			require.Len(t, all, len(told[role]))
			for i, p := range all {
				require.LessOrEqual(t, p.early-ringSlack, told[role][i].after, "chunk %d of role %d", i, role)
				require.GreaterOrEqual(t, p.late+ringSlack, told[role][i].after, "chunk %d of role %d", i, role)
				require.True(t, p.early <= p.at && p.at <= p.late)
			}
		}
		gone := func(role int, at float64) (n int) {
			for _, b := range told[role] {
				if b.after <= at {
					n++
				}
			}
			return n
		}
		events := tr.ringFill(&tr.Tracks[0], &tr.Tracks[1])
		require.NotEmpty(t, events)
		off := 0
		for _, e := range events {
			off = max(off, abs(e.chunks-(gone(1, e.at)-gone(0, e.at))))
		}
		require.Less(t, off, pipeline.SummedChunks)
		require.Zero(t, events[len(events)-1].chunks)
	}
}

func abs(n int) int { return max(n, -n) }

// No span is stored between a wait of the producer's and the copy it is for, nor between a
// consumer's wait and the release of the stage: others wait for these.
func TestSpansAreStoredBehindWhatOthersWaitFor(t *testing.T) {
	program, err := newRingKernel(t, true).k.Finish()
	require.NoError(t, err)
	waited, waits, stores := false, 0, 0
	for line := range strings.Lines(program.String()) {
		switch {
		case strings.Contains(line, "wait.mbar"):
			waited = true
			waits++
		case strings.Contains(line, "bulk.g2s"), strings.Contains(line, "mbar.arrive") && strings.Contains(line, "@empty"):
			waited = false
		case strings.Contains(line, "st.b128 @"+pipeline.BufferSpans+":b128["):
			stores++
			require.Contains(t, line, "hint=evict_last")
			require.False(t, waited, line)
		}
	}
	require.Greater(t, waits, 4*len(ringPhases)-1)
	require.Greater(t, stores, 4*len(ringPhases))
}

func TestASpanWithinAChunksUseIsRefused(t *testing.T) {
	r := newRingKernel(t, false)
	k := r.k
	k.Roles(dsl.Role{Name: Consumers, First: 0, End: 1, Body: func() {
		c := r.ring.Consumer()
		r.trace.Start(0, 0)
		c.Drain(func(base dsl.Val[dsl.U32]) {
			dsl.Optional(base)
			r.trace.Span(k, pipeline.TraceTask, "sum", k.U32(0), r.busy)
		})
	}})
	_, err := k.Finish()
	require.ErrorContains(t, err, `trace: a span "sum" within a chunk's use, want it around the chunks`)
}
