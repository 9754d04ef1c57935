package tokenizer

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// reader makes a component of its JSON object. place names the object in errors.
type reader[T any] func(place string, raw json.RawMessage) (T, error)

// readComponents reads a component, or the members of a Sequence in the field list. An absent component has no members.
func readComponents[T any](place, list string, raw json.RawMessage, readers map[string]reader[T]) ([]T, error) {
	members, err := flatten(place, list, raw)
	if err != nil {
		return nil, err
	}
	var out []T
	for _, m := range members {
		read, ok := readers[m.kind]
		if !ok {
			return nil, fault(m.place, quote(m.kind), oneOf(readers))
		}
		component, err := read(m.place, m.raw)
		if err != nil {
			return nil, err
		}
		out = append(out, component)
	}
	return out, nil
}

// oneOf lists the kinds that have readers, for errors.
func oneOf[T any](readers map[string]reader[T]) string {
	names := []string{"Sequence"}
	for name := range readers {
		names = append(names, name)
	}
	sort.Strings(names)
	return "one of " + strings.Join(names, ", ")
}

// member is a component of a Sequence, or one that stands alone.
type member struct {
	kind, place string
	raw         json.RawMessage
}

// flatten resolves a Sequence into its members, which the field list holds, and Sequences in it likewise. Any other
// component is a sequence of one; an absent one is empty.
func flatten(place, list string, raw json.RawMessage) ([]member, error) {
	name, err := kind(place, raw)
	switch {
	case err != nil:
		return nil, err
	case name == "":
		return nil, nil
	case name != "Sequence":
		return []member{{name, place, raw}}, nil
	}
	var fields map[string]json.RawMessage
	var members []json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", place, err)
	}
	if err := json.Unmarshal(fields[list], &members); err != nil {
		return nil, fmt.Errorf("%s.%s: %w", place, list, err)
	}
	var out []member
	for i, m := range members {
		inner, err := flatten(fmt.Sprintf("%s %d", place, i), list, m)
		if err != nil {
			return nil, err
		}
		out = append(out, inner...)
	}
	return out, nil
}

// fields reads the fields of a component into a struct.
func fields[T any](place string, raw json.RawMessage) (T, error) {
	var out T
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("%s: %w", place, err)
	}
	return out, nil
}
