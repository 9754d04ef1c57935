package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/tasks/draw"
)

// MaxSequences is the most sequences that a Scheduler runs at a time.
const MaxSequences = 16

// Sequence is one sequence's part of a launch.
type Sequence struct {
	New    []int // tokens to feed, at least one: each a row
	Cached int   // tokens before them, in the cache
	// in order: of Cached + len(New) + Steps - 1 tokens, all of which may be read; those from Cached on are written
	Pages []uint32
	Draw  draw.Rule // how the token that follows the last new one is chosen; the zero value by the highest logit

	// Scored, nil for none, names for each of New the token whose log-probability is wanted behind it, -1 for none: in
	// a launch of one step, and not for the last of New where Draw matters. ScoredTops most probable tokens are
	// wanted beside each.
	Scored     []int
	ScoredTops int
}

// StepRequest is one launch. Its slices are the stepper's until Run returns.
type StepRequest struct {
	Sequences []Sequence // at least one
	Steps     int        // at most; above 1 only when every sequence feeds one token, and then the one it chose
	// Begun, nil for none, is called when the launch runs, on the caller's goroutine and before Each: for what need not
	// be done before. Of several calls only the first does anything, and a stepper may leave it out.
	Begun func()
	// Each is called after every step, in order, on the caller's goroutine: chosen
	// has the token that follows the last new one of each sequence. When
	// it returns false the launch is to end soon.
	Each func(chosen []int) bool
	// Mask, nil for none, is asked for the mask of the next token of each sequence whose Draw has one, when Each has
	// returned true for a step behind which there is another. The stepper is done with the result when it asks again. It
	// may ask for several sequences at once. With nil the masks of Draw are those of all steps.
	Mask func(i int) []uint32
	// Short is whether the sequences, new tokens included, have at most Options.Short tokens each; else all have more.
	Short bool
	// Quiet is whether nobody wants the step's tokens or logits, as of prompts that do not end
	// in it: it ends behind the last layer. One step; Each is not called, and what the step
	// chose is NoToken for every sequence.
	Quiet bool
}

// NoToken is what a quiet step chooses.
const NoToken = -1

// Prefiller is a Stepper that takes more tokens in launches of one step, of one sequence or of several, of each of
// which it has the last token's logits.
type Prefiller interface {
	Stepper
	// PrefillRows is how many tokens such a launch feeds at most; 0: no more than others.
	PrefillRows() int
	// PrefillSequences is how many sequences such a launch has at most, at least 1.
	PrefillSequences() int
	// PrefillLeast is with how many tokens such a launch is no slower than steps of Rows tokens, above Rows.
	PrefillLeast() int
	// PrefillDraws reports whether such a launch chooses tokens as their Draw says; if not, the host does behind it, from
	// all logits.
	PrefillDraws() bool
}

// Stepper runs launches of a ragged kernel.
type Stepper interface {
	// Rows is how many tokens a step feeds at most, at least 1.
	Rows() int
	// Run runs one launch and returns what it chose, for each step that ran the
	// token of each sequence: all Steps of them, fewer when a sequence chose one of
	// the kernel's end tokens, when Each returned false, or when ctx ended, whose
	// error it may return beside them. Perhaps Each has not seen the last of them.
	// A kv.LimitError, perhaps wrapped, says that nothing ran: the sequences are too much
	// at once for the kernel, or the steps. After any other error nothing is known of the
	// tokens this launch was to cache.
	Run(ctx context.Context, r StepRequest) (chosen [][]int, err error)
	// Logits reads those of the last step of the last launch that follow the last
	// new token of sequence i; dst is a vocabulary long.
	Logits(i int, dst []float32) error
	// Scores takes what the last launch has left of log-probabilities, where some Draw wanted scores. Such a launch has
	// at most draw.ScoredSteps steps.
	Scores() (Scores, error)
	// TokenLogprobs are those of the token that Scored of sequence i named for its new token k, in the last launch,
	// when it has ended. token and tops are what the sequence said.
	TokenLogprobs(i, k, token, tops int) (sampling.Logprobs, error)
	// Choice is the token that follows new token k of sequence i by argmax, of such a launch.
	Choice(i, k int) (int, error)
}

// Scores makes the log-probabilities of the token that sequence i chose in a step of a launch, whose Draw wanted
// scores. One goroutine at a time may call it, also while later launches run, until the stepper's Scores or
// TokenLogprobs is called.
type Scores func(i, step, token int) (sampling.Logprobs, error)

// Client is who a job is for. It is called by Add, Step and Close, on their
// goroutine, but for Scored.
type Client interface {
	// Want is how many more tokens the client takes at most. It is asked while the
	// last Take was true, and is at least 1.
	Want() int
	// Draws reports whether the tokens come from Pick and not from the kernel. It may
	// change from true to false with a Take or a Score, and never back. Where the kernel draws
	// nothing it is true as long as the client wants scores of its prompt.
	Draws() bool
	// Draw is how the kernel chooses the tokens while Draws is false.
	Draw() draw.Rule
	// Drafts reports whether the client's tokens may be verified drafts: only those that argmax chooses may.
	Drafts() bool
	// Pick chooses the token at a position of the sequence. An error ends the job.
	Pick(logits []float32, position int) (int, error)
	// ToScore is behind which token of the prompt the client wants the log-probability of the next one, and of n
	// of the most probable ones; math.MaxInt when it wants none. Score is given them, token by token up to the
	// last but one, and moves ToScore on by one. Tokens from ToScore on are fed, also where the cache remembers them.
	ToScore() (from, tops int)
	Score(sampling.Logprobs)
	// Fed is told after a launch how many of its prompt's tokens the cache has, while they are not all.
	Fed(tokens int)
	// Take is given the next token. When it returns false the job ends.
	Take(token int) bool
	// HandOut is called when there is time to hand on what Take was given: at once while the launch runs that chose it,
	// else when the next one runs, and before Scored of these tokens and Leave.
	HandOut()
	// Scored is given the log-probabilities of the tokens that Take was given in a launch, where Draw wanted scores and
	// Draws was false: from another goroutine, perhaps while Take is given those of the next launch.
	Scored([]sampling.Logprobs)
	// Gone reports that the client wants no more, whatever the job does: it then
	// ends soon.
	Gone() bool
	// Leave ends the job; nothing is called after it. err is nil when the client has
	// had enough (Take, Gone), ErrFull when the cache or the model has no room for
	// another token, or what failed.
	Leave(s Stats, err error)
}

// Stats are what a job took.
type Stats struct {
	Reused    int // tokens of the prompt that never were fed: the cache had them
	Fed       int // rows it had, those computed again too
	Preempted int // times it lost its pages to an older one

	Drafted  int // drafts that were fed
	Accepted int // of these, those that argmax chose too
}

// full is the type of ErrFull.
type full struct{}

func (full) Error() string { return "batch: no room for another token" }

// ErrFull ends a job that alone has come to the limit of the cache or the model.
var ErrFull error = full{}

// checked runs a launch and refuses results that cannot be.
func checked(ctx context.Context, st Stepper, r StepRequest) ([][]int, error) {
	chosen, err := st.Run(ctx, r)
	if err != nil && !ended(ctx, err) {
		return nil, err
	}
	if len(chosen) > r.Steps || len(chosen) == 0 && err == nil {
		return nil, fmt.Errorf("a launch of %d steps ran %d", r.Steps, len(chosen))
	}
	for i, tokens := range chosen {
		if len(tokens) != len(r.Sequences) {
			return nil, fmt.Errorf("step %d of %d sequences chose %d tokens", i, len(r.Sequences), len(tokens))
		}
	}
	return chosen, err
}

// ended reports whether err only says that ctx ended.
func ended(ctx context.Context, err error) bool { return ctx.Err() != nil && errors.Is(err, ctx.Err()) }
