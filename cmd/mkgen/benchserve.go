package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/spf13/cobra"
)

// serveBenchFlags are what mkgen bench --serve is told. The load comes from a program that others wrote, and which
// counts tokens and times on its own.
type serveBenchFlags struct {
	url, generator, tokenizer, name string
	concurrency                     contexts
	lengths                         lengths
	requests                        count
}

// lengths are tokens of prompts and of answers.
type lengths [][2]int

func (l *lengths) String() string {
	var words []string
	for _, n := range *l {
		words = append(words, fmt.Sprintf("%d/%d", n[0], n[1]))
	}
	return strings.Join(words, ",")
}

func (l *lengths) Type() string { return "list" }

func (l *lengths) want() string {
	return "tokens of prompt and answer, each at least 1, such as 128/1024,8192/512"
}

func (l *lengths) Set(s string) error {
	var list lengths
	for _, word := range strings.Split(s, ",") {
		in, out, ok := strings.Cut(strings.TrimSpace(word), "/")
		a, err := strconv.ParseUint(in, 10, contextBits)
		b, also := strconv.ParseUint(out, 10, contextBits)
		if err := errors.Join(err, also); err != nil || !ok || a < 1 || b < 1 {
			return errors.New("no two whole numbers with a slash between")
		}
		list = append(list, [2]int{int(a), int(b)})
	}
	*l = list
	return nil
}

// publishedLengths are those of the grid that servers are compared by.
var publishedLengths = lengths{{128, 1024}, {1024, 1024}, {2048, 2048}, {8192, 512}}

func (s *serveBenchFlags) flags(cmd *cobra.Command) {
	s.generator, s.concurrency, s.lengths, s.requests = "aiperf", contexts{1, 4, 16}, publishedLengths, 4
	f := cmd.Flags()
	f.StringVar(&s.url, "serve", "", "measure the server at this `URL` instead, through a load generator")
	f.StringVar(&s.generator, "load-generator", s.generator, "the `program` aiperf or guidellm, with --serve")
	f.StringVar(&s.tokenizer, "tokenizer", "",
		"`directory` of the tokenizer that the load generator counts with (default --checkpoint)")
	f.StringVar(&s.name, "served-name", "", "`name` of the model, with --serve (default --model)")
	f.Var(&s.concurrency, "concurrency", "requests at a time, with --serve")
	f.Var(&s.lengths, "lengths", "tokens of prompt and answer, with --serve")
	f.Var(&s.requests, "requests", "requests of each measurement for each one at a time, with --serve")
}

// servedCase is one measurement; times are milliseconds.
type servedCase struct {
	Concurrency int        `json:"concurrency"`
	In          int        `json:"input_tokens"`
	Out         int        `json:"output_tokens"`
	Requests    int        `json:"requests"`
	First       percentile `json:"ttft_ms"`
	Token       percentile `json:"tpot_ms"`         // of a request, the mean
	Between     percentile `json:"itl_ms,omitzero"` // of two tokens; guidellm has only the means above
	TokenRate   float64    `json:"tok_s"`
}

type percentile struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// served measures a server and prints a line each.
func (b *benchFlags) served(cmd *cobra.Command) error {
	s := &b.server
	s.tokenizer, s.name = cmp.Or(s.tokenizer, b.checkpoint), cmp.Or(s.name, b.model)
	switch {
	case s.tokenizer == "":
		return usagef("--serve takes --tokenizer or --checkpoint: the load generator counts tokens itself")
	case s.name == "":
		return usagef("--serve takes --model or --served-name")
	}
	for _, n := range s.concurrency {
		if n < 1 {
			return usagef("--concurrency: found %d, want at least 1", n)
		}
	}
	if _, err := loadGeneratorOf(s.generator); err != nil {
		return err
	}
	if _, err := exec.LookPath(s.generator); err != nil {
		return fmt.Errorf("--load-generator: %w; pip install %s", err, filepath.Base(s.generator))
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%12s %8s %8s %10s %10s %10s %10s %10s %10s\n", "at a time", "in", "out", "TTFT p50", "p99",
		"TPOT p50", "ITL p50", "p99", "tok/s")
	var cases []servedCase
	for _, length := range s.lengths {
		for _, n := range s.concurrency {
			c, err := s.measure(ctx, cmd.ErrOrStderr(), n, length)
			if err != nil {
				return interrupted(ctx, fmt.Errorf("%d at a time, %d/%d tokens: %w", n, length[0], length[1], err))
			}
			between := func(ms float64) string {
				if c.Between == (percentile{}) {
					return "-"
				}
				return fmt.Sprintf("%.3fms", ms)
			}
			fmt.Fprintf(out, "%12d %8d %8d %8.2fms %8.2fms %8.3fms %10s %10s %10.1f\n", c.Concurrency, c.In, c.Out,
				c.First.P50, c.First.P99, c.Token.P50, between(c.Between.P50), between(c.Between.P99), c.TokenRate)
			cases = append(cases, c)
		}
	}
	if b.cases == "" {
		return nil
	}
	data, err := json.MarshalIndent(map[string]any{"server": s.url, "model": s.name,
		"load_generator": filepath.Base(s.generator), "cases": cases}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(b.cases, append(data, '\n'))
}

// measure lets the load generator run once, after requests that warm the server up.
func (s *serveBenchFlags) measure(ctx context.Context, stderr io.Writer, concurrency int,
	length [2]int) (c servedCase, err error) {
	dir, err := os.MkdirTemp("", "mkgen-serve-")
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := loadGeneratorOf(s.generator)
	if err != nil {
		return c, err
	}
	c = servedCase{Concurrency: concurrency, In: length[0], Out: length[1], Requests: concurrency * int(s.requests)}
	run := exec.CommandContext(ctx, s.generator, program.args(s, c, dir)...)
	if program.env != nil {
		run.Env = append(os.Environ(), program.env(os.Getenv(keyVariable))...)
	}
	if said, err := run.CombinedOutput(); err != nil {
		fmt.Fprintf(stderr, "%s\n", said[max(0, len(said)-4000):])
		return c, fmt.Errorf("%s: %w", s.generator, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, program.left))
	if err != nil {
		return c, err
	}
	g, err := program.read(data)
	if err != nil {
		return c, err
	}
	return c, c.found(g)
}

// found fills in what the load generator found, and refuses a run with errors or with answers that are too short.
func (c *servedCase) found(g generated) error {
	switch {
	case g.failed > 0 || g.requests != c.Requests:
		return fmt.Errorf("%d of %d requests came to their end, %d failed, want all", g.requests, c.Requests, g.failed)
	case g.shortest != c.Out:
		return fmt.Errorf("an answer has %d tokens, want %d", g.shortest, c.Out)
	}
	c.First, c.Token, c.Between, c.TokenRate = g.first, g.token, g.between, g.rate
	return nil
}
