package jinja

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// render renders source with the variables x (1) and messages (a list of two dicts).
func render(source string) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	messages, err := FromJSON([]byte(`[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]`))
	if err != nil {
		return "", err
	}
	return t.Render(map[string]any{"x": 1, "messages": messages}, Options{Now: time.Unix(0, 0).UTC()})
}

func TestMistakesAreNamedWithTheirLine(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{{ x":                         `line 2: a tag that does not end; want }}`,
		"{% if x %}":                      `want a tag among [elif else endif]`,
		"\n\n{% endif %}":                 `line 3: the tag "endif"`,
		"{% include 'x' %}":               `the tag "include"`,
		"{% import '/etc/passwd' as p %}": `the tag "import"`,
		"{% extends 'x' %}":               `the tag "extends"`,
		"{% do x %}":                      `the tag "do"`,
		"{% break %}":                     `break outside of a loop`,
		"{{ x | nofilter }}":              `"nofilter"; want a filter of chat templates`,
		"{{ x is notest }}":               `"notest"; want a test of chat templates`,
		"{{ x $ }}":                       `"$"; want an expression`,
		"{{ }}":                           `the end of the tag; want an expression`,
		"{{ 'a }}":                        `a string that does not end`,
		"{{ '\\ud800' }}":                 `want 4 hexadecimal digits of a character`,
		"{# a":                            `a comment that does not end`,
		"{% raw %}":                       `a raw block that does not end`,
		"{{ (1 }}":                        `a tag that does not end; want }}`,
		"{{ [1 2] }}":                     `"2"; want a comma or ]`,
		"{{ f(a=1, 2) }}":                 `want a named argument`,
		"{{ 99999999999999999999 }}":      `want a number of 64 bits`,
		"{% set if = 1 %}":                `"if"; want a name`,
		"{{ missing.field }}":             `line 1: missing is undefined, which has no attribute field`,
		"{{ missing['item'] }}":           `missing is undefined, which has no attribute item`,
		"{{ missing + 'a' }}":             `missing is undefined + str`,
		"{{ missing() }}":                 `the call of missing is undefined; want a function`,
		"{{ 'a' + 1 }}":                   `str + int`,
		"{{ 'a' < 1 }}":                   `str and int have no order`,
		"{{ 1 in 'a' }}":                  `int in str`,
		"{{ 1 // 0 }}":                    `// by zero`,
		"{{ 9223372036854775807 + 1 }}":   `an integer beyond 64 bits`,
		"{{ 9223372036854775807 * 2 }}":   `an integer beyond 64 bits`,
		"{{ 3 ** 100 }}":                  `an integer beyond 64 bits`,
		"{% for a in 1 %}{% endfor %}":    `int, which is no list`,
		"{% set a, b = [1] %}":            `1 values for 2 names`,
		"{% set x.y = 1 %}":               `a field of x; want a namespace`,
		"{{ messages.append(1) }}":        `the method append, which changes a value`,
		"{{ messages[0].update({}) }}":    `the method update, which changes a value`,
		"{{ 'a'.nope() }}":                `attribute nope of str is undefined; want a function`,
		"{{ {[]: 1} }}":                   `list as a key`,
		"{{ missing | tojson }}":          `filter tojson: missing is undefined; want what JSON has`,
		"{{ strftime_now('%Q') }}":        `the time format "%Q"`,
		"{{ range(1, 2, 0) }}":            `range with step 0`,
		"{{ [1][::0] }}":                  `a slice with step 0`,
		"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}": `macro m: 2 arguments; want at most 1`,
		"{{ '%d' % 'x' }}":                            `%d of str; want`,
		"{{ '%s' % () }}":                             `fewer values than directives`,
		"{{ '%s' % (1, 2) }}":                         `more values than directives`,
		"{{ '%9999s' % 1 }}":                          `want up to 1000 characters`,
		"{{ '%' % 1 }}":                               `want a letter after it`,
		"{{ '{0:>5}'.format(1) }}":                    `the field {0:>5}; want`,
		"{{ '{'.format(1) }}":                         `a single {`,
		"{{ '{}{}'.format(1) }}":                      `the field {}; want`,
		"{{ raise_exception('no ' + 'way') }}":        `no way`,
	} {
		_, err := render(source)
		require.ErrorContains(t, err, want, source)
	}
}

// TestUnknownFiltersMayStandWhereTheyAreNotUsed: as in Jinja, within an if block.
func TestUnknownFiltersMayStandWhereTheyAreNotUsed(t *testing.T) {
	text, err := render("{% if x == 2 %}{{ x | nofilter }}{{ x is notest(1) }}{% endif %}ok")
	require.NoError(t, err)
	require.Equal(t, "ok", text)
	_, err = render("\n{% if x == 1 %}{{ x | nofilter(1) }}{% endif %}")
	require.ErrorContains(t, err, `line 2: "nofilter"; want a filter of chat templates`)
	_, err = render("{% if x is notest %}{% endif %}")
	require.ErrorContains(t, err, `line 1: "notest"; want a test of chat templates`)
	_, err = render("{% if x %}{% endif %}{{ x | nofilter }}")
	require.ErrorContains(t, err, `"nofilter"; want a filter`)
}

func TestHostileTemplatesEnd(t *testing.T) {
	many := func(s string) string { return strings.Repeat(s, maxSource/len(s)) }
	for name, source := range map[string]string{
		"brackets":          "{{ " + strings.Repeat("(", 100000),
		"lists":             "{{ " + strings.Repeat("[", 100000),
		"nots":              "{{ " + strings.Repeat("not ", 50000) + "x }}",
		"minuses":           "{{ " + strings.Repeat("- ", 100000) + "x }}",
		"conditions":        "{{ " + strings.Repeat("x if x else ", 20000) + "x }}",
		"blocks":            many("{% if x %}"),
		"a macro":           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"two macros":        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
		"a recursive loop":  "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"doubling loops":    "{% for a in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 60 }}{% endfor %}",
		"many columns":      "{% for a in range(99999) %}{% set x = [] | slice(99999) %}{% endfor %}",
		"loops":             "{% for a in range(100000) %}{% for b in range(100000) %}{{ a }}{% endfor %}{% endfor %}",
		"empty loops":       "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
		"a long range":      "{{ range(100001) | length }}",
		"a long text":       "{{ 'aaaaaaaa' * 999999999999 }}",
		"a long list":       "{{ [1] * 999999999999 }}",
		"doubled text":      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"doubled with ~":    "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
		"doubled list":      "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
		"doubled dict":      "{% set ns = namespace(s=1) %}{% for i in range(60) %}{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% endfor %}{{ ns.s == ns.s }}",
		"doubled by a join": "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
		"replaced":          "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('a', 'aaaaaaaa') %}{% endfor %}",
		"indented":          "{% set ns = namespace(s='a\\n') %}{% for i in range(9) %}{% set ns.s = (ns.s * 99) | indent(999) %}{% endfor %}",
	} {
		began := time.Now()
		_, err := render(source)
		require.Error(t, err, name)
		require.Less(t, time.Since(began), 20*time.Second, name)
	}
}

func TestLongButFlatTemplatesRender(t *testing.T) {
	text, err := render("{{ " + strings.Repeat("1 + ", 60000) + "1 }}")
	require.NoError(t, err)
	require.Equal(t, "60001", text)
	text, err = render(strings.Repeat("{{ x }}", 30000))
	require.NoError(t, err)
	require.Len(t, text, 30000)
}

func TestOneTemplateManyGoroutines(t *testing.T) {
	template, err := Parse("{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{% for i in range(50) %}{{ m(i) }}{{ {'k': i} | tojson }}{% endfor %}")
	require.NoError(t, err)
	want, err := template.Render(nil, Options{})
	require.NoError(t, err)
	done := make(chan string)
	for range 4 {
		go func() {
			text, _ := template.Render(nil, Options{})
			done <- text
		}()
	}
	for range 4 {
		require.Equal(t, want, <-done)
	}
}

// Functions have no order and are equal to nothing that templates can ask for.
func TestFunctionsAreNotCompared(t *testing.T) {
	for source, want := range map[string]string{
		"{% for a in [1, 2] %}{{ loop.changed(range) }}{% endfor %}":                            "TrueTrue",
		"{{ range == range }}{{ cycler(1) == cycler(1) }}{{ [range].count(range) }}":            "FalseFalse0",
		"{% set j = joiner %}{{ j is callable }}{{ cycler(1) is callable }}{{ j is sameas 1 }}": "TrueFalseFalse",
	} {
		text, err := render(source)
		require.NoError(t, err, source)
		require.Equal(t, want, text, source)
	}
	for source, want := range map[string]string{
		"{% for a in [1] %}{{ loop([2]) }}{% endfor %}": "the call of loop; want a function",
		"{{ dict(**1) }}":                             "** before int; want a dict",
		"{{ dict(a=1, **{'a': 2}) }}":                 "the key a; want other names",
		"{{ dict(**{'a': 2}, b=1) }}":                 `"b"; want )`,
		"{{ 'x' | truncate(1) }}":                     "length 1",
		"{{ [] | batch(0) }}":                         "linecount 0; want an integer from 1",
		"{{ [1].index(2) }}":                          "index of 2, which is not in the list",
		"{{ 'x'.ljust(2, 'ab') }}":                    "want one character",
		"{{ cycler() }}":                              "cycler of 0 values",
		"{{ [{'a': 1}, {'a': 'x'}] | groupby('a') }}": "have no order",
	} {
		_, err := render(source)
		require.ErrorContains(t, err, want, source)
	}
}

// FuzzRender: no template makes the package panic.
func FuzzRender(f *testing.F) {
	for _, seed := range []string{"{% for m in messages %}{{ m.role ~ m['content'] | trim }}{% else %}-{% endfor %}",
		"{{- x -}} {%- raw %}{{ {%- endraw +%}", "{% set a = [1, {'b': (2,)}] | tojson(indent=2) %}{{ a[::-1] }}",
		"{% macro m(a=1) %}{{ caller(a) }}{% endmacro %}{% call(b) m() %}{{ b }}{% endcall %}",
		"{{ 'a' if x is divisibleby 2 else namespace(b=1).b ** -2 // 3 }}",
		"{% for a in x recursive %}{{ loop(a) }}{{ loop.changed(a) }}{% endfor %}{{ cycler(1, 2).next() }}{{ joiner()() }}",
		"{{ x | groupby('a', 1) | batch(2, 0) | slice(3) }}{{ 'a b' | truncate(3, end='') | center(9) }}{{ dict(**{'a': 1}) }}",
		"{# c #}{% set b %}x{% endset %}{{ b.split('x', 1) | map('upper') | list }}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		text, err := render(source)
		if err != nil && text != "" {
			t.Fatalf("text %q and error %v", text, err)
		}
	})
}
