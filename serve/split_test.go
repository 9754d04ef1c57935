package serve

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// same requires that split takes nothing that package encoding/json refuses, and reads what it takes alike. It reports
// whether it does take it.
func same(t *testing.T, body string) bool {
	var want map[string]json.RawMessage
	err := json.Unmarshal([]byte(body), &want)
	raw, lists, ok := split([]byte(body))
	if !ok {
		return false
	}
	require.NoError(t, err, "%q", body)
	require.Equal(t, want, raw, "%q", body)
	for name, list := range lists {
		tokens, ok := idsByPackageJSON(string(raw[name]))
		require.True(t, ok, "%q", body)
		require.Equal(t, tokens, []int(list), "%q", body)
	}
	return true
}

func TestFieldsAreSplitAsPackageJSONSplitsThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	name := func() string {
		return pick(`"a"`, `"b"`, `"a"`, `"ä, [{"`, `""`, `"\u0061"`, `a`, `"a`, `1`, "\"\t\"")
	}
	var value func(depth int) string
	list := func(open, end string, one func() string) string {
		var all []string
		for range r.IntN(4) {
			all = append(all, pick("", "", " ")+one()+pick("", "", "\n"))
		}
		return open + strings.Join(all, pick(",", ",", ",", ",", ",", ",", ";")) + pick(end, end, end, end, end, end, ","+end)
	}
	value = func(depth int) string {
		switch r.IntN(8 - depth) {
		case 0:
			return pick("1", "0", "-1", "01", "1.5e3", "true", "null", "nul", "", "12", "1 2", "é")
		case 1:
			return pick(`"text"`, `"\"]}\\"`, `"a\"`, `"\x"`, `"ä, :"`, `""`, "\"\n\"")
		case 2, 3:
			return list("[", pick("]", "]", "]", "]", "}"), func() string { return pick("1", "22", "0", "-3") })
		case 4:
			return list("[", "]", func() string { return value(depth + 1) })
		}
		return list("{", "}", func() string { return name() + pick(":", ":", ":", " : ") + value(depth+1) })
	}
	taken := 0
	for range 100_000 {
		body := pick("", " ") + list("{", "}", func() string {
			return name() + pick(":", ":", ":", " : ", "") + value(0)
		}) + pick("", "", "\n", "}", "{}")
		if same(t, body) {
			taken++
		}
	}
	require.Greater(t, taken, 10_000)
}

func TestPlainBodiesNeedNoPackageJSON(t *testing.T) {
	for _, body := range []string{`{}`, ` { } `, `{"prompt":[1, 2,3 ],"stop":["a]","b\"}"],"n":1}`, `{"prompt":[[1],[2]]}`,
		"{\n\t\"prompt\": \"a\\u0062\",\r\n \"model\": null\n}\n", `{"a":1,"a":[2],"a":"3"}`, `{"a":[2],"a":{"b":[]}}`} {
		require.True(t, same(t, body), body)
	}
}

func FuzzSplit(f *testing.F) {
	for _, seed := range []string{`{"prompt":[1, 2],"a":{"b":["\"]}"]},"c":-1.5e3}`, `{"a":"\ud800\\"}`, `{} {}`, `[{`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if utf8.ValidString(body) { // as parseFields sees to
			same(t, body)
		}
	})
}
