package models

import "fmt"

// String prints base, rotated elements and scaling.
func (r Rope) String() string {
	s := fmt.Sprintf("rope %g", r.Theta)
	if r.Dims > 0 {
		s += fmt.Sprintf(" over %d", r.Dims)
	}
	s += flagged(r.Interleaved, " interleaved")
	if r.Scaling != nil {
		s += " " + r.Scaling.String()
	}
	return s
}

// String prints the rule with its parameters.
func (s *Scaling) String() string {
	text := fmt.Sprintf("%s ×%g beyond %d", s.Type, s.Factor, s.OriginalPositions)
	switch s.Type {
	case ScalingLlama3:
		text += fmt.Sprintf(" (%g to %g)", s.LowFreqFactor, s.HighFreqFactor)
	case ScalingYaRN:
		text += fmt.Sprintf(" (%g to %g%s)", s.BetaFast, s.BetaSlow, flagged(s.Truncate, ", truncated"))
	case ScalingLongRoPE:
		text += fmt.Sprintf(" (%g | %g)", s.ShortFactors, s.LongFactors)
	}
	if f := s.AttentionFactor; f != 0 && f != 1 {
		text += fmt.Sprintf(" attention ×%.6g", f)
	}
	return text
}
