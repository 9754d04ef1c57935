package tokenizer

import "encoding/json"

// span is a part of a text, and whether it may become a piece of its own.
type span struct {
	from, to int
	match    bool
}

// splitter is the pre-tokenizer Split, and what is like it: a pattern and what becomes of its matches.
type splitter struct {
	pattern  pattern
	behavior behavior
	invert   bool // what the pattern does not match counts as match
}

// behavior says what becomes of the matches.
type behavior string

const (
	removed    behavior = "Removed"            // they are dropped
	isolated   behavior = "Isolated"           // each is a piece
	contiguous behavior = "Contiguous"         // neighbours are one piece
	withBefore behavior = "MergedWithPrevious" // each goes to what is before it
	withAfter  behavior = "MergedWithNext"     // each goes to what is after it
)

func (b behavior) check(place string) error {
	switch b {
	case removed, isolated, contiguous, withBefore, withAfter:
		return nil
	}
	return fault(place+".behavior", quote(string(b)),
		"Removed, Isolated, Contiguous, MergedWithPrevious or MergedWithNext")
}

func readSplit(place string, raw json.RawMessage) (preTokenizer, error) {
	f, err := fields[struct {
		Pattern  patternJSON `json:"pattern"`
		Behavior behavior    `json:"behavior"`
		Invert   bool        `json:"invert"`
	}](place, raw)
	if err != nil {
		return nil, err
	}
	if err := f.Behavior.check(place); err != nil {
		return nil, err
	}
	compiled, err := f.Pattern.compile(place)
	return splitter{compiled, f.Behavior, f.Invert}, err
}

func (x splitter) split(p piece, s *scratch, yield func(piece) error) error {
	cut := func(from, to int) error {
		if from == to {
			return nil
		}
		return yield(piece{p.text[from:to], p.first && from == 0})
	}
	if x.behavior == isolated || x.behavior == removed {
		return x.pattern.spans(p.text, s, func(from, to int, match bool) error {
			if x.behavior == removed && match != x.invert {
				return nil
			}
			return cut(from, to)
		})
	}
	s.spans = s.spans[:0]
	err := x.pattern.spans(p.text, s, func(from, to int, match bool) error {
		s.spans = append(s.spans, span{from, to, match != x.invert})
		return nil
	})
	if err != nil {
		return err
	}
	for _, each := range x.behavior.merge(s.spans) {
		if err := cut(each.from, each.to); err != nil {
			return err
		}
	}
	return nil
}

// merge joins spans in place.
func (b behavior) merge(spans []span) []span {
	if b == withAfter {
		return mergeWithNext(spans)
	}
	out, previous := spans[:0], false
	for _, each := range spans {
		joins := each.match == previous
		if b == withBefore {
			joins = each.match && !previous
		}
		previous = each.match
		if joins && len(out) > 0 {
			out[len(out)-1].to = each.to
		} else {
			out = append(out, each)
		}
	}
	return out
}

// mergeWithNext goes from the end to the beginning: of several matches in a row only the last one joins what follows.
func mergeWithNext(spans []span) []span {
	first, previous := len(spans), false
	for i := len(spans) - 1; i >= 0; i-- {
		each := spans[i]
		joins := each.match && !previous
		previous = each.match
		if joins && first < len(spans) {
			spans[first].from = each.from
		} else {
			first--
			spans[first] = each
		}
	}
	return spans[first:]
}
