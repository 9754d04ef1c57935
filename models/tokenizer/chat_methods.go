package tokenizer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

type (
	strMethod  = exec.Method[string]
	dictMethod = exec.Method[map[string]any]
)

// strMethods are the engine's, but for those that ask what white space is.
func strMethods() *exec.MethodSet[string] {
	set := map[string]strMethod{
		"strip": strip(strings.TrimFunc), "lstrip": strip(strings.TrimLeftFunc), "rstrip": strip(strings.TrimRightFunc), "split": split,
	}
	for _, name := range [...]string{"capitalize", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isdigit", "islower", "isspace", "isupper", "join",
		"lower", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rpartition", "rsplit", "splitlines", "startswith", "swapcase", "title", "upper", "zfill"} {
		if method, ok := builtins.Methods.Str.Get(name); ok {
			set[name] = method
		}
	}
	return exec.NewMethodSet(set)
}

// strip is Python's strip, lstrip or rstrip, as trims does it.
func strip(trims func(string, func(rune) bool) string) strMethod {
	return func(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
		var chars any
		if err := args.Take(exec.KeywordArgument("chars", exec.AsValue(nil), exec.AnyArgument(&chars))); err != nil {
			return nil, exec.ErrInvalidCall(err)
		}
		if chars == nil {
			return trims(self, pySpace), nil
		}
		set, ok := chars.(string)
		if !ok {
			return nil, fault("strip", fmt.Sprintf("%T", chars), "a string")
		}
		return trims(self, func(r rune) bool { return strings.ContainsRune(set, r) }), nil
	}
}

// split is Python's split.
func split(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
	var sep any
	limit := -1
	if err := args.Take(exec.KeywordArgument("sep", exec.AsValue(nil), exec.AnyArgument(&sep)), exec.KeywordArgument("maxsplit", exec.AsValue(-1), exec.IntArgument(&limit))); err != nil {
		return nil, exec.ErrInvalidCall(err)
	}
	parts := []any{}
	if sep == nil {
		for rest := strings.TrimLeftFunc(self, pySpace); rest != ""; rest = strings.TrimLeftFunc(rest, pySpace) {
			end := strings.IndexFunc(rest, pySpace)
			if end < 0 || len(parts) == limit {
				end = len(rest)
			}
			parts = append(parts, rest[:end])
			rest = rest[end:]
		}
		return parts, nil
	}
	by, ok := sep.(string)
	if !ok || by == "" {
		return nil, fault("split", fmt.Sprintf("separator %#v", sep), "a string that is not empty")
	}
	n := -1
	if limit >= 0 {
		n = limit + 1
	}
	for _, part := range strings.SplitN(self, by, n) {
		parts = append(parts, part)
	}
	return parts, nil
}

// pairs are the entries of a dict in their order; none for another value.
func pairs(v *exec.Value) []*exec.Pair {
	switch d := v.Interface().(type) {
	case *exec.Dict:
		return d.Pairs
	case exec.Dict:
		return d.Pairs
	}
	return v.Items()
}

// dictMethods keep the order of a dict, which the engine's do not, and change none: Hugging Face's templates cannot either.
func dictMethods() *exec.MethodSet[map[string]any] {
	each := func(pick func(*exec.Pair) any) dictMethod {
		return func(_ map[string]any, self *exec.Value, args *exec.VarArgs) (any, error) {
			if err := args.Take(); err != nil {
				return nil, exec.ErrInvalidCall(err)
			}
			list := []any{}
			for _, pair := range pairs(self) {
				list = append(list, pick(pair))
			}
			return list, nil
		}
	}
	return exec.NewMethodSet(map[string]dictMethod{
		"keys":   each(func(p *exec.Pair) any { return p.Key.Interface() }),
		"values": each(func(p *exec.Pair) any { return p.Value.Interface() }),
		"items":  each(func(p *exec.Pair) any { return []any{p.Key.Interface(), p.Value.Interface()} }),
		"get":    dictGet,
	})
}

func dictGet(_ map[string]any, self *exec.Value, args *exec.VarArgs) (any, error) {
	var key, fallback any
	if err := args.Take(exec.PositionalArgument("key", nil, exec.AnyArgument(&key)), exec.PositionalArgument("default", exec.AsValue(nil), exec.AnyArgument(&fallback))); err != nil {
		return nil, exec.ErrInvalidCall(err)
	}
	for _, pair := range pairs(self) {
		if pair.Key.EqualValueTo(exec.AsValue(key)) {
			return pair.Value.Interface(), nil
		}
	}
	return fallback, nil
}

// strftime writes now as Python does in the C locale; directives that it does not know are an error.
func strftime(now time.Time, format string) (string, error) {
	layouts := map[rune]string{
		'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'j': "002", 'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January",
		'y': "06", 'p': "PM", 'I': "03", 'e': "_2", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'f': "000000",
		'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
	}
	unpadded := map[rune]string{'d': "2", 'm': "1", 'I': "3", 'e': "2"}
	var out strings.Builder
	for rest := format; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		if r != '%' {
			out.WriteRune(r)
			continue
		}
		table := layouts
		if strings.HasPrefix(rest, "-") {
			table, rest = unpadded, rest[1:]
		}
		r, size = utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		layout, ok := table[r]
		switch {
		case r == '%':
			out.WriteByte('%')
		case r == 'f':
			fmt.Fprintf(&out, "%06d", now.Nanosecond()/1000)
		case ok:
			out.WriteString(now.Format(layout))
		default:
			return "", fault("strftime_now", quote(format), "directives of Python's strftime such as %d %b %Y")
		}
	}
	return out.String(), nil
}
