package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// Limits on a configuration file.
const (
	MaxFileBytes = 1 << 20 // length of the whole text
	MaxDepth     = 16      // objects and lists open at once
)

// object is a JSON object in the order of its text. Values are nil, bool,
// string, json.Number, list or object.
type object []member

type member struct {
	name  string
	value any
}

type list []any

// get returns the value of a member. A member that holds null counts as absent.
func (o object) get(name string) (any, bool) {
	for _, m := range o {
		if m.name == name {
			return m.value, m.value != nil
		}
	}
	return nil, false
}

// readObject reads one JSON object and nothing after it. Unlike json.Unmarshal
// it keeps the order, refuses repeated names and invalid UTF-8, and bounds
// length and depth.
func readObject(r io.Reader) (object, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("config: reading: %w", err)
	}
	if len(text) > MaxFileBytes {
		return nil, fmt.Errorf("config: found more than %d bytes, want at most that many", MaxFileBytes)
	}
	if !utf8.Valid(text) {
		return nil, errors.New("config: found bytes that are not UTF-8, want UTF-8 text")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, syntaxProblem(text, err)
	}
	t := tree{json.NewDecoder(bytes.NewReader(text)), text}
	t.UseNumber()
	value, err := t.value(0)
	if err != nil {
		return nil, err
	}
	o, ok := value.(object)
	if !ok {
		return nil, fmt.Errorf("config: found %s, want an object", show(value))
	}
	return o, nil
}

// syntaxProblem puts line and column before the JSON package's words.
func syntaxProblem(text []byte, err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return fmt.Errorf("config: %w", err)
	}
	return fmt.Errorf("config: %s: %w", place(text, syntax.Offset-1), err)
}

// place returns the line and column of a byte, both counted from 1.
func place(text []byte, offset int64) string {
	before := text[:max(0, min(offset, int64(len(text))))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return fmt.Sprintf("line %d column %d", line, column)
}

// tree builds values from the tokens of a text known to be valid JSON.
type tree struct {
	*json.Decoder
	text []byte
}

func (t tree) value(depth int) (any, error) {
	token, err := t.Token()
	if err != nil {
		return nil, syntaxProblem(t.text, err)
	}
	open, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if depth == MaxDepth {
		return nil, fmt.Errorf("config: %s: found more than %d nested objects and lists, want at most that many",
			place(t.text, t.InputOffset()-1), MaxDepth)
	}
	if open == '{' {
		return t.object(depth + 1)
	}
	return t.list(depth + 1)
}

func (t tree) object(depth int) (any, error) {
	o := object{}
	seen := map[string]bool{}
	for t.More() {
		token, err := t.Token()
		if err != nil {
			return nil, syntaxProblem(t.text, err)
		}
		name := token.(string)
		if seen[name] {
			return nil, fmt.Errorf("config: %s: found a second %q in one object, want each name once",
				place(t.text, t.InputOffset()-1), shorten(name))
		}
		seen[name] = true
		value, err := t.value(depth)
		if err != nil {
			return nil, err
		}
		o = append(o, member{name, value})
	}
	_, err := t.Token()
	return o, err
}

func (t tree) list(depth int) (any, error) {
	l := list{}
	for t.More() {
		value, err := t.value(depth)
		if err != nil {
			return nil, err
		}
		l = append(l, value)
	}
	_, err := t.Token()
	return l, err
}
