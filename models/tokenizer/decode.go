package tokenizer

import "strings"

// Decode gives the text of ids; with skipSpecial special tokens are left out. Ids that belong to no token count for
// nothing. Bytes that are not UTF-8 come out as U+FFFD: with ByteLevel one for each maximal part of a character, as in
// Rust and in browsers; with ByteFallback one for each byte token of a run that is not UTF-8 as a whole.
func (t *Tokenizer) Decode(ids []int, skipSpecial bool) string {
	d := t.NewDecoder(skipSpecial)
	for _, id := range ids {
		d.add(id)
	}
	return d.Flush()
}

// Decoder turns ids into text one at a time. What Add and Flush return, concatenated, is what Decode gives for all the
// ids.
type Decoder struct {
	t           *Tokenizer
	skipSpecial bool
	first       func(token string) // puts a token into the first stage
	stages      []stage
	emits       []func(string) // of each stage: into the next one, or into out
	out         strings.Builder
}

// NewDecoder starts a text; with skipSpecial its special tokens are left out.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	d := &Decoder{t: t, skipSpecial: skipSpecial}
	d.begin()
	return d
}

func (d *Decoder) begin() {
	joined := false
	d.stages, d.emits = d.stages[:0], d.emits[:0]
	for _, each := range d.t.decoders {
		d.stages = append(d.stages, each.start(joined))
		joined = joined || each.joins()
	}
	d.first = d.write
	for range d.stages {
		d.emits = append(d.emits, nil)
	}
	for i := len(d.stages) - 1; i >= 0; i-- {
		now, emit := d.stages[i], d.first
		d.emits[i] = emit
		d.first = func(token string) { now.add(token, emit) }
	}
}

func (d *Decoder) write(text string) { d.out.WriteString(text) }

// Behind says that the text stands behind another one: its first token keeps the space that begins a word, which
// SentencePiece's decoders take from a text's first. It comes before the first Add.
func (d *Decoder) Behind() {
	d.first("a")
	d.take()
}

// Add gives the text that id completes. It is empty when id ends within a character, whose bytes are held back until
// the rest has come. A run of byte tokens (ByteFallback) is held back to its end, because all of it decides what it
// stands for.
func (d *Decoder) Add(id int) string {
	d.add(id)
	return d.take()
}

func (d *Decoder) add(id int) {
	if d.t.known(id) && !(d.skipSpecial && d.t.tokens[id].special) {
		d.first(d.t.tokens[id].name)
	}
}

func (d *Decoder) take() string {
	text := d.out.String()
	d.out.Reset()
	return text
}

// Flush ends the text: it gives what was held back, with U+FFFD for an unfinished character. The Decoder is as new
// then.
func (d *Decoder) Flush() string {
	for i, each := range d.stages {
		each.flush(d.emits[i])
	}
	text := d.take()
	d.begin()
	return text
}

// Bytes are what token id adds to a text that has begun, of special tokens their name; false when id belongs to no
// token. Bytes of tokens one after the other may be a character that none of them is.
func (t *Tokenizer) Bytes(id int) ([]byte, bool) {
	if !t.known(id) {
		return nil, false
	}
	name := t.tokens[id].name
	for _, each := range t.decoders {
		switch each.(type) {
		case byteLevelDecoder:
			if text, ok := unmap(name); ok {
				return []byte(text), true
			}
			return []byte(name), true
		case byteFallback:
			if b, ok := byteToken(name); ok {
				return []byte{b}, true
			}
		}
	}
	d := t.NewDecoder(false)
	d.Behind()
	d.first(name)
	return []byte(d.Flush()), true
}
