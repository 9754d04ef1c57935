package bench

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
)

// Record is a file of bench/results. Bytes and GB are decimal: 10⁹.
type Record struct {
	GPU     string  `json:"gpu"`    // the product's name, "NVIDIA H200"
	Driver  string  `json:"driver"` // its release, "580.159.04"
	CUDA    string  `json:"cuda"`   // what the driver supports, "13.0"
	Commit  string  `json:"commit"` // of the program, with "+modified" where the tree was
	Options Options `json:"options"`
	Cases   []Case  `json:"cases"`
}

// Options are how the kernel was made: what is absent is megakernel's default, see megakernel.Options.Recorded.
type Options struct {
	Compiler string `json:"compiler"` // "nvcc 13.0.88"
	Pages    string `json:"pages"`    // order of the pages in the cache: "shuffled"
	megakernel.Options
}

// OptionsOf are those of a kernel whose session has a shuffled page table.
func OptionsOf(o megakernel.Options, compiler string) Options {
	return Options{Compiler: compiler, Pages: "shuffled", Options: o.Recorded()}
}

// Case is one model at one context. Times are medians over the rounds, in µs,
// but for the percentiles, which are over single tokens of all rounds. Where a step
// has several rows, times a token are those of a step over its rows, but for the
// percentiles, which are of steps: what each sequence waits.
type Case struct {
	Model           string           `json:"model"`
	DType           string           `json:"dtype"`
	Batch           int              `json:"batch"`            // sequences
	Tokens          int              `json:"tokens,omitempty"` // query rows of a step; absent: 1
	Feed            Shape            `json:"feed,omitempty"`   // what they are
	Choice          string           `json:"choice,omitempty"` // how tokens are chosen; absent: the highest logit
	Context         int              `json:"context"`          // tokens in the cache when a round begins
	TokensPerSecond float64          `json:"tok_s"`            // by the host's clock
	Micros          float64          `json:"us_per_token"`     // by the host's clock
	P50             float64          `json:"p50_us"`
	P99             float64          `json:"p99_us"`
	Max             float64          `json:"max_us"`
	PerTokenFrom    string           `json:"per_token_from"` // what p50, p99 and max are of
	DeviceMicros    float64          `json:"device_us_per_token"`
	BytesPerToken   float64          `json:"bytes_per_token"` // that must be read, on average over a round
	GBps            float64          `json:"gb_s"`            // bytes_per_token over device_us_per_token
	CeilingGBps     float64          `json:"ceiling_gb_s"`
	Ceiling         ceiling.Measured `json:"ceiling"`                      // measured right before
	Share           float64          `json:"share"`                        // gb_s over ceiling_gb_s, 0 to 1
	StepMicros      float64          `json:"device_us_per_step,omitempty"` // of several rows
	// a step of the kernel of one row, a launch each, in the same run
	OneRowMicros float64 `json:"one_row_us,omitempty"`
	Ratio        float64 `json:"step_ratio,omitempty"` // device_us_per_step over one_row_us
	// greedy's device_us_per_token in the same run over this one's
	OfGreedy        float64     `json:"of_greedy,omitempty"`
	Weights         string      `json:"weights"`
	Gate            gate.Record `json:"gate,omitzero"` // none of speeds that are UNGATED
	TokensPerRound  int         `json:"tokens_per_round"`
	TokensPerLaunch int         `json:"tokens_per_launch"`
	// tokens of a round that single steps gave again, bit for bit; of a chunk, its launch
	Replayed int          `json:"replayed,omitempty"`
	Rounds   []RoundTimes `json:"rounds"`
}

// RoundTimes are a round's, in µs a token.
type RoundTimes struct {
	Wall   float64 `json:"us_per_token"`
	Device float64 `json:"device_us_per_token"`
}

// LeastCeilingH200 is the streaming ceiling in GB/s under which something is
// wrong with an H200, or with its use: such a record is void.
const LeastCeilingH200 = 4500

// Void says why a ceiling (GB/s) makes a record of this GPU void, or returns nil.
func Void(gpu string, gbps float64) error {
	if strings.Contains(gpu, "H200") && gbps < LeastCeilingH200 {
		return fmt.Errorf("the streaming ceiling is %.0f GB/s, an H200 has at least %d: something else uses this GPU, or its clocks are low; the measurement is void", gbps, LeastCeilingH200)
	}
	return nil
}

// Check returns nil when the record says everything it must, its figures agree
// with each other and its gates are passed; else all that is wrong, joined.
func (r *Record) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range []struct{ name, value string }{{"gpu", r.GPU}, {"driver", r.Driver}, {"cuda", r.CUDA},
		{"commit", r.Commit}, {"options: compiler", r.Options.Compiler}, {"options: pages", r.Options.Pages}} {
		if f.value == "" {
			bad("%s is empty", f.name)
		}
	}
	o := r.Options
	for _, f := range []struct {
		name string
		n    int
	}{{"consumers", o.Consumers}, {"in_flight", o.InFlight}, {"page", o.Page}, {"sms", o.SMs}, {"splits", o.Splits},
		{"stage_bytes", o.StageBytes}, {"stages", o.Stages}} {
		if f.n < 1 {
			bad("options: %s is %d", f.name, f.n)
		}
	}
	if len(r.Cases) == 0 {
		bad("there are no cases")
	}
	var greedy *Case // of the same context
	for i := range r.Cases {
		c := &r.Cases[i]
		if c.Choice == "" {
			greedy = c
		} else if greedy == nil || greedy.Context != c.Context || !near(c.OfGreedy, greedy.DeviceMicros/c.DeviceMicros) {
			bad("case %d: of_greedy is %v, which the greedy case of its context before it does not make it", i, c.OfGreedy)
		}
		for _, problem := range append(c.problems(), c.disagreements()...) {
			bad("case %d (%s, context %d): %s", i, c.Model, c.Context, problem)
		}
		if err := Void(r.GPU, c.CeilingGBps); err != nil {
			bad("case %d: %w", i, err)
		}
	}
	return errors.Join(errs...)
}

// problems are the rules of the method that a case breaks.
func (c *Case) problems() (all []string) {
	rule := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	rule(c.Model != "" && c.DType != "" && c.PerTokenFrom != "" && c.Weights != "",
		"model, dtype, weights or per_token_from is empty")
	rule(c.Batch >= 1 && c.Context >= 0, "batch %d, context %d", c.Batch, c.Context)
	rows := max(1, c.Tokens)
	want := map[Shape]int{"": 1, Chunk: 1, Sequences: rows}[c.Feed]
	rule(c.Batch == want && (rows > 1) == (c.Feed != ""), "batch %d with %d rows a step of %q, want a batch of %d",
		c.Batch, rows, c.Feed, want)
	rule(len(c.Rounds) >= LeastRounds, "%d rounds, want at least %d", len(c.Rounds), LeastRounds)
	rule(c.TokensPerRound >= LeastTokens, "%d tokens a round, want at least %d", c.TokensPerRound, LeastTokens)
	rule(c.TokensPerLaunch >= 1, "%d tokens a launch", c.TokensPerLaunch)
	all = append(all, c.unlikely()...)
	rule(c.Share <= 1, "share is %.3f, want at most 1: not all bytes came from memory, or they are counted wrongly",
		c.Share)
	rule(c.Gate.Passed, "the gate is not passed: %s", strings.Join(c.Gate.Reasons, "; "))
	if c.Gate.Rules > 0 { // before, none were replayed
		want := c.TokensPerRound
		if c.Feed == Chunk {
			want = rows
		}
		rule(c.Replayed == want, "%d tokens were replayed in single steps, want %d", c.Replayed, want)
	}
	return append(all, c.Gate.Problems()...)
}

// unlikely are figures that no case has, gated or not.
func (c *Case) unlikely() (all []string) {
	for _, x := range []float64{c.TokensPerSecond, c.Micros, c.P50, c.P99, c.Max, c.DeviceMicros, c.BytesPerToken, c.GBps,
		c.CeilingGBps, c.Share} {
		if !(x > 0) || math.IsInf(x, 0) {
			all = append(all, fmt.Sprintf("a figure is %v, want all positive", x))
		}
	}
	if !(c.P50 <= c.P99 && c.P99 <= c.Max) {
		all = append(all, fmt.Sprintf("p50 %.2f, p99 %.2f, max %.2f are not in order", c.P50, c.P99, c.Max))
	}
	return all
}

// Consistent returns nil when the figures are positive and follow from each other, else
// what is wrong. It asks for no gate and for no amount of rounds: see Record.Check.
func (c *Case) Consistent() error {
	if all := append(c.unlikely(), c.disagreements()...); len(all) > 0 {
		return errors.New(strings.Join(all, "; "))
	}
	return nil
}

// rounding is how far a figure may be from what the other, rounded ones make it.
const rounding = 3e-5

func near(got, want float64) bool { return math.Abs(got-want) <= rounding*math.Abs(want) }

// disagreements are the figures that do not follow from the others.
func (c *Case) disagreements() (all []string) {
	var wall, device []float64
	for _, r := range c.Rounds {
		wall, device = append(wall, r.Wall), append(device, r.Device)
	}
	ratio := 0.0
	if c.OneRowMicros > 0 {
		ratio = c.StepMicros / c.OneRowMicros
	}
	for _, f := range []struct {
		name      string
		got, want float64
	}{
		{"us_per_token", c.Micros, median(wall)}, {"device_us_per_token", c.DeviceMicros, median(device)},
		{"tok_s", c.TokensPerSecond, 1e6 / c.Micros}, {"gb_s", c.GBps, c.BytesPerToken / c.DeviceMicros / 1e3},
		{"ceiling_gb_s", c.CeilingGBps, c.Ceiling.GBps}, {"share", c.Share, c.GBps / c.CeilingGBps},
		{"device_us_per_step", c.StepMicros, c.DeviceMicros * float64(c.Tokens)}, {"step_ratio", c.Ratio, ratio},
	} {
		if !near(f.got, f.want) {
			all = append(all, fmt.Sprintf("%s is %v, the others make it %v", f.name, f.got, f.want))
		}
	}
	return all
}

// kind is what a record is, and what Dump writes.
var kind = jsonfile.Kind{Name: "a record of mkgen bench", Mark: "cases"}

// CheckFile refuses data that are neither a record nor what Dump wrote, such as a record
// of another program, which has other fields; the figures are not looked at. gated is
// whether a case of it passed the gate.
func CheckFile(data []byte) (gated bool, err error) {
	if err := kind.Check(data); err != nil {
		return false, err
	}
	r := &Record{}
	if err := jsonfile.Parse(data, r, kind); err != nil {
		return false, fmt.Errorf("%w, want %s", err, kind.Name)
	}
	return slices.ContainsFunc(r.Cases, func(c Case) bool { return c.Gate.Passed }), nil
}

// Parse reads a record strictly: an unknown field, something behind it, and what Check
// finds, is an error.
func Parse(data []byte) (*Record, error) {
	r, err := jsonfile.ParseChecked[Record](data, kind)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	return r, nil
}

// Write checks the record and writes it to a file, whole or not at all; its directory is
// made. Its gates must have been judged by today's rules, which Check does not ask of
// records that are there.
func (r *Record) Write(path string) error {
	err := r.Check()
	for i := range r.Cases {
		if by := r.Cases[i].Gate.Rules; by != gate.RulesVersion {
			err = errors.Join(err, fmt.Errorf("case %d: judged by the gate's rules of version %d, want %d", i, by,
				gate.RulesVersion))
		}
	}
	if err != nil {
		return fmt.Errorf("no record is written: %w", err)
	}
	return r.Dump(path)
}

// Dump writes what was measured to a file, gated or not, for a program that goes on with
// it (bench/compare.py), whole or not at all: it is no record.
func (r *Record) Dump(path string) error {
	return jsonfile.Write(path, r)
}

// Path is where a record goes by default below dir (bench/results): the GPU's
// short name, then date and what was measured; a number is added to a name that is
// taken.
func Path(dir, gpu, what string, day time.Time) string {
	base := filepath.Join(dir, ShortName(gpu), day.UTC().Format(time.DateOnly)+"-"+what)
	path := base + ".json"
	for n := 2; ; n++ {
		if _, err := os.Stat(path); err != nil {
			return path
		}
		path = fmt.Sprintf("%s-%d.json", base, n)
	}
}

// ShortName is the GPU's name for directories: "h200" of "NVIDIA H200".
func ShortName(gpu string) string {
	words := strings.Fields(strings.ToLower(gpu))
	if len(words) > 1 && words[0] == "nvidia" {
		words = words[1:]
	}
	if len(words) == 0 {
		return "unknown"
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, words[0])
}
