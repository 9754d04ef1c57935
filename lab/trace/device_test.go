package trace

import (
	"encoding/binary"
	"fmt"
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
	ringTasks      = 70 // in the last phase: more than are listed
)

// ringSlack is how many clocks what brackets a wait takes beside it, by role: the producer takes
// the consumers' wait from the stage in between.
var ringSlack = [pipeline.TraceTracks]float64{420, 900}

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
		plan.Throttles = []pipeline.Throttle{{Chunks: 4, InFlight: 1}}
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
		r.role(0, func() {}, func(n *dsl.Var[dsl.U32]) {
			r.note(0, n, 0)
			c.Drain(func(base dsl.Val[dsl.U32]) {
				dsl.Optional(base)
				r.note(0, n, 1)
			})
		})
	}
	producer := func() {
		p := r.ring.Producer()
		r.role(1, p.Finish, func(n *dsl.Var[dsl.U32]) {
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
func (r *ringKernel) role(role int, end func(), chunk func(n *dsl.Var[dsl.U32])) {
	k := r.k
	r.trace.Start(role, role*ringConsumers)
	n := dsl.NewVar(k.U32(0), "n")
	for i, chunks := range ringPhases {
		r.trace.At(k.U32(0), k.U32(i))
		name := fmt.Sprint("phase ", i)
		k.Region(name, func() {
			r.trace.Span(k, pipeline.TracePhase, name, func() {
				if role == 0 {
					r.trace.Span(k, pipeline.TraceTask, "busy", r.busy)
				}
				k.For(k.U32(0), k.U32(chunks), func(dsl.Val[dsl.U32]) {
					chunk(n)
					n.Set(n.Get().AddC(1))
				}, dsl.Unroll(1))
				if role == 0 && i == len(ringPhases)-1 {
					k.For(k.U32(0), k.U32(ringTasks), func(dsl.Val[dsl.U32]) {
						r.trace.Span(k, pipeline.TraceTask, "one of many", func() {})
					}, dsl.Unroll(1))
				}
			})
		})
	}
	end()
	r.trace.Finish()
}

// busy takes a warp longer than most waits.
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
	tracks, err := tr.noted([]pipeline.Head{head(t, heads, 0), head(t, heads, 1)}, spans)
	require.NoError(t, err)
	for role, name := range pipeline.TraceRoles() {
		require.Zero(t, tracks[role].Dropped)
		track := tracks[role].in(func(clock uint32) float64 { return float64(clock) })
		track.Role = name
		tr.Tracks = append(tr.Tracks, track)
		for i := range r.total {
			at := 2*r.total*role + 2*i
			told[role] = append(told[role], bracket{float64(clocks[at]), float64(clocks[at+1])})
		}
	}
	require.NoError(t, tr.Check())
	return tr, told
}

func head(t *testing.T, heads []uint32, track int) pipeline.Head {
	t.Helper()
	h, err := pipeline.DecodeHead(heads[track*pipeline.HeadWords:])
	require.NoError(t, err)
	return h
}

// What a kernel notes agrees with clocks that it read beside the trace: every wait for a chunk,
// a stage or copies is a span once, within what brackets it, and the rest of that is little.
func TestEveryWaitOfARingIsTold(t *testing.T) {
	for seed := range uint64(6) {
		tr, told := ringRun(t, seed, seed%2 == 1)
		kinds := [][]string{{ChunkWait}, {StageWait, FlightWait}}
		for role := range tr.Tracks {
			waits := make([]map[string]Span, len(told[role]))
			for _, s := range tr.Tracks[role].Spans {
				if tr.kind(&s) != Wait {
					continue
				}
				require.Less(t, int(s.Detail), len(waits))
				if waits[s.Detail] == nil {
					waits[s.Detail] = map[string]Span{}
				}
				name := tr.Sites[s.Site].Name
				require.NotContains(t, waits[s.Detail], name, "chunk %d", s.Detail)
				waits[s.Detail][name] = s
			}
			chunk := 0
			for phase, chunks := range ringPhases {
				for range chunks {
					b, sum, since := told[role][chunk], 0.0, told[role][chunk].before
					require.Len(t, waits[chunk], len(kinds[role]), "chunk %d of the %s", chunk, tr.Tracks[role].Role)
					for _, name := range kinds[role] {
						s := waits[chunk][name]
						require.Equal(t, phase, s.Layer)
						require.Equal(t, fmt.Sprint("phase ", phase), tr.Sites[s.Site].Phase)
						require.GreaterOrEqual(t, s.Begin, since, name)
						since = s.End
						sum += s.End - s.Begin
					}
					require.LessOrEqual(t, since, b.after)
					require.LessOrEqual(t, sum, b.after-b.before)
					require.GreaterOrEqual(t, sum, b.after-b.before-ringSlack[role], "chunk %d of the %s", chunk, tr.Tracks[role].Role)
					chunk++
				}
			}
		}
	}
}

// A list that is full is noted at once, and what is left of it at the end.
func TestMoreTasksThanAreListedAreTold(t *testing.T) {
	tr, _ := ringRun(t, 1, false)
	n := map[string]int{}
	for _, s := range tr.Tracks[0].Spans {
		if tr.kind(&s) != Wait {
			n[tr.Sites[s.Site].Name]++
		}
	}
	require.Equal(t, map[string]int{"one of many": ringTasks, "busy": 4, "phase 0": 1, "phase 1": 1, "phase 2": 1,
		"phase 3": 1}, n)
}

// How full the ring was is told to within the clocks between a wait and what is noted beside it.
func TestHowFullARingWasIsTold(t *testing.T) {
	for seed := range uint64(6) {
		tr, told := ringRun(t, seed, seed%2 == 1)
		for role, wait := range []string{ChunkWait, StageWait} {
			all := tr.passings(&tr.Tracks[role], wait)
			require.Len(t, all, len(told[role]))
			for i, p := range all {
				require.LessOrEqual(t, p.at, told[role][i].after, "chunk %d of role %d", i, role)
				require.GreaterOrEqual(t, p.at+ringSlack[role], told[role][i].after, "chunk %d of role %d", i, role)
				require.True(t, p.early == p.at && p.at == p.late)
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
		for _, e := range events {
			require.LessOrEqual(t, abs(e.chunks-(gone(1, e.at)-gone(0, e.at))), 1, "at %g", e.at)
		}
		require.Zero(t, events[len(events)-1].chunks)
	}
}

func abs(n int) int { return max(n, -n) }

// Consumers store no span of a chunk, and the producer none between a wait and the copy that
// it is for: others wait for these.
func TestSpansAreStoredBehindWhatOthersWaitFor(t *testing.T) {
	program, err := newRingKernel(t, true).k.Finish()
	require.NoError(t, err)
	waited, waits, stores := false, 0, 0
	text := program.String()
	// nobody waits for what the producer does behind it
	for line := range strings.Lines(text[:strings.LastIndex(text, "bulk.g2s")]) {
		switch {
		case strings.Contains(line, "wait.mbar"):
			waited = true
			waits++
		case strings.Contains(line, "bulk.g2s"), strings.Contains(line, "mbar.arrive") && strings.Contains(line, "@empty"):
			waited = false
		case strings.Contains(line, "st.b128 @"+pipeline.BufferSpans+":b128["):
			stores++
			require.False(t, waited, line)
		}
	}
	require.Greater(t, waits, 4*len(ringPhases)-1)
	require.Greater(t, stores, 4*len(ringPhases))
}
