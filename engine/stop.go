package engine

import "strings"

// stopper finds the first of several texts in a text that comes in parts. What it
// gives does not depend on how the text is cut.
type stopper struct {
	stops []string
	held  string // the end of the text so far, which may be the beginning of a stop
}

// add takes the next part and gives what can be shown. found says that the text
// has come to a stop, the one that is complete first; then all before it is shown.
func (s *stopper) add(part string) (show string, found bool) {
	text := s.held + part
	end := len(text) + 1
	for _, stop := range s.stops {
		at := strings.Index(text, stop)
		if at < 0 {
			continue
		}
		// Of two that end together the longer one leaves less to show.
		if e := at + len(stop); e < end || e == end && at < len(show) {
			end, show, found = e, text[:at], true
		}
	}
	if found {
		s.held = ""
		return show, true
	}
	at := len(text) - s.open(text)
	s.held = text[at:]
	return text[:at], false
}

// open is the length of the longest end of text that a stop begins with.
func (s *stopper) open(text string) int {
	longest := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// flush gives what was held back, at the end of the text.
func (s *stopper) flush() string {
	held := s.held
	s.held = ""
	return held
}
