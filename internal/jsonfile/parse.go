package jsonfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Kind is what a file is wanted to be.
type Kind struct {
	Name   string // with its article: "a profile of mkgen tune"
	What   string // the text of its field what; "": it has none
	Mark   string // otherwise, a field that every such file has, and others have not; "": none
	Format int    // the number in its field format; 0: it has none
}

// Parse reads a JSON object into v, a pointer. First it is looked at what the file is: one
// of another kind, or of another format, is refused by that. Then an unknown field, or
// something behind the object, is an error. Errors are for who does not know Go.
func Parse(data []byte, v any, want Kind) error {
	if err := want.Check(data); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return inWords(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

// Check refuses what is no object, and what is another one than is wanted. What follows
// the object is not looked at.
func (k Kind) Check(data []byte) error {
	var (
		fields map[string]json.RawMessage
		shape  *json.UnmarshalTypeError
		what   string
		format int
	)
	err := json.NewDecoder(bytes.NewReader(data)).Decode(&fields)
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("it is empty, want %s", k.Name)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it ends within the JSON, want %s", k.Name)
	case errors.As(err, &shape):
		return fmt.Errorf("it is JSON of %s, want %s", found(shape.Value), k.Name)
	case err != nil:
		return fmt.Errorf("it is no JSON (%w), want %s", err, k.Name)
	case fields == nil:
		return fmt.Errorf("it is JSON of null, want %s", k.Name)
	}
	is := func(name string, v any) bool { return json.Unmarshal(fields[name], v) == nil }
	mark := k.Mark
	if k.What != "" {
		mark = "what"
	}
	if _, marked := fields[mark]; mark != "" && !marked {
		return fmt.Errorf("it has no field %s, want %s", mark, k.Name)
	}
	if k.What != "" && (!is("what", &what) || what != k.What) {
		return fmt.Errorf("what is %s, want %q: %s", fields["what"], k.What, k.Name)
	}
	if k.Format != 0 && (!is("format", &format) || format != k.Format) {
		if text, there := fields["format"]; there {
			return fmt.Errorf("format is %s, want %d", text, k.Format)
		}
		return fmt.Errorf("it has no field format, want %d", k.Format)
	}
	return nil
}

// inWords says an error of encoding/json without Go's types.
func inWords(err error) error {
	var of *json.UnmarshalTypeError
	if !errors.As(err, &of) {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	want := "an object"
	switch of.Type.Kind() {
	case reflect.String:
		want = "text"
	case reflect.Bool:
		want = "true or false"
	case reflect.Slice, reflect.Array:
		want = "a list"
	case reflect.Float32, reflect.Float64:
		want = "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64:
		want = "a whole number"
	}
	return fmt.Errorf("%s is %s, want %s", of.Field, found(of.Value), want)
}

// found is what encoding/json says that it found: "array", "number 1.5".
func found(value string) string {
	if n, ok := strings.CutPrefix(value, "number "); ok {
		return n
	}
	if w, ok := map[string]string{"array": "a list", "object": "an object", "string": "text", "number": "a number",
		"bool": "true or false"}[value]; ok {
		return w
	}
	return value
}
