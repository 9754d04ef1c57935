package models

import (
	"fmt"
	"slices"
)

// neutral says which value, besides null and absence, makes a refused field
// change nothing.
type neutral uint8

const (
	onlyNull    neutral = iota // no value does
	whenFalse                  // false
	whenTrue                   // true
	whenZero                   // 0 or false
	whenOne                    // 1
	whenEmpty                  // an empty list or object
	whenAllFull                // a list of "full_attention"
	whenSwiGLU                 // "swiglu"
)

// String names the accepted values for a message.
func (n neutral) String() string {
	switch n {
	case onlyNull:
		return "null"
	case whenFalse:
		return "false"
	case whenTrue:
		return "true"
	case whenZero:
		return "0"
	case whenOne:
		return "1"
	case whenEmpty:
		return "null or empty"
	case whenAllFull:
		return `only "full_attention"`
	case whenSwiGLU:
		return `"swiglu"`
	}
	panic(fmt.Sprintf("BUG: models: neutral %d", uint8(n)))
}

// holds reports whether value is the neutral one. Null is not passed in.
func (n neutral) holds(value any) bool {
	switch n {
	case onlyNull:
		return false
	case whenFalse:
		return value == false
	case whenTrue:
		return value == true
	case whenZero:
		x, ok := toFloat(value)
		return value == false || ok && x == 0
	case whenOne:
		x, ok := toFloat(value)
		return ok && x == 1
	case whenEmpty:
		return isEmpty(value)
	case whenAllFull:
		return isAll(value, "full_attention")
	case whenSwiGLU:
		return value == "swiglu"
	}
	panic(fmt.Sprintf("BUG: models: neutral %d", uint8(n)))
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case list:
		return len(v) == 0
	case object:
		return len(v) == 0
	}
	return false
}

// isAll reports whether value is a list of nothing but the given words.
func isAll(value any, words ...string) bool {
	l, ok := value.(list)
	for _, v := range l {
		word, isWord := v.(string)
		ok = ok && isWord && slices.Contains(words, word)
	}
	return ok
}
