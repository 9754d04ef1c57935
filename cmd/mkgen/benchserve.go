package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/mkgen/mkgen/models/tokenizer"
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
	return "tokens of prompt and answer, at least 2 and 4, such as 128/1024,8192/512"
}

func (l *lengths) Set(s string) error {
	var list lengths
	for _, word := range strings.Split(s, ",") {
		in, out, ok := strings.Cut(strings.TrimSpace(word), "/")
		a, err := strconv.ParseUint(in, 10, contextBits)
		b, also := strconv.ParseUint(out, 10, contextBits)
		if err := errors.Join(err, also); err != nil || !ok || a < 2 || b < 4 {
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
	s.generator, s.concurrency, s.lengths, s.requests = "python3", contexts{1, 4, 16}, publishedLengths, 4
	f := cmd.Flags()
	f.StringVar(&s.url, "serve", "", "measure the server at this `URL` instead, through a load generator")
	f.StringVar(&s.generator, "load-generator", s.generator, "`Python` that has sglang's, with --serve")
	f.StringVar(&s.tokenizer, "tokenizer", "",
		"`directory` of the tokenizer that makes prompts and counts them, with --serve (default --checkpoint)")
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
	Token       percentile `json:"tpot_ms"` // of a request, the mean
	Between     percentile `json:"itl_ms"`  // of two tokens, over all requests
	TokenRate   float64    `json:"tok_s"`
	// with text; a token without, as an end token, makes the time between two chunks that of two tokens
	Chunks int `json:"chunks"`
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
	text, err := tokenizer.Open(s.tokenizer)
	if err != nil {
		return fmt.Errorf("--tokenizer: %w", err)
	}
	words, err := wordsOf(text)
	if err != nil {
		return fmt.Errorf("--tokenizer: %w", err)
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	generator, err := loadGeneratorOf(ctx, s.generator)
	if err != nil {
		return interrupted(ctx, err)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%12s %8s %8s %10s %10s %10s %10s %10s %10s\n", "at a time", "in", "out", "TTFT p50", "p99",
		"TPOT p50", "ITL p50", "p99", "tok/s")
	var cases []servedCase
	for _, length := range s.lengths {
		for _, n := range s.concurrency {
			c := servedCase{Concurrency: n, In: length[0], Out: length[1], Requests: n * int(s.requests)}
			if err := s.measure(ctx, generator, words, &c); err != nil {
				return interrupted(ctx, fmt.Errorf("%d at a time, %d/%d tokens: %w", n, length[0], length[1], err))
			}
			fmt.Fprintf(out, "%12d %8d %8d %8.2fms %8.2fms %8.3fms %8.3fms %8.3fms %10.1f\n", c.Concurrency, c.In, c.Out,
				c.First.P50, c.First.P99, c.Token.P50, c.Between.P50, c.Between.P99, c.TokenRate)
			if tokens := c.Requests * c.Out; tokens-c.Chunks > tokens/100 {
				fmt.Fprintf(out, "%12s p99 is of several tokens: %d of %d had no text\n", "", tokens-c.Chunks, tokens)
			}
			cases = append(cases, c)
		}
	}
	if b.cases == "" {
		return nil
	}
	data, err := json.MarshalIndent(map[string]any{"server": s.url, "model": s.name,
		"load_generator": "sglang " + generator.version, "cases": cases}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(b.cases, append(data, '\n'))
}

// base is the server's URL without the interface's part.
func (s *serveBenchFlags) base() string {
	return strings.TrimSuffix(strings.TrimSuffix(s.url, "/"), "/v1")
}

// measure warms the server up by as many prompts as run at a time, and lets the load generator send others. All of
// them are new, so that no prefix cache has them.
func (s *serveBenchFlags) measure(ctx context.Context, g loadGenerator, w promptWords, c *servedCase) error {
	prompts, err := w.prompts(c.Concurrency+c.Requests, c.In)
	if err != nil {
		return err
	}
	if err := s.warm(ctx, prompts[:c.Concurrency], min(warmTokens, c.Out)); err != nil {
		return err
	}
	found, err := g.measure(ctx, s, *c, prompts[c.Concurrency:])
	if err != nil {
		return err
	}
	return found.into(c)
}

const warmTokens = 32

// warm asks for an answer of so many tokens to each of the prompts, in one request. It refuses a server whose answers
// end before: the load generator takes it for granted that they are as long as asked.
func (s *serveBenchFlags) warm(ctx context.Context, prompts []string, tokens int) error {
	body, err := json.Marshal(map[string]any{"model": s.name, "prompt": prompts, "max_tokens": tokens,
		"temperature": 0, "ignore_eos": true})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base()+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if key := os.Getenv(keyVariable); key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, said)
	}
	var read struct {
		Usage struct {
			Tokens int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal(said, &read); err != nil {
		return fmt.Errorf("the server's answer: %w", err)
	}
	if got, want := read.Usage.Tokens, tokens*len(prompts); got != want {
		return fmt.Errorf("answers to %d prompts have %d tokens, want %d: the server must honour ignore_eos", len(prompts), got,
			want)
	}
	return nil
}
