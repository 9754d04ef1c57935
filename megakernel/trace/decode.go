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
		return nil, fmt.Errorf("trace: %d words of heads and %d of spans are those of no whole number of CTAs", len(heads), len(spans))
	}
	all := make([]pipeline.Head, n)
	for i := range all {
		var err error
		if all[i], err = pipeline.DecodeHead(heads[i*pipeline.HeadWords:]); err != nil {
			return nil, err
		}
		if all[i].Spans == 0 {
			return nil, fmt.Errorf("trace: the %s of CTA %d noted nothing, or did not come to their end", pipeline.TraceRoles()[i%perCTA], i/perCTA)
		}
	}
	begin := all[0].Nanosecond[0]
	for _, h := range all {
		begin = min(begin, h.Nanosecond[0])
	}
	t := &Trace{Unit: "ns", Layers: layers, Sites: sitesOf(sites)}
	words := len(spans) / n
	for i, h := range all {
		track, err := decodeTrack(spans[i*words:][:words], h, begin, len(sites))
		if err != nil {
			return nil, fmt.Errorf("trace: CTA %d: %w", i/perCTA, err)
		}
		track.SM, track.Role = i/perCTA, pipeline.TraceRoles()[i%perCTA]
		t.Tracks = append(t.Tracks, t.whole(track))
	}
	return t, nil
}

// whole is a track up to where it has all spans. Of the consumers' hand-offs and inputs are
// noted behind the phase that follows or is around them: so one that dropped spans has all
// until its last phase ends, and what it has behind that counts as dropped.
func (t *Trace) whole(track Track) Track {
	if track.Dropped == 0 || track.Role != Consumers {
		return track
	}
	n := len(track.Spans)
	for n > 0 && t.kind(&track.Spans[n-1]) != Phase {
		n--
	}
	track.Dropped += len(track.Spans) - n
	track.Spans = track.Spans[:n]
	return track
}

// decodeTrack decodes a track's spans, as many as there was room for.
func decodeTrack(words []uint32, h pipeline.Head, begin uint64, sites int) (track Track, err error) {
	kept := min(h.Spans, len(words)/pipeline.SpanWords)
	track.Dropped = h.Spans - kept
	noted := make([]pipeline.Span, kept)
	for i := range noted {
		if noted[i], err = pipeline.DecodeSpan(words[i*pipeline.SpanWords:]); err != nil {
			return track, err
		}
	}
	// Some are noted behind others that end later.
	slices.SortStableFunc(noted, func(a, b pipeline.Span) int { return cmp.Compare(a.End-h.Clocks[0], b.End-h.Clocks[0]) })
	at, last, wraps := timeline(h, begin), 0, 0
	for i, s := range noted {
		if s.Site >= sites {
			return track, fmt.Errorf("span %d is of site %d, there are %d", i, s.Site, sites)
		}
		if s.Step < last && last-s.Step > pipeline.TraceSteps/2 {
			wraps++
		}
		last = s.Step
		track.Spans = append(track.Spans, Span{Begin: at(s.Begin), End: at(s.End), Site: s.Site, Step: s.Step + wraps*pipeline.TraceSteps, Layer: s.Layer, Detail: s.Detail})
	}
	return track, nil
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
		if s.Kind == pipeline.TraceHandoff {
			name, phase = phase, strings.TrimPrefix(phase, "hand-off after ")
		}
		sites = append(sites, Site{Kind: Kind(s.Kind), Name: name, Role: s.Role, Phase: phase})
	}
	return sites
}
