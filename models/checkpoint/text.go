package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// jsonText reads JSON of a known form token by token. Unlike json.Unmarshal it
// refuses repeated names and invalid UTF-8, and it never descends into values of
// another form, so that hostile nesting costs nothing.
type jsonText struct {
	*json.Decoder
	file string
}

// newJSONText checks that text is valid JSON before anything looks at its
// meaning. file names it in messages.
func newJSONText(file string, text []byte) (*jsonText, error) {
	if !utf8.Valid(text) {
		return nil, &Problem{File: file, Found: "bytes that are not UTF-8", Want: "UTF-8 text"}
	}
	if !json.Valid(text) {
		return nil, notJSON(file, text)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return &jsonText{d, file}, nil
}

// notJSON puts the place into the JSON package's words.
func notJSON(file string, text []byte) error {
	var any json.RawMessage
	err := json.Unmarshal(text, &any)
	found := "text that is not JSON"
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		found += fmt.Sprintf(" at byte %d", max(0, syntax.Offset-1))
	}
	return &Problem{File: file, Found: found, Want: "one JSON object", Why: fmt.Sprint(err)}
}

// object calls member for each member of the object that comes next; member must
// read the value. of names the object in messages.
func (t *jsonText) object(of string, member func(name string) error) error {
	if err := t.open(of, '{', "an object"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for t.More() {
		token, err := t.Token()
		if err != nil {
			return err
		}
		name := token.(string)
		if seen[name] {
			return &Problem{File: t.file, Tensor: of, Found: fmt.Sprintf("a second %q", shorten(name)), Want: "each name once"}
		}
		seen[name] = true
		if err := member(name); err != nil {
			return err
		}
	}
	_, err := t.Token()
	return err
}

func (t *jsonText) open(of string, want json.Delim, wanted string) error {
	token, err := t.Token()
	if err != nil {
		return err
	}
	if token != want {
		return &Problem{File: t.file, Tensor: of, Found: t.show(token), Want: wanted}
	}
	return nil
}

// text reads a string. what names it in messages, such as "dtype".
func (t *jsonText) text(of, what string) (string, error) {
	token, err := t.Token()
	if err != nil {
		return "", err
	}
	s, ok := token.(string)
	if !ok {
		return "", &Problem{File: t.file, Tensor: of, Found: what + " " + t.show(token), Want: "a string"}
	}
	return s, nil
}

// integers reads a list of integers from 0 to 2^63-1, at most most of them.
func (t *jsonText) integers(of, what string, most int) ([]int64, error) {
	want := fmt.Sprintf("a list of at most %d integers from 0 to 2^63-1", most)
	if err := t.open(of, '[', what+" as "+want); err != nil {
		return nil, err
	}
	values := []int64{}
	for t.More() {
		token, err := t.Token()
		if err != nil {
			return nil, err
		}
		number, _ := token.(json.Number)
		n, err := strconv.ParseUint(string(number), 10, 63)
		if err != nil {
			return nil, &Problem{File: t.file, Tensor: of, Found: what + " with " + t.show(token), Want: want}
		}
		if len(values) == most {
			return nil, &Problem{File: t.file, Tensor: of, Found: fmt.Sprintf("%s of %d or more entries", what, most+1),
				Want: want}
		}
		values = append(values, int64(n))
	}
	_, err := t.Token()
	return values, err
}

// skip reads any value and forgets it.
func (t *jsonText) skip() error {
	for depth := 0; ; {
		token, err := t.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// show describes a token for a message.
func (t *jsonText) show(token json.Token) string {
	switch v := token.(type) {
	case nil:
		return "null"
	case json.Delim:
		return map[json.Delim]string{'{': "an object", '[': "a list"}[v]
	case string:
		return strconv.Quote(shorten(v))
	}
	return shorten(fmt.Sprint(token))
}
