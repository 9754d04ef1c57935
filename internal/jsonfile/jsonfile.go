// Package jsonfile has what files of results have in common: they are read strictly,
// written whole or not at all, and compared by the fields that say what they are of.
package jsonfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/mkgen/mkgen/internal/whole"
)

// Parse reads JSON into v, a pointer. An unknown field, or something behind the value,
// is an error.
func Parse(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("something follows the object")
	}
	return nil
}

// Write writes v as indented JSON, whole or not at all, replacing what is there. The
// directory is made; the mode is 0644.
func Write(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return whole.Write(path, append(text, '\n'))
}

// Differs names the first field, as JSON calls it, in which a struct is not the one of
// the same type that is wanted; nil when there is none.
func Differs(found, want any) error {
	f, w := reflect.ValueOf(found), reflect.ValueOf(want)
	for i := range f.NumField() {
		if a, b := f.Field(i).Interface(), w.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			name, _, _ := strings.Cut(f.Type().Field(i).Tag.Get("json"), ",")
			return fmt.Errorf("%s is %s, want %s", name, shown(a), shown(b))
		}
	}
	return nil
}

// shown is a value with its text in quotes.
func shown(v any) string {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(v)
}
