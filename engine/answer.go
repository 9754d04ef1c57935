package engine

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/models/tokenizer"
)

// answer is what a request has got so far, token by token.
type answer struct {
	sampling sampling.Params
	ends     []int
	most     int // tokens to choose at most, 0 for no limit
	least    int // tokens to choose before an end token may be chosen
	start    time.Time

	decoder *tokenizer.Decoder // nil without a tokenizer
	stop    stopper
	text    strings.Builder
	res     Result
}

// answer begins to answer a request with so many prompt tokens.
func (o *Options) answer(r *Request, prompt int, start time.Time) answer {
	a := answer{sampling: r.Sampling, ends: o.Ends, most: r.MaxTokens, start: start, stop: stopper{stops: slices.Clone(r.Stop)}}
	if a.least = r.MinTokens; r.IgnoreEnds {
		a.ends, a.least = nil, 0
	}
	a.res.Usage.Prompt = prompt
	if o.Text != nil {
		a.decoder = o.Text.NewDecoder(true)
	}
	return a
}

// add takes a chosen token and returns what it gives to hand out. It sets Finish
// when the token is the last.
func (a *answer) add(token int) Piece {
	if len(a.res.Tokens) == 0 {
		a.res.Usage.First = time.Since(a.start)
	}
	a.res.Tokens = append(a.res.Tokens, token)
	text, stopped := "", false
	end := slices.Contains(a.ends, token)
	if a.decoder != nil && !end {
		text, stopped = a.stop.add(a.decoder.Add(token))
	}
	a.text.WriteString(text)
	switch {
	case end:
		a.res.Finish = End
	case stopped:
		a.res.Finish = Stopped
	case len(a.res.Tokens) == a.most:
		a.res.Finish = Length
	}
	return Piece{token, text, a.res.Finish}
}

// draws reports whether the host chooses the next token from the logits. Once false it stays so
// for a greedy request, whose first tokens only are kept from being end tokens.
func (a *answer) draws() bool { return !a.sampling.Greedy() || len(a.res.Tokens) < a.least }

// pick chooses the token at a position of the sequence from its logits, which it changes where
// an end token may not be chosen yet.
func (a *answer) pick(logits []float32, position int) (int, error) {
	if len(a.res.Tokens) < a.least {
		for _, end := range a.ends {
			logits[end] = float32(math.Inf(-1))
		}
	}
	return sampling.Sample(logits, a.sampling, position)
}

// flush is what was held back, at the end; ok says whether that is anything.
func (a *answer) flush() (p Piece, ok bool) {
	if a.decoder == nil || a.res.Finish == Stopped {
		return Piece{}, false
	}
	text, stopped := a.stop.add(a.decoder.Flush())
	if !stopped {
		text += a.stop.flush()
	}
	a.text.WriteString(text)
	return Piece{Token: NoToken, Text: text}, text != ""
}

// result is what there is, at the end.
func (a *answer) result() Result {
	a.res.Text = a.text.String()
	a.res.Usage.Total = time.Since(a.start)
	return a.res
}

// full ends the answer because no more than limit tokens fit.
func (a *answer) full(limit int, o *Options) error {
	a.res.Finish = KVFull
	return &FullError{Prompt: a.res.Usage.Prompt, Chosen: len(a.res.Tokens), Limit: limit, Positions: limit == o.Kernel.Config.MaxPositions}
}
