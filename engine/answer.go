package engine

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/mkgen/mkgen/tasks/draw"
)

// answer is what a request has got so far, token by token.
type answer struct {
	sampling sampling.Params
	rule     draw.Rule // of sampling, penalties and least
	ends     []int
	most     int  // tokens to choose at most, 0 for no limit
	least    int  // tokens to choose before an end token may be chosen
	drawn    bool // the kernel draws
	start    time.Time
	progress func(fed, of int) // nil for none

	penalties bool               // there are some
	mask      LogitsMask         // nil for none
	allowed   []uint32           // of mask
	masked    bool               // allowed is the next token's
	top       int                // most probable tokens of each, -1 without log-probabilities
	scored    []int              // the prompt, where its log-probabilities are wanted
	scoredTop int                // most probable tokens of each
	raw       []float32          // the logits as they came
	next      *sampling.Logprobs // of the token that pick chose
	failed    error              // why mask took no token

	decoder *tokenizer.Decoder // nil without a tokenizer
	stop    stopper
	text    strings.Builder
	res     Result
}

// answer begins to answer a request with this prompt.
func (o *Options) answer(r *Request, prompt []int, start time.Time) answer {
	a := answer{sampling: r.Sampling, ends: o.Ends, most: r.MaxTokens, start: start,
		stop: stopper{stops: slices.Clone(r.Stop)}, progress: r.Progress, penalties: !r.Penalties.None(), mask: r.Mask,
		top: -1}
	if a.least = r.MinTokens; r.IgnoreEnds {
		a.ends, a.least = nil, 0
	}
	a.ends = slices.Concat(a.ends, r.StopTokens)
	a.rule = r.Sampling.Rule(&r.Penalties, prompt, a.ends, a.least)
	a.drawn = o.draws()
	if a.mask != nil {
		a.allowed = make([]uint32, draw.MaskWords(o.Kernel.Config.Vocab))
	}
	if r.Logprobs {
		a.top = r.TopLogprobs
	}
	if r.PromptLogprobs {
		a.scored, a.scoredTop = prompt, r.TopLogprobs
	}
	a.res.Usage.Prompt = len(prompt)
	if o.Text != nil {
		a.decoder = o.Text.NewDecoder(true)
		if last := prompt[len(prompt)-1]; !o.Text.Special(last) {
			a.decoder.Behind()
		}
	}
	return a
}

// add takes a chosen token and returns what it gives to hand out, without its text where there are no stop texts. It
// sets Finish when the token is the last.
func (a *answer) add(token int) Piece {
	if len(a.res.Tokens) == 0 {
		a.fed(a.res.Usage.Prompt)
		a.res.Usage.First = time.Since(a.start)
	}
	a.res.Tokens = append(a.res.Tokens, token)
	a.rule.Took(token)
	a.accept(token)
	p := Piece{Token: token, Logprobs: a.next}
	switch {
	case slices.Contains(a.ends, token):
		p.Finish = End
	case len(a.stop.stops) > 0 && a.say(&p):
		p.Finish = Stopped
	case len(a.res.Tokens) == a.most:
		p.Finish = Length
	}
	a.res.Finish = p.Finish
	if len(a.res.Tokens) == 1 {
		p.PromptLogprobs = a.res.PromptLogprobs
	}
	a.next = nil
	return p
}

// speak gives pieces that add has made, in order, the texts that it left out.
func (a *answer) speak(pieces []Piece) {
	for i := range pieces {
		if len(a.stop.stops) == 0 && pieces[i].Finish != End {
			a.say(&pieces[i])
		}
	}
}

// say gives a piece the text that its token completes, and reports whether that has come to a stop text.
func (a *answer) say(p *Piece) (stopped bool) {
	if a.decoder == nil {
		return false
	}
	p.Text, stopped = a.stop.add(a.decoder.Add(p.Token))
	a.text.WriteString(p.Text)
	return stopped
}

// accept tells the mask of a token.
func (a *answer) accept(token int) {
	if a.mask != nil && a.failed == nil {
		a.failed, a.masked = a.mask.Accept(token), false
	}
}

// draws reports whether the host chooses the next token from the logits. Once false it stays so: the first
// tokens only are kept from being end tokens.
func (a *answer) draws() bool {
	return !a.drawn && (!a.sampling.Greedy() || a.top >= 0 || a.changes() || a.mask != nil || a.toScore() != math.MaxInt)
}

// changes reports whether penalties or a least length change the next token's logits. Once false it stays so.
func (a *answer) changes() bool { return a.penalties || len(a.res.Tokens) < a.least }

// draw is how the next token is chosen.
func (a *answer) draw() draw.Rule {
	r := a.rule
	if !a.changes() {
		r = draw.Rule{Row: a.sampling.Row()}
	}
	if a.mask != nil {
		if !a.masked {
			a.mask.Mask(a.allowed)
			a.masked = true
		}
		r.SetMask(a.allowed)
	}
	r.SetTops(a.top)
	return r
}

// pick chooses the token at a position of the sequence from its logits, which it changes where
// tokens may not be chosen or have penalties.
func (a *answer) pick(logits []float32, position int) (int, error) {
	if a.top >= 0 {
		a.raw = append(a.raw[:0], logits...)
	}
	r := a.draw()
	r.Change(logits, uint32(position))
	token, err := sampling.Sample(logits, a.sampling, position)
	if err != nil || a.top < 0 {
		return token, err
	}
	l, err := sampling.LogprobsOf(a.raw, token, a.top)
	a.next = &l
	return token, err
}

// fed says how far the prompt is.
func (a *answer) fed(tokens int) {
	if a.progress != nil {
		a.progress(tokens, a.res.Usage.Prompt)
	}
}

// toScore is behind which token of the prompt the log-probability of the next one is wanted; math.MaxInt when there is
// none.
func (a *answer) toScore() int {
	if len(a.scored) < 2 || len(a.res.PromptLogprobs) == len(a.scored)-1 {
		return math.MaxInt
	}
	return len(a.res.PromptLogprobs)
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
	positions := limit == o.Kernel.Config.MaxPositions
	return &FullError{Prompt: a.res.Usage.Prompt, Chosen: len(a.res.Tokens), Limit: limit, Positions: positions,
		Pinned: !positions && o.Pin > 0 && limit == o.positions()}
}
