package serve

import (
	"encoding/json"
	"math"
	"strconv"
)

// Answers are written by appending to bytes: package encoding/json took longer for a token's log-probabilities than a
// step of a small model takes.

// appendString appends a text as JSON, as package encoding/json writes it. Bytes that are not UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if !plain[s[i]] {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic("BUG: a text that is no JSON: " + err.Error())
			}
			return append(dst, quoted...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}

// plain are the bytes that stand for themselves.
var plain = func() (is [256]bool) {
	for b := byte(' '); b <= '~'; b++ {
		is[b] = b != '"' && b != '\\' && b != '<' && b != '>' && b != '&'
	}
	return is
}()

// appendNumber appends a finite number, as package encoding/json writes it.
func appendNumber(dst []byte, x float64) []byte {
	format := byte('f')
	if a := math.Abs(x); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	dst = strconv.AppendFloat(dst, x, format, -1, 64)
	if n := len(dst); format == 'e' && dst[n-4] == 'e' && dst[n-2] == '0' { // e-09
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// appendJSON appends what package encoding/json makes of a value that it can write.
func appendJSON(dst []byte, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("BUG: an answer that is no JSON: " + err.Error())
	}
	return append(dst, data...)
}
