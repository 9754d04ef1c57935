package serve

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// spelled is a token as log-probabilities name it.
type spelled struct {
	name   string // what is no text alone is spelled in bytes
	quoted []byte // that as JSON
	shown  int    // characters that begin in it; none in special tokens, which no text shows

	token []byte // its text as JSON, with U+FFFD for what is no text
	bytes []byte // its bytes as JSON
}

// spellings are those that were asked for, by token. They are made once: a token with 20 log-probabilities has 21.
type spellings []atomic.Pointer[spelled]

// spelled is a token's spelling.
func (s *Server) spelled(token int) *spelled {
	if known := s.names[token].Load(); known != nil {
		return known
	}
	var text []byte
	if s.o.Text == nil {
		text = []byte(s.textOf([]int{token}))
	} else {
		text, _ = s.o.Text.Bytes(token)
	}
	one := &spelled{name: string(text)}
	if !utf8.Valid(text) {
		var out strings.Builder
		out.WriteString("bytes:")
		for _, x := range text {
			fmt.Fprintf(&out, `\x%02x`, x)
		}
		one.name = out.String()
	}
	one.quoted = appendString(nil, one.name)
	for _, b := range text {
		if utf8.RuneStart(b) && (s.o.Text == nil || !s.o.Text.Special(token)) {
			one.shown++
		}
	}
	one.token, one.bytes = appendString(nil, strings.ToValidUTF8(string(text), "\ufffd")), []byte{'['}
	for i, b := range text {
		if i > 0 {
			one.bytes = append(one.bytes, ',')
		}
		one.bytes = strconv.AppendUint(one.bytes, uint64(b), 10)
	}
	one.bytes = append(one.bytes, ']')
	s.names[token].Store(one)
	return one
}
