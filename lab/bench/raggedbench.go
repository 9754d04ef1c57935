package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
)

// leastChunks is how many steps a round of chunks has at the least.
const leastChunks = 16

// stepRunner is what raggedSteps asks of a RaggedRunner.
type stepRunner interface {
	Steps(ctx context.Context, shape Shape, cached, n int) (Round, error)
}

// raggedSteps is a loaded kernel of several query rows with its yardstick.
type raggedSteps struct {
	Config models.Config
	// KVBytes is the size of a cached token, as in BytesPerToken.
	KVBytes int64
	// WeightBytes is what a step of one row reads of weights, as there.
	WeightBytes int64
	// Format is of the layers' matrices, and HeadFormat of the LM head; "" and bf16 are the model's type.
	Format, HeadFormat pipeline.Format
	Runner             stepRunner
	Rows               int // query rows of a step
	// OneRow has, for a context, what a step of the kernel of one row takes there, in
	// µs of the device, a launch each; without it there are no ratios.
	OneRow map[int]float64
	// Choices are measured one after another of each context's Sequences; see Bench.
	Choices []Choice
	Choose  func(Choice)
	// Ceiling measures the streaming ceiling.
	Ceiling func(ctx context.Context) (ceiling.Measured, error)
	// Replayer replays rounds of a shape in single steps; nil: they are not replayed.
	Replayer func(shape Shape) Replayer
	// Progress hears what is done next; nil is allowed.
	Progress func(what string)
}

// BytesPerStep is what a step must read at the least, averaged over steps (at least
// 1): all matrices and gains once, a row of embeddings for every query row, and the
// cached keys and values of every sequence once. All rows are of one sequence
// (Chunk), the same in every step, or each of its own (Sequences), one token longer
// with every step. weights and kvBytes are as in BytesPerToken.
func BytesPerStep(c models.Config, weights, kvBytes int64, shape Shape, rows, context, steps int) float64 {
	more := float64(rows-1) * 2 * float64(c.Hidden)
	if shape == Chunk {
		return BytesPerToken(c, weights, kvBytes, context, 1) + more
	}
	if weights == 0 {
		weights = c.WeightBytes()
	}
	one := BytesPerToken(c, weights, kvBytes, context, steps)
	return float64(weights) + float64(rows)*(one-float64(weights)) + more
}

// Run measures both shapes for each context, each case right after the ceiling. The gate
// of the cases is not set.
func (b *raggedSteps) Run(ctx context.Context, m Method) (cases []Case, err error) {
	for _, cached := range m.Contexts {
		for _, shape := range []Shape{Sequences, Chunk} {
			if b.Progress != nil {
				b.Progress(fmt.Sprintf("%s, %d rows, context %d", shape, b.Rows, cached))
			}
			choices := b.Choices
			if shape == Chunk {
				choices = nil
			}
			these, err := eachChoice(choices, b.Choose, func() (Case, error) { return b.measure(ctx, m, shape, cached) })
			if err != nil {
				return nil, fmt.Errorf("%s, context %d: %w", shape, cached, err)
			}
			cases = append(cases, these...)
		}
	}
	return cases, nil
}

// steps is how many steps a round has.
func (b *raggedSteps) steps(m Method, shape Shape) int {
	if shape == Chunk {
		return max(leastChunks, (m.Tokens+b.Rows-1)/b.Rows)
	}
	return m.Tokens
}

func (b *raggedSteps) measure(ctx context.Context, m Method, shape Shape, cached int) (Case, error) {
	top, err := b.Ceiling(ctx)
	if err != nil {
		return Case{}, err
	}
	n := b.steps(m, shape)
	if m.WarmUp > 0 {
		if _, err := b.Runner.Steps(ctx, shape, cached, min(m.WarmUp, n)); err != nil {
			return Case{}, err
		}
	}
	var replayer Replayer
	if b.Replayer != nil { // Renew makes the state of all rounds, and of what replays them
		replayer = b.Replayer(shape)
		if err := replayer.Renew(cached, b.appended(shape, n)); err != nil {
			return Case{}, err
		}
	}
	rows := float64(b.Rows)
	c := Case{Model: b.Config.Name, DType: dtypeOf(b.Config, b.Format, b.HeadFormat), Batch: 1, Tokens: b.Rows,
		Feed: shape, Context: cached,
		TokensPerRound: n * b.Rows, TokensPerLaunch: b.Rows, PerTokenFrom: "of steps, each a launch, between events",
		BytesPerToken: BytesPerStep(b.Config, b.WeightBytes, b.KVBytes, shape, b.Rows, cached, n) / rows, Ceiling: top,
		CeilingGBps: top.GBps}
	if shape == Sequences {
		c.Batch, c.TokensPerLaunch, c.PerTokenFrom = b.Rows, n*b.Rows, "from step to step within a launch, by the GPU's clock"
	}
	var chosen []int
	var each []float64
	for range m.Rounds {
		r, err := b.Runner.Steps(ctx, shape, cached, n)
		if err != nil {
			return c, err
		}
		if chosen == nil {
			chosen = r.Chosen
		}
		if !slices.Equal(chosen, r.Chosen) {
			return c, errors.New("two rounds from the same state chose different tokens: the kernel is not deterministic")
		}
		tokens := float64(n) * rows
		c.Rounds = append(c.Rounds, RoundTimes{Wall: micros(r.Wall) / tokens, Device: micros(r.Device) / tokens})
		for _, t := range r.Each {
			each = append(each, micros(t))
		}
	}
	if replayer != nil {
		if c.Replayed, err = b.replay(ctx, replayer, shape, cached, chosen); err != nil {
			return c, err
		}
	}
	c.complete(each)
	if shape == Chunk && b.OneRow[cached] > 0 {
		c.OneRowMicros = significant(b.OneRow[cached])
	}
	c.completeStep()
	return c, nil
}

// appended is how many tokens n steps append to a sequence; those of a chunk are the same each time.
func (b *raggedSteps) appended(shape Shape, n int) int {
	if shape == Chunk {
		return b.Rows
	}
	return n
}

// replay replays the rounds of a case, and says how many tokens came again.
func (b *raggedSteps) replay(ctx context.Context, r Replayer, shape Shape, cached int, chosen []int) (int, error) {
	var first []int
	for i := range b.Rows {
		first = append(first, token(i, b.Config.Vocab))
	}
	steps := 1
	if shape == Sequences {
		steps = len(chosen) / b.Rows
	}
	again := func() (Round, error) { return b.Runner.Steps(ctx, shape, cached, steps) }
	if shape == Chunk {
		return len(first), repeat(r, cached, len(first), chosen[:1], again) // a launch chooses what follows its last row
	}
	return replay(ctx, r, cached, first, chosen, again)
}

// completeStep derives the figures of a step of several rows.
func (c *Case) completeStep() {
	c.StepMicros = significant(c.DeviceMicros * float64(c.Tokens))
	if c.OneRowMicros > 0 {
		c.Ratio = significant(c.StepMicros / c.OneRowMicros)
	}
}

// OneRow measures steps of a kernel of one row, a launch each, at every context of
// the method: the median in µs of the device.
func OneRow(ctx context.Context, r Runner, m Method) (map[int]float64, error) {
	of := map[int]float64{}
	for _, cached := range m.Contexts {
		if _, err := r.Tokens(ctx, cached, max(1, m.WarmUp)); err != nil {
			return nil, err
		}
		var all []float64
		for range m.Rounds * max(leastChunks, m.Tokens) {
			round, err := r.Tokens(ctx, cached, 1)
			if err != nil {
				return nil, err
			}
			all = append(all, micros(round.Device))
		}
		of[cached] = median(all)
	}
	return of, nil
}
