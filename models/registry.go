package models

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// All returns every registered configuration, sorted by name, as fresh values:
// the caller may change them.
func All() []Config {
	var all []Config
	for name, text := range lines() {
		all = append(all, published(name, text))
	}
	slices.SortFunc(all, func(a, b Config) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Checked returns those whose kernels every change is checked with: built, verified, compiled, as far as their size
// allows. They are sorted by name and fresh values.
func Checked() []Config {
	var some []Config
	for _, name := range []string{"llama3-70b", "llama3-8b", "llama3.2-1b", "llama3.2-3b", "tiny"} {
		some = append(some, published(name, lines()[name]))
	}
	return some
}

// Names returns the names of the registered configurations, sorted.
func Names() []string { return slices.Sorted(maps.Keys(lines())) }

// Text returns the config.json of a registered model or alias, as far as it matters, as a published file has it; nil
// for another name.
func Text(name string) []byte { return lines()[cmp.Or(aliases()[name], name)] }

// aliases are further names of registered models: the configurations of Llama 3 here are those of 3.1.
func aliases() map[string]string {
	return map[string]string{"llama3.1-8b": "llama3-8b", "llama3.1-70b": "llama3-70b"}
}

// Lookup returns a fresh copy of the configuration registered under name, which
// must match exactly or be an alias: then the copy has the registered name. The error names the closest one.
func Lookup(name string) (Config, error) {
	name = cmp.Or(aliases()[name], name)
	if text, ok := lines()[name]; ok {
		return published(name, text), nil
	}
	if hint := Elsewhere(name); hint != "" {
		return Config{}, errors.New("model: " + hint)
	}
	return Config{}, fmt.Errorf("model: found %q, want one that mkgen models lists; closest is %s", shorten(name),
		closest(name, Names()))
}
