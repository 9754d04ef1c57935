package serve

import (
	"bytes"
	"encoding/json"
)

// split reads the fields of a JSON object: those that are lists of plain token ids, and all as they are spelled, as
// parts of body. Of several with one name it has the last. ok is false for what is no JSON object, and for names with
// escapes, which are left to package encoding/json.
func split(body []byte) (raw map[string]json.RawMessage, lists map[string]ids, ok bool) {
	at, more := next(body, skipSpace(body, 0), '{')
	if !more {
		return nil, nil, false
	}
	raw, lists = map[string]json.RawMessage{}, map[string]ids{}
	for more = at < len(body) && body[at] != '}'; more; at, more = next(body, at, ',') {
		name := body[at:valueEnd(body, at)]
		if !json.Valid(name) || name[0] != '"' || bytes.IndexByte(name, '\\') >= 0 {
			return nil, nil, false
		}
		if at, ok = next(body, at+len(name), ':'); !ok {
			return nil, nil, false
		}
		key := string(name[1 : len(name)-1])
		delete(lists, key)
		list, end := plainIDs(body, at)
		if end > at {
			lists[key] = list
		} else if end = valueEnd(body, at); !json.Valid(body[at:end]) {
			return nil, nil, false
		}
		raw[key] = body[at:end:end]
		at = end
	}
	at, ok = next(body, at, '}')
	return raw, lists, ok && at == len(body)
}

// next goes on behind white space, c and white space. Where c is not there it returns where the first ends.
func next(text []byte, at int, c byte) (end int, there bool) {
	if at = skipSpace(text, at); at == len(text) || text[at] != c {
		return at, false
	}
	return skipSpace(text, at+1), true
}

// skipSpace returns where JSON's white space from byte at on ends.
func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

// mostDepth is how deep a value may not be: package encoding/json takes 10,000 levels, the object around among them.
const mostDepth = 10000

// valueEnd returns where the value from byte at on ends, if it is one of JSON; at where it is too deep.
func valueEnd(text []byte, at int) int {
	start := at
	for depth := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at = quoteEnd(text, at)
		case '[', '{':
			if depth++; depth == mostDepth {
				return start
			}
			continue
		case ']', '}':
			if depth == 0 {
				return at
			}
			depth--
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return at
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return min(at+1, len(text))
		}
	}
	return min(at, len(text))
}

// quoteEnd returns where the string from byte at on has its last quote, or at least the text's length.
func quoteEnd(text []byte, at int) int {
	for at++; at < len(text) && text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at
}
