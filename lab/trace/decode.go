package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/pipeline"
)

// Decode makes a trace of what a launch of a kernel with a pipeline.Trace left: the
// contents of its buffers of spans and heads, what its spans are of, and how many
// layers it has. Tracks are in the order of the CTAs; SM is the CTA's number, by which
// the plan knows it.
//
// A warp notes its SM's clock. Where in the launch that was is interpolated between the
// beginning and the end of its role, which it notes by the GPU's timer, too.
func Decode(spans, heads []uint32, sites []pipeline.TraceSite, layers int) (*Trace, error) {
	const perCTA = pipeline.TraceTracks
	n := len(heads) / pipeline.HeadWords
	if n == 0 || len(heads)%(perCTA*pipeline.HeadWords) != 0 || len(spans)%(n*pipeline.SpanWords) != 0 {
		return nil, fmt.Errorf("trace: %d words of heads and %d of spans are those of no whole number of CTAs", len(heads),
			len(spans))
	}
	all := make([]pipeline.Head, n)
	for i := range all {
		var err error
		if all[i], err = pipeline.DecodeHead(heads[i*pipeline.HeadWords:]); err != nil {
			return nil, err
		}
		if all[i].Spans == 0 {
			return nil, fmt.Errorf("trace: the %s of CTA %d noted nothing, or did not come to their end",
				pipeline.TraceRoles()[i%perCTA], i/perCTA)
		}
	}
	begin := all[0].Nanosecond[0]
	for _, h := range all {
		begin = min(begin, h.Nanosecond[0])
	}
	t := &Trace{Unit: "ns", Layers: layers, Sites: sitesOf(sites)}
	words := len(spans) / n
	for sm := range n / perCTA {
		heads := all[sm*perCTA:][:perCTA]
		tracks, err := t.noted(heads, spans[sm*perCTA*words:][:perCTA*words])
		if err != nil {
			return nil, fmt.Errorf("trace: CTA %d: %w", sm, err)
		}
		for role, track := range tracks {
			track.SM, track.Role = sm, pipeline.TraceRoles()[role]
			t.Tracks = append(t.Tracks, track.in(timeline(heads[role], begin)))
		}
	}
	return t, nil
}

// raw is a track by its SM's clock.
type raw struct {
	Track
	spans []pipeline.Span
}

// ringWait says whether waits of a name are at the ring.
func ringWait(name string) bool { return name == ChunkWait || name == StageWait || name == FlightWait }

// noted are the spans that the roles of a CTA noted, as many as there was room for, by the role
// that they are of. Waits at the ring without a length are of chunks that another warp took, or
// of none.
func (t *Trace) noted(heads []pipeline.Head, words []uint32) (tracks [pipeline.TraceTracks]raw, err error) {
	room := len(words) / pipeline.TraceTracks
	for role, h := range heads {
		kept := min(h.Spans, room/pipeline.SpanWords)
		tracks[role].Dropped = h.Spans - kept
		for i := range kept {
			s, err := pipeline.DecodeSpan(words[role*room+i*pipeline.SpanWords:])
			if err != nil {
				return tracks, err
			}
			if s.Site >= len(t.Sites) {
				return tracks, fmt.Errorf("span %d of the %s is of site %d, there are %d", i, pipeline.TraceRoles()[role], s.Site,
					len(t.Sites))
			}
			if s.Begin == s.End && (s.Begin == 0 || ringWait(t.Sites[s.Site].Name)) {
				continue
			}
			of := slices.Index(pipeline.TraceRoles(), t.Sites[s.Site].Role)
			if of < 0 {
				of = role
			}
			tracks[of].spans = append(tracks[of].spans, s)
		}
	}
	for role := range tracks {
		since := heads[role].Clocks[0]
		slices.SortStableFunc(tracks[role].spans,
			func(a, b pipeline.Span) int { return cmp.Compare(a.End-since, b.End-since) })
	}
	t.whole(&tracks)
	return tracks, nil
}

// whole leaves a CTA's consumers' track until where it has all spans. The producer notes their
// waits for chunks: where it dropped spans, theirs go no further than the last of these. A
// phase is noted behind all that lies in it and before it: so where spans were dropped all are
// there until the last phase ends. What lies behind counts as dropped.
func (t *Trace) whole(tracks *[pipeline.TraceTracks]raw) {
	tr := &tracks[0]
	if tr.Dropped == 0 && tracks[1].Dropped == 0 {
		return
	}
	n := len(tr.spans)
	if tracks[1].Dropped > 0 {
		for n > 0 && t.Sites[tr.spans[n-1].Site].Name != ChunkWait {
			n--
		}
	}
	for n > 0 && t.Sites[tr.spans[n-1].Site].Kind != Phase {
		n--
	}
	tr.Dropped += max(1, len(tr.spans)-n)
	tr.spans = tr.spans[:n]
}

// in is the track with times instead of clocks.
func (r *raw) in(at func(clock uint32) float64) Track {
	last, wraps := 0, 0
	for _, s := range r.spans {
		if s.Step < last && last-s.Step > pipeline.TraceSteps/2 {
			wraps++
		}
		last = s.Step
		r.Spans = append(r.Spans,
			Span{Begin: at(s.Begin), End: at(s.End), Site: s.Site, Step: s.Step + wraps*pipeline.TraceSteps, Layer: s.Layer,
				Detail: s.Detail})
	}
	return r.Track
}

// timeline turns an SM's clock into nanoseconds since begin. A launch takes less than
// 2³² clocks, two seconds.
func timeline(h pipeline.Head, begin uint64) func(clock uint32) float64 {
	first := float64(h.Nanosecond[0] - begin)
	rate := float64(h.Nanosecond[1]-h.Nanosecond[0]) / max(1, float64(h.Clocks[1]-h.Clocks[0]))
	return func(clock uint32) float64 { return first + float64(clock-h.Clocks[0])*rate }
}

// sitesOf are the sites as readers know them: in the innermost region of the program.
func sitesOf(all []pipeline.TraceSite) (sites []Site) {
	for _, s := range all {
		name, phase := s.What, ""
		if n := len(s.Regions); n > 0 {
			phase = s.Regions[n-1]
		}
		if s.Kind == pipeline.TraceSync {
			name, phase = phase, strings.TrimPrefix(phase, "sync after ")
		}
		sites = append(sites, Site{Kind: Kind(s.Kind), Name: name, Role: s.Role, Phase: phase})
	}
	return sites
}
