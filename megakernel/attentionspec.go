package megakernel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/models"
)

// attentionSpec is the attention of a class of layers, as Options.Attention names it.
// Its terms are in the order in which they work: two equal ones are one class.
type attentionSpec []term

// term is a name, and a number where the name takes one.
type term struct {
	name  string
	value float64
}

// The names of terms.
const (
	termCausal    = "causal"
	termHeadScale = "head-scale"
	termStreaming = "streaming"
	termWindow    = "window"
	termSinks     = "sinks"
	termMask      = "mask"
	termSoftCap   = "softcap"
	termALiBi     = "alibi"
	termSigmoid   = "sigmoid"
)

// termKind says what a term takes, and when it works.
type termKind struct {
	name string
	rank int    // terms of a lesser rank first, others as they are written
	want string // of its number; "" for none
	ok   func(v float64) bool
}

// maxWindow bounds windows and sinks.
const maxWindow = maxPositions

// Of a larger cap the error that attention.SoftCap makes of a logit is one that shows, and at
// 1e38 or 1e-38 float32 ends.
const minSoftCap, maxSoftCap = 0.001, 10000.0

func tokensFrom1(v float64) bool { return v == math.Trunc(v) && v >= 1 && v <= maxWindow }
func number(v float64) bool      { return !math.IsInf(v, 0) && !math.IsNaN(v) }

func termKinds() []termKind {
	tokens := fmt.Sprintf("a whole number from 1 to %d", maxWindow)
	return []termKind{
		{termCausal, 0, "", nil},
		{termHeadScale, 1, "", nil},
		{termStreaming, 2, tokens, tokensFrom1},
		{termWindow, 2, tokens, tokensFrom1},
		{termSinks, 3, tokens, tokensFrom1},
		{termMask, 4, "", nil},
		{termSoftCap, 5, fmt.Sprintf("a number from %v to %v", minSoftCap, maxSoftCap),
			func(v float64) bool { return v >= minSoftCap && v <= maxSoftCap }},
		{termALiBi, 5, "", nil},
		{termSigmoid, 6, "a number", number},
	}
}

func kindOf(name string) (termKind, bool) {
	for _, k := range termKinds() {
		if k.name == name {
			return k, true
		}
	}
	return termKind{}, false
}

// maxClasses bounds the kinds of attention in a kernel: each has code and work of its own.
const maxClasses = 4

// parseAttention reads Options.Attention: classes, of which layers take pattern in turn.
func parseAttention(text string, layers int) (classes []attentionSpec, pattern []int, err error) {
	if strings.TrimSpace(text) == "" {
		return []attentionSpec{nil}, []int{0}, nil
	}
	for _, part := range strings.Split(text, "/") {
		s, err := parseSpec(part)
		if err != nil {
			return nil, nil, err
		}
		i := slices.IndexFunc(classes, func(c attentionSpec) bool { return slices.Equal(c, s) })
		if i < 0 {
			i, classes = len(classes), append(classes, s)
		}
		pattern = append(pattern, i)
	}
	if len(classes) > maxClasses {
		return nil, nil, fmt.Errorf("%d kinds in %q, want at most %d", len(classes), text, maxClasses)
	}
	if len(classes) == 1 {
		pattern = pattern[:1]
	}
	if len(pattern) > layers {
		return nil, nil, fmt.Errorf("%d kinds in turn in %q, the model has %s", len(pattern), text,
			plural.Of(layers, "layer"))
	}
	return classes, pattern, nil
}

// Terms returns the terms of a spelling of Options.Attention that is the same for all layers, by name, with their
// numbers, 0 of those without; none of causal attention. The error says what was found, and where kinds take turns.
func Terms(attention string) (map[string]float64, error) {
	classes, pattern, err := parseAttention(attention, math.MaxInt)
	switch {
	case err != nil:
		return nil, err
	case len(pattern) > 1:
		return nil, fmt.Errorf("%d kinds in turn in %q, want one", len(pattern), attention)
	}
	terms := map[string]float64{}
	for _, t := range classes[0] {
		terms[t.name] = t.value
	}
	return terms, nil
}

// parseSpec reads what stands between slashes.
func parseSpec(text string) (s attentionSpec, err error) {
	for _, word := range strings.Split(text, "+") {
		t, err := parseTerm(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		if s.has(t.name) {
			return nil, fmt.Errorf("%s twice in %q", t.name, text)
		}
		s = append(s, t)
	}
	switch windowed := s.has(termWindow) || s.has(termStreaming); {
	case s.has(termCausal) && len(s) > 1:
		return nil, fmt.Errorf("causal, which is attention without anything else, with something else in %q", text)
	case s.has(termCausal):
		return nil, nil
	case s.has(termWindow) && s.has(termStreaming):
		return nil, fmt.Errorf("window and streaming, which is a window, too, in %q; want one", text)
	case s.has(termSinks) && !windowed:
		return nil, fmt.Errorf("sinks without a window in %q; want window=N+sinks=N or streaming=N+sinks=N", text)
	}
	rank := func(t term) int { k, _ := kindOf(t.name); return k.rank }
	slices.SortStableFunc(s, func(a, b term) int { return cmp.Compare(rank(a), rank(b)) })
	return s, nil
}

func parseTerm(word string) (term, error) {
	name, number, given := strings.Cut(word, "=")
	k, ok := kindOf(name)
	if !ok {
		var names []string
		for _, k := range termKinds() {
			names = append(names, k.name)
		}
		return term{}, fmt.Errorf("found %q, want one of %s", name, strings.Join(names, ", "))
	}
	switch {
	case k.want == "" && given:
		return term{}, fmt.Errorf("found %q, want %s without a number", word, name)
	case k.want == "":
		return term{name: name}, nil
	case !given:
		return term{}, fmt.Errorf("found %q, want %s=N, N %s", word, name, k.want)
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !k.ok(v) {
		return term{}, fmt.Errorf("found %q, want %s=N, N %s", word, name, k.want)
	}
	return term{name, v}, nil
}

func (s attentionSpec) has(name string) bool {
	return slices.ContainsFunc(s, func(t term) bool { return t.name == name })
}

// without is s without a term.
func (s attentionSpec) without(name string) (rest attentionSpec) {
	for _, t := range s {
		if t.name != name {
			rest = append(rest, t)
		}
	}
	return rest
}

// whole is a term's number, 0 where it is absent.
func (s attentionSpec) whole(name string) int {
	for _, t := range s {
		if t.name == name {
			return int(t.value)
		}
	}
	return 0
}

// window is the class's sliding window and its sinks; 0 without.
func (s attentionSpec) window() (window, sinks int) {
	return max(s.whole(termWindow), s.whole(termStreaming)), s.whole(termSinks)
}

// String is how Options.Attention has it.
func (s attentionSpec) String() string {
	if len(s) == 0 {
		return termCausal
	}
	var words []string
	for _, t := range s {
		word := t.name
		if k, _ := kindOf(t.name); k.want != "" {
			word += "=" + strconv.FormatFloat(t.value, 'f', -1, 64)
		}
		words = append(words, word)
	}
	return strings.Join(words, "+")
}

// attentionText is Options.Attention of classes in turn; nothing for plain attention.
func attentionText(classes []attentionSpec, pattern []int) string {
	if len(classes) == 1 && len(classes[0]) == 0 {
		return ""
	}
	var words []string
	for _, c := range pattern {
		words = append(words, classes[c].String())
	}
	return strings.Join(words, "/")
}

// ownAttention is Options.Attention of the attention that a model was trained with, nothing for plain attention.
// Windows that no context of the model fills are none.
func ownAttention(c *models.Config) string {
	a := c.Arch()
	var classes []attentionSpec
	var pattern []int
	for l := range a.Layers() {
		var s attentionSpec
		at := &a.Layer(l).Attn
		if at.Window > 0 && at.Window < c.MaxPositions {
			s = append(s, term{termWindow, float64(at.Window)})
		}
		if at.SoftCap > 0 {
			s = append(s, term{termSoftCap, at.SoftCap})
		}
		i := slices.IndexFunc(classes, func(c attentionSpec) bool { return slices.Equal(c, s) })
		if i < 0 {
			i, classes = len(classes), append(classes, s)
		}
		pattern = append(pattern, i)
	}
	return attentionText(classes, pattern[:period(pattern)])
}

// ShrinkWindows is a spelling of Options.Attention, which must be sound, with windows
// of about most tokens at most, so that they hide something in small checks: the
// first has most, the next 3 more and so on, so that kinds of layers stay as many.
func ShrinkWindows(attention string, most int) string {
	specs, pattern, err := parseAttention(attention, math.MaxInt)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for _, s := range specs {
		for i, t := range s {
			if t.name == termWindow || t.name == termStreaming {
				s[i].value = min(t.value, float64(most))
				most += 3
			}
		}
	}
	return attentionText(specs, pattern)
}
