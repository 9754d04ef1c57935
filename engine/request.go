package engine

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/models/tokenizer"
)

// Request is one generation. One of Prompt, Messages and Tokens is given; none of
// them is the empty prompt, which a tokenizer may put begin-of-text before. Prompt,
// Messages and Stop need a tokenizer.
type Request struct {
	Prompt   string              // text; the tokenizer puts begin-of-text before it, if it does so
	Messages []tokenizer.Message // a conversation, for the tokenizer's chat template; the assistant's turn is generated
	Tokens   []int               // as they are

	MaxTokens int             // tokens to choose at most; 0 for as many as fit
	Sampling  sampling.Params // the zero value is greedy
	// Penalties change the logits of tokens that were there before, or of any.
	Penalties sampling.Penalties
	// Mask rules tokens out; nil for none. It is the request's from Submit or Generate on.
	Mask LogitsMask
	// Stop are texts that end the generation: the one that is complete first. It is
	// not part of the text, nor is what follows it, and it is never handed out in
	// part. Special tokens are no text, so they match none.
	Stop []string

	// IgnoreEnds has end tokens end nothing: they count as any other token, and give no
	// text where they are special ones. The kernel's launches still end at them.
	IgnoreEnds bool
	// MinTokens is how many tokens are chosen before an end token may be: until then end
	// tokens have probability 0. It means nothing with IgnoreEnds. Stop texts end the generation at any time.
	MinTokens int
	// StopTokens end the generation beside Options.Ends; the one that does is the last of Result.Tokens and gives no
	// text.
	StopTokens []int

	// Logprobs asks for the log-probability of every token chosen, and of the TopLogprobs (at most
	// sampling.MaxLogprobs) most probable ones in its place.
	Logprobs    bool
	TopLogprobs int
	// PromptLogprobs asks for them of the prompt's tokens, too. Then the whole prompt is fed, whatever the cache
	// remembers.
	PromptLogprobs bool

	// Progress, nil for none, is told how many of the prompt's tokens are in the cache: while a long prompt is fed, and
	// once when all are, before the first token. The Engine calls it on a goroutine of its own, and waits for it.
	Progress func(fed, of int)
}

// LogitsMask rules tokens out, step by step: that is how answers are kept to a grammar. It is called by one goroutine
// at a time, but those of several requests at once.
type LogitsMask interface {
	// Mask writes which tokens may be next: bit t%32 of word t/32 is 1 where token t may. At least one may be.
	Mask(allowed []uint32)
	// Accept is told of every token of the answer, the end token too. An error fails the request.
	Accept(token int) error
}

// Finish says why a generation ended.
type Finish string

// The reasons. A generation that failed has none ("").
const (
	End       Finish = "end"       // the model chose an end token
	Stopped   Finish = "stop"      // the text came to one of Request.Stop
	Length    Finish = "length"    // MaxTokens are chosen
	Cancelled Finish = "cancelled" // the context ended, or the caller of Generate wanted no more
	KVFull    Finish = "kv-full"   // the KV cache has no room, or the model no position, for another token
)

// Result is what a generation made.
type Result struct {
	// Text is all text handed out; what Stop cut off is not in it. Bytes that are
	// not UTF-8 are U+FFFD, special tokens are left out.
	Text string
	// Tokens are the tokens chosen: with End the last is the end token, with Stopped
	// the one that completed the stop text.
	Tokens []int
	Finish Finish
	Usage  Usage

	// Logprobs are those of Tokens, and PromptLogprobs those of the prompt's tokens from the second on, each given
	// those before; nil where the request does not ask for them.
	Logprobs       []sampling.Logprobs
	PromptLogprobs []sampling.Logprobs
}

// Usage is what a generation took.
type Usage struct {
	Prompt int           // tokens of the prompt
	Reused int           // of these, tokens that were in the KV cache already
	First  time.Duration // from the call to the first token; 0 when there is none
	Total  time.Duration // from the call to the end

	// Preempted is how often the generation had to give its pages up to older ones,
	// and to feed its tokens again later.
	Preempted int

	// Drafted is how many tokens were fed on trial, with Options.Lookup, and Accepted how many of them the model chose
	// too.
	Drafted, Accepted int
}

// Piece is what a generation hands out at a time.
type Piece struct {
	Token int    // the token just chosen; NoToken for text held back until the end
	Text  string // what may be shown since the last piece, always whole characters; often empty
	// Finish is why the generation ends with this token; empty with all tokens before it. Text that
	// was held back may follow in a piece without a token.
	Finish Finish
	// Logprobs are the token's, where the request asks for them, and PromptLogprobs the prompt's, with the first token.
	Logprobs       *sampling.Logprobs
	PromptLogprobs []sampling.Logprobs
}

// NoToken is the Token of a Piece that only has text.
const NoToken = -1

// FullError says that the KV cache has no room for a token, that the model was not made for its position, or that the
// kernel has no room for another part of a sequence with Pin.
type FullError struct {
	Prompt    int  // tokens of the prompt
	Chosen    int  // tokens chosen until then
	Limit     int  // tokens that fit
	Positions bool // the limit is the model's, not the cache's
	Pinned    bool // the limit is the kernel's, with Pin (kv.Limits.PinnedTokens); a greater Pin has a greater one
}

func (e *FullError) Error() string {
	limit := fmt.Sprintf("the KV cache has room for %d tokens", e.Limit)
	switch {
	case e.Positions:
		limit = fmt.Sprintf("the model was made for %d positions", e.Limit)
	case e.Pinned:
		limit = fmt.Sprintf("a sequence cut at fixed places has room for %d tokens (more with longer parts)", e.Limit)
	}
	if e.Chosen == 0 {
		return fmt.Sprintf("%s, the prompt has %d", limit, e.Prompt)
	}
	return fmt.Sprintf("%s: the prompt has %d, %d more are generated", limit, e.Prompt, e.Chosen)
}

// encode checks a request and makes its prompt tokens.
func (o *Options) encode(r *Request) ([]int, error) {
	given := 0
	for _, there := range []bool{r.Prompt != "", len(r.Messages) > 0, len(r.Tokens) > 0} {
		if there {
			given++
		}
	}
	switch {
	case given > 1:
		return nil, errors.New("request: more than one of Prompt, Messages and Tokens is given")
	case r.MaxTokens < 0:
		return nil, fmt.Errorf("request: MaxTokens is %d, want at least 0", r.MaxTokens)
	case r.MinTokens < 0 || r.MaxTokens > 0 && r.MinTokens > r.MaxTokens:
		return nil, fmt.Errorf("request: MinTokens is %d, want at least 0 and at most MaxTokens", r.MinTokens)
	case o.Text == nil && (r.Prompt != "" || len(r.Messages)+len(r.Stop) > 0):
		return nil, errors.New("request: text (Prompt, Messages or Stop) without a tokenizer; want Tokens")
	}
	for i, stop := range r.Stop {
		if stop == "" || !utf8.ValidString(stop) {
			return nil, fmt.Errorf("request: stop text %d is %q, want UTF-8 that is not empty", i, stop)
		}
	}
	if err := o.checkChoice(r); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	tokens, err := o.tokens(r)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	for _, token := range tokens {
		if vocab := o.Kernel.Config.Vocab; token < 0 || token >= vocab {
			return nil, fmt.Errorf("request: token %d, want 0 to %d", token, vocab-1)
		}
	}
	if len(tokens) == 0 {
		return nil, errors.New("request: the prompt has no tokens")
	}
	return tokens, nil
}

// checkChoice refuses what says how tokens are chosen and makes no sense.
func (o *Options) checkChoice(r *Request) error {
	vocab := o.Kernel.Config.Vocab
	if err := r.Sampling.Check(); err != nil {
		return err
	}
	if err := r.Penalties.Check(vocab); err != nil {
		return err
	}
	for _, token := range r.StopTokens {
		if token < 0 || token >= vocab {
			return fmt.Errorf("stop token %d, want 0 to %d", token, vocab-1)
		}
	}
	switch {
	case r.TopLogprobs < 0 || r.TopLogprobs > sampling.MaxLogprobs:
		return fmt.Errorf("TopLogprobs is %d, want 0 to %d", r.TopLogprobs, sampling.MaxLogprobs)
	case r.TopLogprobs > 0 && !r.Logprobs && !r.PromptLogprobs:
		return fmt.Errorf("TopLogprobs is %d without Logprobs", r.TopLogprobs)
	}
	return nil
}

// tokens is the prompt as tokens.
func (o *Options) tokens(r *Request) ([]int, error) {
	switch {
	case len(r.Tokens) > 0 || o.Text == nil:
		return r.Tokens, nil
	case len(r.Messages) == 0:
		return o.Text.Encode(r.Prompt, true)
	}
	template, err := o.Text.ChatTemplate("")
	if err != nil {
		return nil, err
	}
	text, err := template.Render(r.Messages, tokenizer.ChatOptions{AddGenerationPrompt: true})
	if err != nil {
		return nil, err
	}
	return o.Text.Encode(text, false) // begin-of-text is in it
}
