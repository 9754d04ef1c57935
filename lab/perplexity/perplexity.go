// Package perplexity says how well a model's weights predict a text: by the float64 reference, on the CPU, so for small
// models.
package perplexity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/tokenizer"
)

// Tensors delivers weights as bf16 patterns, as checkpoint.Checkpoint and quant.Model do.
type Tensors interface {
	Row(tensor string, row int, dst []half.BF16) error
}

// Result is the cross entropy of predicted tokens.
type Result struct {
	Tokens int     `json:"tokens"` // predicted
	Nats   float64 `json:"nats"`   // in all
}

// Perplexity is e to the mean cross entropy of a token.
func (r Result) Perplexity() float64 { return math.Exp(r.Nats / float64(r.Tokens)) }

// Length returns how many tokens a sequence of a text has at most: 512, or as many as the model has positions.
func Length(c models.Config) int { return min(512, c.MaxPositions) }

// Cut returns the sequences of a text, of Length tokens each but for the last, the first token of each the tokenizer's
// bos, or the model's where the tokenizer names none.
//
// Errors: those of the tokenizer.
func Cut(c models.Config, tok *tokenizer.Tokenizer, text string) (windows [][]int, err error) {
	ids, err := tok.Encode(text, false)
	if err != nil {
		return nil, err
	}
	bos, ok := tok.BOS()
	if !ok {
		bos = c.BOS
	}
	return Windows(ids, bos, Length(c)), nil
}

// Windows cuts a text's tokens into sequences: bos and as many tokens as fit the length, and no sequence of less than
// two.
func Windows(ids []int, bos, length int) (windows [][]int) {
	for part := range slices.Chunk(ids, length-1) {
		windows = append(windows, append([]int{bos}, part...))
	}
	return windows
}

// Most is how many multiplications Measure takes on: about an hour of a core.
const Most = 4e12

// Cost is about how many multiplications n predicted tokens take.
func Cost(c models.Config, tokens int) float64 { return float64(c.ParamCount()) * float64(tokens) }

// Measure computes the cross entropy of every token after the first of each window, given those before it in the
// window, in float64 with no rounding but that of the weights, which are bf16. Progress, if not nil, is called with
// tokens predicted and in all. All processors work on it, a window each; the result does not depend on how many there
// are.
//
// Errors: more work than Most, a token outside the vocabulary, ctx's, and those of the tensors.
func Measure(
	ctx context.Context, c models.Config, t Tensors, windows [][]int, progress func(done, total int),
) (Result, error) {
	tokens := 0
	for _, w := range windows {
		for _, id := range w {
			if id < 0 || id >= c.Vocab {
				return Result{}, fmt.Errorf("found token %d, want 0 to %d", id, c.Vocab-1)
			}
		}
		tokens += len(w) - 1
	}
	if tokens < 1 {
		return Result{}, errors.New("found no token to predict, want a text")
	}
	if cost := Cost(c, tokens); cost > Most {
		const format = "found %d tokens for a model of %d parameters, want at most %d: they are computed in float64 on the CPU"
		return Result{}, fmt.Errorf(format,
			tokens, c.ParamCount(), int(Most/float64(c.ParamCount())))
	}
	weights, err := weightsOf(c, t)
	if err != nil {
		return Result{}, err
	}
	nats := make([]float64, len(windows))
	var (
		next, done atomic.Int64
		wg         sync.WaitGroup
		mu         sync.Mutex
	)
	m, err := reference.NewModel(c, weights, reference.Hooks{})
	if err != nil {
		return Result{}, err
	}
	for range min(runtime.GOMAXPROCS(0), len(windows)) {
		wg.Go(func() {
			m := m.Clone(0)
			for i := next.Add(1) - 1; int(i) < len(windows) && ctx.Err() == nil; i = next.Add(1) - 1 {
				m.Reset()
				nats[i] = entropy(ctx, m, windows[i])
				now := done.Add(int64(len(windows[i]) - 1))
				if progress != nil {
					mu.Lock()
					progress(int(now), tokens)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	r := Result{Tokens: tokens}
	for _, n := range nats { // in their order
		r.Nats += n
	}
	return r, ctx.Err()
}

// entropy is the cross entropy of a window's tokens.
func entropy(ctx context.Context, m *reference.Model, ids []int) (nats float64) {
	for i, id := range ids[1:] {
		if ctx.Err() != nil {
			return 0
		}
		logits := m.Step(ids[i])
		top, sum := slices.Max(logits), 0.0
		for _, x := range logits {
			sum += math.Exp(x - top)
		}
		nats += top + math.Log(sum) - logits[id]
	}
	return nats
}

// weightsOf reads all tensors.
func weightsOf(c models.Config, t Tensors) (reference.Weights, error) {
	weights := reference.Weights{}
	for name, shape := range checkpoint.ShapesOf(c) {
		cols, rows := shape[len(shape)-1], 1
		if len(shape) > 1 {
			rows = shape[0]
		}
		bits := make([]half.BF16, rows*cols)
		for r := range rows {
			if err := t.Row(name, r, bits[r*cols:][:cols]); err != nil {
				return nil, err
			}
		}
		weights[name] = bits
	}
	return weights, nil
}
