package pipeline

import "fmt"

// TraceSteps is where the number of a step in a span wraps.
const TraceSteps = 1 << (32 - siteBits - layerBits)

// Span is one that a warp noted: SpanWords words of Trace.Spans.
type Span struct {
	Begin, End  uint32 // the SM's clock, low word
	Site        int    // index into Trace.Sites
	Step, Layer int    // the step modulo TraceSteps; −1 before the layers
	Detail      uint32
}

// DecodeSpan reads a span.
func DecodeSpan(words []uint32) (Span, error) {
	if len(words) < SpanWords {
		return Span{}, fmt.Errorf("a span of %d words, want %d", len(words), SpanWords)
	}
	where := words[2]
	return Span{Begin: words[0], End: words[1], Site: int(where % MaxTraceSites),
		Layer: int(where>>siteBits%(1<<layerBits)) - 1, Step: int(where >> (siteBits + layerBits)), Detail: words[3]}, nil
}

// Head is a track's.
type Head struct {
	Spans      int       // noted, more than Capacity where some were lost; 0 where the role has not come to its end
	SM         int       // the hardware's number
	Clocks     [2]uint32 // of the SM when the role began and ended, low words
	Nanosecond [2]uint64 // of the GPU's timer then
}

// DecodeHead reads the head of a track.
func DecodeHead(words []uint32) (h Head, err error) {
	if len(words) < HeadWords {
		return h, fmt.Errorf("a track's head of %d words, want %d", len(words), HeadWords)
	}
	h.Spans, h.SM = int(words[headCount]), int(words[headSM])
	for i, at := range []int{headBegin, headEnd} {
		h.Clocks[i] = words[at]
		h.Nanosecond[i] = uint64(words[at+1]) | uint64(words[at+2])<<32
	}
	return h, nil
}
