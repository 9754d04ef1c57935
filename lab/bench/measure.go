package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
)

// Method says how much is measured.
type Method struct {
	Contexts []int // tokens in the cache when a round begins
	Rounds   int   // counted ones
	Tokens   int   // of a round
	WarmUp   int   // tokens before the rounds of a case
}

// What a record demands, and what Default has.
const (
	LeastRounds = 5
	LeastTokens = 128
)

// DefaultMethod is what records are made with.
func DefaultMethod() Method {
	return Method{Contexts: []int{128, 1024, 3072, 6144, 32768}, Rounds: 7, Tokens: LeastTokens, WarmUp: 64}
}

// Refuse says why a record may not be made so, "" when it may.
func (m Method) Refuse() string {
	switch {
	case m.Rounds < LeastRounds:
		return fmt.Sprintf("%s, want at least %d", plural.Of(m.Rounds, "round"), LeastRounds)
	case m.Tokens < LeastTokens:
		return fmt.Sprintf("%s a round, want at least %d", plural.Of(m.Tokens, "token"), LeastTokens)
	case len(m.Contexts) == 0:
		return "no contexts"
	}
	return ""
}

// Fit returns the contexts at which a model has positions for a round, and the
// others.
func (m Method) Fit(c models.Config) (fit, beyond []int) {
	for _, n := range m.Contexts {
		if n+max(m.Tokens, m.WarmUp) <= c.MaxPositions {
			fit = append(fit, n)
		} else {
			beyond = append(beyond, n)
		}
	}
	return fit, beyond
}

// Positions is how many tokens the KV cache must have room for.
func (m Method) Positions() int {
	if len(m.Contexts) == 0 {
		return 0
	}
	return slices.Max(m.Contexts) + max(m.Tokens, m.WarmUp)
}

// Bench is a loaded kernel with its yardstick.
type Bench struct {
	Config models.Config
	// KVBytes is the size of a cached token, as in BytesPerToken.
	KVBytes int64
	// WeightBytes is what a step reads of weights, as there.
	WeightBytes int64
	// Format is of the layers' matrices, and HeadFormat of the LM head; "" and bf16 are the model's type.
	Format, HeadFormat pipeline.Format
	Runner             Runner
	// Each says in a few words what the times of single tokens are.
	Each string
	// PerLaunch is how many tokens a launch of Runner chooses.
	PerLaunch int
	// Choices are measured one after another at each context, and Choose has Runner and Replayer choose so; nil: greedy
	// alone.
	Choices []Choice
	Choose  func(Choice)
	// Ceiling measures the streaming ceiling.
	Ceiling func(ctx context.Context) (ceiling.Measured, error)
	// Replayer replays the rounds in single steps; nil: they are not replayed.
	Replayer Replayer
	// Progress hears what is done next; nil is allowed.
	Progress func(what string)
}

// Run measures a case for each context and choice, each right after the ceiling. The gate of
// the cases is not set.
func (b *Bench) Run(ctx context.Context, m Method) ([]Case, error) {
	var cases []Case
	for _, cached := range m.Contexts {
		if b.Progress != nil {
			b.Progress(fmt.Sprintf("context %d", cached))
		}
		these, err := eachChoice(b.Choices, b.Choose, func() (Case, error) { return b.measure(ctx, m, cached) })
		if err != nil {
			return nil, fmt.Errorf("context %d: %w", cached, err)
		}
		cases = append(cases, these...)
	}
	return cases, nil
}

func (b *Bench) measure(ctx context.Context, m Method, cached int) (Case, error) {
	top, err := b.Ceiling(ctx)
	if err != nil {
		return Case{}, err
	}
	if m.WarmUp > 0 {
		if _, err := b.Runner.Tokens(ctx, cached, m.WarmUp); err != nil {
			return Case{}, err
		}
	}
	if b.Replayer != nil { // the state of all rounds, and of what replays them
		if err := b.Replayer.Renew(cached, m.Tokens); err != nil {
			return Case{}, err
		}
	}
	rounds, each, chosen, err := b.rounds(ctx, m, cached)
	if err != nil {
		return Case{}, err
	}
	replayed := 0
	if b.Replayer != nil {
		again := func() (Round, error) { return b.Runner.Tokens(ctx, cached, m.Tokens) }
		if replayed, err = replay(ctx, b.Replayer, cached, []int{token(0, b.Config.Vocab)}, chosen, again); err != nil {
			return Case{}, err
		}
	}
	c := Case{Model: b.Config.Name, DType: dtypeOf(b.Config, b.Format, b.HeadFormat), Batch: 1, Context: cached,
		TokensPerRound: m.Tokens, TokensPerLaunch: b.PerLaunch, PerTokenFrom: b.Each,
		BytesPerToken: BytesPerToken(b.Config, b.WeightBytes, b.KVBytes, cached, m.Tokens), Ceiling: top,
		CeilingGBps: top.GBps, Rounds: rounds, Replayed: replayed}
	c.complete(each)
	return c, nil
}

// rounds runs the rounds of a case and collects the times of single tokens in µs, and the tokens that every round
// chose.
func (b *Bench) rounds(ctx context.Context, m Method,
	cached int) (rounds []RoundTimes, each []float64, chosen []int, err error) {
	for range m.Rounds {
		r, err := b.Runner.Tokens(ctx, cached, m.Tokens)
		if err != nil {
			return nil, nil, nil, err
		}
		if chosen == nil {
			chosen = r.Chosen
		}
		if !slices.Equal(chosen, r.Chosen) {
			return nil, nil, nil, errors.New(
				"two rounds from the same state chose different tokens: the kernel is not deterministic")
		}
		n := float64(m.Tokens)
		rounds = append(rounds, RoundTimes{Wall: micros(r.Wall) / n, Device: micros(r.Device) / n})
		for _, t := range r.Each {
			each = append(each, micros(t))
		}
	}
	return rounds, each, chosen, nil
}

// complete derives the figures from the rounds and from the times of single tokens,
// and rounds all of them for the record.
func (c *Case) complete(each []float64) {
	var wall, device []float64
	for _, r := range c.Rounds {
		wall, device = append(wall, r.Wall), append(device, r.Device)
	}
	c.Micros, c.DeviceMicros = median(wall), median(device)
	c.P50, c.P99, c.Max = percentile(each, 50), percentile(each, 99), percentile(each, 100)
	c.TokensPerSecond = 1e6 / c.Micros
	c.GBps = c.BytesPerToken / c.DeviceMicros / 1e3
	c.Share = c.GBps / c.CeilingGBps
	figures := []*float64{&c.Micros, &c.DeviceMicros, &c.P50, &c.P99, &c.Max, &c.TokensPerSecond, &c.GBps, &c.Share,
		&c.CeilingGBps, &c.Ceiling.GBps, &c.Ceiling.Min, &c.Ceiling.Max}
	for i := range c.Rounds {
		figures = append(figures, &c.Rounds[i].Wall, &c.Rounds[i].Device)
	}
	for _, x := range figures {
		*x = significant(*x)
	}
}

// DTypeName is a type's name in records: "bf16".
func DTypeName(d models.DType) string {
	if d == models.BF16 {
		return "bf16"
	}
	return d.String()
}
