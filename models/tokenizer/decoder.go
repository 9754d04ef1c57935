package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

var decoderReaders = map[string]reader[decoder]{
	"ByteLevel":    func(string, json.RawMessage) (decoder, error) { return byteLevelDecoder{}, nil },
	"ByteFallback": func(string, json.RawMessage) (decoder, error) { return byteFallback{}, nil },
	"Fuse":         func(string, json.RawMessage) (decoder, error) { return fuse{}, nil },
	"Metaspace":    readMetaspaceDecoder,
	"Replace":      readReplaceDecoder,
	"Strip":        readStripDecoder,
}

// readDecoders reads the decoder. Without one the tokens stand with spaces between them.
func readDecoders(raw json.RawMessage) ([]decoder, error) {
	const place = "decoder"
	list, err := readComponents(place, "decoders", raw, decoderReaders)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 && absent(raw) {
		return []decoder{spaced{}}, nil
	}
	joined := false
	for i, each := range list {
		if r, ok := each.(replaceDecoder); ok && joined && !r.single() {
			return nil, fault(fmt.Sprintf("%s %d", place, i), "Replace after the tokens were joined",
				"Replace before Fuse or ByteLevel, or of one character")
		}
		_, bytes := each.(byteLevelDecoder)
		_, fallback := each.(byteFallback)
		if joined && (bytes || fallback) {
			return nil, fault(fmt.Sprintf("%s %d", place, i), "bytes after the tokens were joined",
				"ByteFallback or ByteLevel before Fuse")
		}
		joined = joined || each.joins()
	}
	return list, nil
}

// spaced puts a space between tokens.
type spaced struct{}

func (spaced) joins() bool      { return true }
func (spaced) start(bool) stage { return &spacedStage{} }

type spacedStage struct{ begun bool }

func (s *spacedStage) add(token string, emit func(string)) {
	if s.begun {
		emit(" ")
	}
	s.begun = true
	emit(token)
}

func (*spacedStage) flush(func(string)) {}

// fuse makes all tokens one; what comes after it sees parts of that one.
type fuse struct{}

func (fuse) joins() bool                         { return true }
func (fuse) start(bool) stage                    { return fuse{} }
func (fuse) add(token string, emit func(string)) { emit(token) }
func (fuse) flush(func(string))                  {}

// replaceDecoder replaces matches within each token.
type replaceDecoder struct{ replace }

func readReplaceDecoder(place string, raw json.RawMessage) (decoder, error) {
	n, err := readReplace(place, raw)
	if err != nil {
		return nil, err
	}
	return replaceDecoder{n.(replace)}, nil
}

// single reports whether no match can lie across the border of two parts of a token.
func (r replaceDecoder) single() bool {
	l, ok := r.pattern.(literal)
	return ok && utf8.RuneCountInString(string(l)) <= 1
}

func (replaceDecoder) joins() bool        { return false }
func (r replaceDecoder) start(bool) stage { return r }

func (r replaceDecoder) add(token string, emit func(string)) {
	p, err := r.normalize(piece{text: token})
	if err != nil {
		panic("BUG: a pattern without bounds of time and stack failed: " + err.Error())
	}
	emit(p.text)
}

func (replaceDecoder) flush(func(string)) {}

// stripDecoder takes up to count characters equal to content off the beginning of each token.
type stripDecoder struct {
	content string
	count   int
}

func readStripDecoder(place string, raw json.RawMessage) (decoder, error) {
	f, err := fields[struct {
		Content string `json:"content"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
	}](place, raw)
	switch {
	case err != nil:
		return nil, err
	case utf8.RuneCountInString(f.Content) != 1:
		return nil, fault(place+".content", quote(f.Content), "one character")
	case f.Start < 0:
		return nil, fault(place+".start", strconv.Itoa(f.Start), "0 or more")
	case f.Stop != 0:
		return nil, fault(place+".stop", strconv.Itoa(f.Stop), "0: the end of a text is not known while it comes")
	}
	return stripDecoder{f.Content, f.Start}, nil
}

func (stripDecoder) joins() bool { return false }

func (s stripDecoder) start(joined bool) stage { return &stripStage{s, s.count, joined} }

type stripStage struct {
	stripDecoder
	left   int // characters that may yet be taken off the token
	joined bool
}

func (s *stripStage) add(token string, emit func(string)) {
	if !s.joined {
		s.left = s.count
	}
	for s.left > 0 && strings.HasPrefix(token, s.content) {
		token = token[len(s.content):]
		s.left--
	}
	if token != "" {
		s.left = 0
	}
	emit(token)
}

func (*stripStage) flush(func(string)) {}

// byteFallback turns each run of byte tokens, spelled <0x0A>, into text.
type byteFallback struct{}

func (byteFallback) joins() bool      { return false }
func (byteFallback) start(bool) stage { return &fallbackStage{} }

// fallbackStage holds back the bytes of a run.
type fallbackStage struct{ run []byte }

func (f *fallbackStage) add(token string, emit func(string)) {
	if b, ok := byteToken(token); ok {
		f.run = append(f.run, b)
		return
	}
	f.flush(emit)
	emit(token)
}

// flush ends the run: text if all of it is UTF-8, else U+FFFD for each byte, each a token.
func (f *fallbackStage) flush(emit func(string)) {
	if len(f.run) == 0 {
		return
	}
	if utf8.Valid(f.run) {
		emit(string(f.run))
	} else {
		for range f.run {
			emit(string(utf8.RuneError))
		}
	}
	f.run = f.run[:0]
}

// byteToken reads a byte token, of either case of hexadecimal digits.
func byteToken(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(b), err == nil
}

// byteName spells the byte token of b.
func byteName(b byte) string { return fmt.Sprintf("<0x%02X>", b) }
