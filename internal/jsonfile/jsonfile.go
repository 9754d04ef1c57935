// Package jsonfile has what files of results have in common: they are read strictly,
// written whole or not at all, and compared by the fields that say what they are of.
package jsonfile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/internal/atomicfile"
)

// Write writes v as indented JSON, whole or not at all, replacing what is there. The
// directory is made; the mode is 0644.
func Write(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'))
}

// Differs names the first field, as JSON calls it, in which a struct is not the one of
// the same type that is wanted, or of a struct within it; nil when there is none. What an empty
// field means, its tag absent says.
func Differs(found, want any) error {
	f, w := reflect.ValueOf(found), reflect.ValueOf(want)
	for i := range f.NumField() {
		if a, b := f.Field(i).Interface(), w.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			if f.Field(i).Kind() == reflect.Struct {
				return Differs(a, b)
			}
			name, _, _ := strings.Cut(f.Type().Field(i).Tag.Get("json"), ",")
			absent := f.Type().Field(i).Tag.Get("absent")
			return fmt.Errorf("%s is %s, want %s", name, shown(a, absent), shown(b, absent))
		}
	}
	return nil
}

// shown is a value with its text in quotes and lists with commas; an empty one is absent.
func shown(v any, absent string) string {
	switch of := reflect.ValueOf(v); {
	case absent != "" && of.IsZero():
		return strconv.Quote(absent)
	case of.Kind() == reflect.String:
		return strconv.Quote(of.String())
	case of.Kind() == reflect.Slice:
		var all []string
		for i := range of.Len() {
			all = append(all, shown(of.Index(i).Interface(), ""))
		}
		return cmp.Or(strings.Join(all, ","), "empty")
	}
	return fmt.Sprint(v)
}
