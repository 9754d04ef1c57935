package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// count is a flag that is a whole number from 1; absent it is 0.
type count int

func (c *count) String() string { return strconv.Itoa(int(*c)) }

func (c *count) Type() string { return "n" }

func (c *count) want() string { return fmt.Sprintf("a whole number from 1 to %d", math.MaxInt32) }

func (c *count) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	if err == nil && n < 1 {
		err = errors.New("out of range")
	}
	*c = count(n)
	return err
}

// option is a flag that sets one of a kernel's options.
type option struct {
	megakernel.Option
	of *megakernel.Options
}

func (o *option) String() string {
	if !o.Given(*o.of) {
		return ""
	}
	return o.Get(*o.of)
}

func (o *option) Set(s string) error { return o.Option.Set(o.of, s) }

func (o *option) want() string { return o.Want() }

// IsBoolFlag makes pflag take the flag without a value.
func (o *option) IsBoolFlag() bool { return o.Bool() }

func (o *option) Type() string {
	switch {
	case o.Bool():
		return "bool"
	case o.Number():
		return "n"
	}
	return "string"
}

// optionFlags adds the flags of some options to a command. What help says of a default is in the usage of a number.
func (c *choice) optionFlags(cmd *cobra.Command, of func(megakernel.Option) bool) {
	for _, row := range megakernel.OptionTable() {
		if !of(row) {
			continue
		}
		if row.Default != "" {
			if err := row.Set(&c.opts, row.Default); err != nil {
				panic("BUG: default of --" + row.Flag + ": " + err.Error())
			}
		}
		f := cmd.Flags().VarPF(&option{row, &c.opts}, row.Flag, "", row.Usage)
		if row.Bool() {
			f.NoOptDefVal = "true"
		}
		if row.Number() {
			f.DefValue = ""
		}
	}
}

// speed is a flag that is a bandwidth in GB/s.
type speed float64

func (v *speed) String() string { return strconv.FormatFloat(float64(*v), 'g', -1, 64) }

func (v *speed) Type() string { return "GB/s" }

func (v *speed) want() string { return "GB/s, a number from 1 to 1000000" }

func (v *speed) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err == nil && (math.IsNaN(x) || x < 1 || x > 1e6) {
		err = errors.New("out of range")
	}
	*v = speed(x)
	return err
}

// factor is a flag that is a finite number from 0.
type factor float64

func (v *factor) String() string { return strconv.FormatFloat(float64(*v), 'g', -1, 64) }

func (v *factor) Type() string { return "x" }

func (v *factor) want() string { return "a number from 0" }

func (v *factor) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err == nil && (math.IsNaN(x) || x < 0 || math.IsInf(x, 0)) {
		err = errors.New("out of range")
	}
	*v = factor(x)
	return err
}

// seed is a flag that chooses random numbers.
type seed uint64

func (v *seed) String() string { return strconv.FormatUint(uint64(*v), 10) }

func (v *seed) Type() string { return "n" }

func (v *seed) want() string {
	return fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64))
}

func (v *seed) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 64)
	*v = seed(n)
	return err
}

// patience is a flag that is a time, 0 for no limit.
type patience time.Duration

func (v *patience) String() string { return time.Duration(*v).String() }

func (v *patience) Type() string { return "time" }

func (v *patience) want() string { return "a time such as 10s or 500ms, or 0 for no limit" }

func (v *patience) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err == nil && d < 0 {
		err = errors.New("out of range")
	}
	*v = patience(d)
	return err
}

// choice is what every command that builds a kernel asks for: a model and the
// options.
type choice struct {
	model, config, name string
	ignore              []string // fields of config.json
	arch                string
	opts                megakernel.Options // by optionFlags
	of                  *machine.Machine   // of --machine; nil where that is not given
	machineFile         string             // its file, in commands with machineFlag
	profile             string

	given     func(flag string) bool // of the command; nil before begin
	besideOne bool                   // there is a kernel of one row, whatever --rows
	chose     *chosenBy              // of --profile, once it is read
}

// ignoreField adds the flag whose fields of config.json models.Reading ignores.
func ignoreField(f *pflag.FlagSet, fields *[]string) {
	f.StringSliceVar(fields, "ignore-field", nil,
		"`name`s of unknown fields of config.json to pass over: they must not change the mathematics")
}

// modelFlags adds the flags that say which model.
func (c *choice) modelFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&c.model, "model", "m", "", "registered `name` of the model (mkgen models lists them)")
	f.StringVar(&c.config, "config", "", "Hugging Face config.json `file` of a model instead (docs/families.md)")
	ignoreField(f, &c.ignore)
	f.StringVar(&c.name, "name", "", "what the model of --config is called (default custom)")
}

// flags adds the flags of a choice to a command.
func (c *choice) flags(cmd *cobra.Command) {
	c.modelFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&c.arch, "arch", "sm_90a", "GPU `architecture`")
	c.optionFlags(cmd, func(row megakernel.Option) bool { return row.Group != megakernel.OptionGraph })
	f.StringVar(&c.profile, "profile", "", "`file` of mkgen tune: what it chose, where flags do not say other")
}

// machineFlag adds --machine to a command that predicts nothing.
func (c *choice) machineFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.machineFile, "machine", "",
		"`file` of mkgen calibrate: what syncs are chosen for, where no flag or profile chooses (default: an H200)")
}

// onItsGPU refuses a machine file of another GPU than the one at hand.
func (c *choice) onItsGPU(facts bench.Facts) error {
	if c.machineFile == "" || facts.Executor {
		return nil
	}
	if err := c.of.Is(facts.GPU); err != nil {
		return fmt.Errorf("--machine %s: %w", c.machineFile, err)
	}
	return nil
}

// What --pin-split does, in steps and in a run of requests.
const (
	pinUsage = pinUsageCuts +
		", and read no prefix for several: results are the same bits whatever else a step holds"
	pinRequestUsage = pinUsageCuts +
		", feed prompts in pieces of a fixed length, and read no prefix for several: results are the same bits whatever else runs"
	pinUsageCuts = "with --rows, cut the KV of every sequence at multiples of n tokens, themselves a multiple of a stage's"
)

// load finds the model's configuration, checks the architecture, and takes over what a
// profile says.
func (c *choice) load(cmd *cobra.Command) (models.Config, error) {
	config, err := c.lookup(cmd)
	if err == nil {
		err = c.profiled(cmd, config)
	}
	return config, err
}

// lookup finds the model's configuration and checks the architecture.
func (c *choice) lookup(cmd *cobra.Command) (models.Config, error) {
	if err := c.begin(cmd); err != nil {
		return models.Config{}, err
	}
	given := cmd.Flags().Changed
	switch {
	case given("model") && given("config"):
		return models.Config{}, usagef("--model and --config exclude each other")
	case given("config"):
		if hint := models.Elsewhere(c.config); hint != "" {
			return models.Config{}, usagef("--config %s", hint)
		}
		if info, err := os.Stat(c.config); err == nil && info.IsDir() {
			return models.Config{}, usagef("--config found %s, a directory, want the config.json in it", c.config)
		}
		config, _, err := c.reading().ParseQuantisedFile(c.config) // quantised weights are widened
		if err == nil && given("name") {
			config.Name = c.name
			if err := config.Validate(); err != nil { // only the name is another than it was
				return config, usagef("--%w", err)
			}
		}
		return config, err
	case given("name"):
		return models.Config{}, usagef("--name goes with --config")
	case !given("model"):
		return models.Config{}, usagef("choose a model with --model NAME (mkgen models lists them) or --config FILE")
	}
	config, err := lookupModel(c.model)
	if err != nil {
		return config, usageError{err}
	}
	return config, nil
}

// reading is how config.json files are read.
func (c *choice) reading() models.Reading { return models.Reading{Ignore: c.ignore} }

// begin refuses an architecture that there is no emitter for, and flags that the model or several rows would ignore. It
// reads the file of machineFlag.
func (c *choice) begin(cmd *cobra.Command) error {
	c.given = cmd.Flags().Changed
	if _, err := emit.TargetFor(c.arch); err != nil {
		return usagef("--arch: %w", err)
	}
	if c.given("ignore-field") && !c.given("config") && !c.given("checkpoint") {
		return usagef("--ignore-field goes with --config or --checkpoint, whose config.json has fields")
	}
	if c.machineFile != "" {
		of, err := machine.ReadFile(c.machineFile)
		if err != nil {
			return fmt.Errorf("--machine: %w", err)
		}
		c.of = of
	}
	if c.opts.Tokens > 1 && c.given("splits") && !c.besideOne {
		return usagef("--splits: %d with %d query rows a step, where a launch's plan says how the KV cache is split; want one row", c.opts.Splits, c.opts.Tokens)
	}
	return nil
}

// build builds the kernel.
func (c *choice) build(cmd *cobra.Command) (*megakernel.Kernel, error) {
	config, err := c.load(cmd)
	if err != nil {
		return nil, err
	}
	return c.built(config)
}

// built is the kernel of a configuration that load has made.
func (c *choice) built(config models.Config) (*megakernel.Kernel, error) {
	mk, err := megakernel.Build(config, c.chosen(config))
	return mk, c.inFlags(err)
}

// chosen are the options, with the syncs that they leave open as they cost least on the
// machine of --machine.
func (c *choice) chosen(config models.Config) megakernel.Options {
	if c.of == nil {
		return c.options()
	}
	return c.options().ForMachine(config, c.of)
}

// inFlags says in flags why a kernel cannot be built. An option outside its range is a
// wrong call, as is a ring that does not fit where flags are of the ring. What a profile
// chose is blamed on it.
func (c *choice) inFlags(err error) error {
	if err == nil {
		return nil
	}
	flag, problem := flagOf(err)
	switch text, ring := plannersText(err); {
	case flag != "" && c.chose != nil && c.chose.flags[flag]:
		return c.chose.blame(flag, problem, "")
	case flag != "":
		return usagef("--%s: %s", flag, problem)
	case ring && c.chose != nil:
		return c.chose.blame("", text, c.ofRing())
	case ring:
		if flags := c.ofRing(); flags != "" {
			return usagef("%s: %s", flags, text)
		}
		return errors.New(text)
	}
	return err
}

// flagOf is the flag of an option that cannot be, and what was found and is wanted; "" is
// an error of none.
func flagOf(err error) (flag, problem string) {
	var refused *megakernel.OptionError
	if errors.As(err, &refused) {
		if refused.Option == "Trace" {
			return "spans", refused.Problem
		}
		return megakernel.FlagOf(refused.Option), refused.Problem
	}
	text, _ := plannersText(err)
	for _, field := range []string{"StageBytes", "Stages", "InFlight", "Leads"} {
		if problem, ok := strings.CutPrefix(text, field+" is "); ok {
			// The planner's 0 stands for a flag that is not given.
			return megakernel.FlagOf(field), "found " + strings.Replace(problem, "want 0 to ", "want 1 to ", 1)
		}
	}
	return "", ""
}

// plannersText is what the planner says in an error, also of one kernel of a graph.
func plannersText(err error) (text string, ok bool) {
	for ; err != nil && !ok; err = errors.Unwrap(err) {
		text, ok = strings.CutPrefix(err.Error(), "pipeline: ")
	}
	return text, ok
}

// inFlagsOfOne is inFlags of a kernel of one row where one of several could be built; why
// says what it is one row for.
func (c *choice) inFlagsOfOne(err error, why string) error {
	var refused *megakernel.OptionError
	if errors.As(err, &refused) {
		err = &megakernel.OptionError{Option: refused.Option, Problem: refused.Problem + "; " + why}
	}
	return c.inFlags(err)
}

// ofRing are the flags that were given of those that decide the ring: "--stages, --leads".
func (c *choice) ofRing() string {
	var all []string
	for _, name := range []string{"stages", "stage-bytes", "in-flight", "leads"} {
		if c.given != nil && c.given(name) {
			all = append(all, "--"+name)
		}
	}
	return strings.Join(all, ", ")
}

func (c *choice) options() megakernel.Options { return c.opts }
