package models

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
)

// reader takes typed fields out of one object, adds a problem for each that is
// missing or of the wrong kind, and remembers which names it was asked for.
type reader struct {
	object
	prefix string // put before field names in messages, such as "rope_scaling."
	known  map[string]bool
	p      *problems
}

func newReader(o object, prefix string, p *problems) *reader {
	return &reader{object: o, prefix: prefix, known: map[string]bool{}, p: p}
}

// take marks the field as known and returns its value unless absent or null.
func (r *reader) take(field string) (any, bool) {
	r.known[field] = true
	return r.get(field)
}

func (r *reader) refuse(field string, value any, want, why string) {
	r.p.add(r.prefix+field, show(value), want, why)
}

func (r *reader) missing(field, want string) {
	r.p.add(r.prefix+field, "nothing", want, "")
}

// integer reads a required integer; want bounds it for the message and the
// value is checked against the bounds here, before any arithmetic.
func (r *reader) integer(field string, low, high int) int {
	value, ok := r.take(field)
	if !ok {
		r.missing(field, wantInt(low, high))
		return low
	}
	return r.asInteger(field, value, low, high)
}

// asInteger returns low after reporting a value that is not an integer literal
// in range.
func (r *reader) asInteger(field string, value any, low, high int) int {
	number, ok := value.(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if !ok || err != nil || n < int64(low) || n > int64(high) {
		r.refuse(field, value, wantInt(low, high), "")
		return low
	}
	return int(n)
}

// float reads a number; what an absent field means is the caller's affair.
func (r *reader) float(field string) (x float64, ok bool) {
	value, present := r.take(field)
	if !present {
		return 0, false
	}
	x, ok = toFloat(value)
	if !ok {
		r.refuse(field, value, "a number", "")
	}
	return x, true
}

// required reads a number that must be there.
func (r *reader) required(field string) float64 {
	x, ok := r.float(field)
	if !ok {
		r.missing(field, "a number")
	}
	return x
}

// toFloat converts a JSON number; ok is false for other values and for numbers
// beyond float64.
func toFloat(value any) (x float64, ok bool) {
	number, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseFloat(number.String(), 64)
	return x, err == nil && !math.IsInf(x, 0)
}

// boolean reads true or false, absent being false.
func (r *reader) boolean(field string) bool {
	value, ok := r.take(field)
	if !ok {
		return false
	}
	b, ok := value.(bool)
	if !ok {
		r.refuse(field, value, "true or false", "")
	}
	return b
}

// passOver marks every field as known, where an earlier problem makes it
// pointless to name each.
func (r *reader) passOver() {
	for _, m := range r.object {
		r.known[m.name] = true
	}
}

// others refuses, in the order of the text, the fields that nobody took, are not
// harmless and hold something that changes the mathematics or may do so.
func (r *reader) others() {
	harmless, refused := harmlessFields(), refusedFields()
	if r.prefix != "" {
		harmless, refused = nil, refusedRopeFields()
	}
	for _, m := range r.object {
		if r.known[m.name] || slices.Contains(harmless, m.name) {
			continue
		}
		i := slices.IndexFunc(refused, func(f refusal) bool { return f.name == m.name })
		switch {
		case i < 0:
			r.refuse(m.name, m.value, "a field known to this program",
				"if it does not change the mathematics, delete it from the file")
		case m.value != nil && !refused[i].neutral.holds(m.value):
			r.refuse(m.name, m.value, refused[i].neutral.String(), refused[i].why)
		}
	}
}
