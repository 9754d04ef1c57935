package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/spf13/cobra"
)

// room is how many tokens the KV cache is to have room for, 0 for the engine's default.
func (r *runFlags) room(mk *megakernel.Kernel) int {
	positions := mk.Config.MaxPositions
	switch {
	case !mk.Ragged() || r.opts.Tokens == 0 && r.prompts == "" && !r.many:
		return min(int(r.kvTokens), positions)
	case r.kvTokens == 0 && r.prompts == "" && !r.many:
		return 0
	case r.kvTokens == 0:
		return mk.Options.Tokens * min(engine.DefaultKVTokens, positions)
	}
	return min(int(r.kvTokens), mk.Options.Tokens*positions)
}

// refusePrompts refuses what does not go with --prompts.
func (r *runFlags) refusePrompts(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 0:
		return usagef("--prompts and a prompt exclude each other, found %q", args[0])
	case r.system != "" && !r.chat:
		return usagef("--system goes with --chat")
	case cmd.Flags().Changed("rows") && r.opts.Tokens < 2:
		return usagef("--prompts goes with --rows of 2 to %d, found %d", kv.MaxRows, r.opts.Tokens)
	}
	return nil
}

// mostPrompts bounds what is read of prompts, in bytes.
const mostPrompts = 64 << 20

// lines are the prompts of --prompts, if it is given; rows become as many as there are
// prompts, where nothing is said.
func (r *runFlags) lines(cmd *cobra.Command) (lines []string, err error) {
	if r.prompts == "" {
		return nil, nil
	}
	in := cmd.InOrStdin()
	if r.prompts != "-" {
		f, err := os.Open(r.prompts)
		if err != nil {
			return nil, fmt.Errorf("--prompts: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, mostPrompts+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--prompts: %w", err)
	case len(data) > mostPrompts:
		return nil, fmt.Errorf("--prompts %s: more than %d bytes", r.prompts, mostPrompts)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("--prompts %s: no prompt", r.prompts)
	}
	if r.opts.Tokens == 0 {
		r.opts.Tokens = min(max(2, len(lines)), kv.MaxRows)
	}
	return lines, nil
}

// together answers prompts, as many at a time as there are rows, and prints the
// answers in the prompts' order. One that fails is a line on standard error.
func (s *speaker) together(ctx context.Context, prompts []string) error {
	streams, failed := make([]*engine.Stream, len(prompts)), 0
	for i, prompt := range prompts {
		r, err := s.requestOf(prompt)
		if err == nil {
			streams[i], err = s.Submit(ctx, r)
		}
		if err != nil {
			failed++
			fmt.Fprintf(s.err, "mkgen: prompt %d: %s\n", i+1, oneLine(err))
		}
	}
	for i, stream := range streams {
		if stream == nil {
			continue
		}
		got, err := stream.Wait()
		if ctx.Err() != nil {
			return interruptError{}
		}
		if err := s.labelled(i+1, got); err != nil {
			return err
		}
		if err = hung(s.err, err); err != nil {
			failed++
			fmt.Fprintf(s.err, "mkgen: prompt %d: %s\n", i+1, oneLine(err))
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d prompts failed", failed, len(prompts))
	}
	return nil
}

// labelled prints an answer.
func (s *speaker) labelled(n int, got engine.Result) error {
	text := got.Text
	if s.tokenizer == nil {
		var ids []string
		for _, token := range got.Tokens {
			ids = append(ids, strconv.Itoa(token))
		}
		text = strings.Join(ids, " ")
	}
	_, err := fmt.Fprintf(s.out, "[%d] %s\n", n, strings.TrimSuffix(text, "\n"))
	if s.flags.verbose && got.Finish != "" {
		fmt.Fprintf(s.err, "mkgen: [%d] %s\n", n, figures(got))
	}
	return err
}

// requestOf is the request that continues or answers a prompt.
func (s *speaker) requestOf(prompt string) (engine.Request, error) {
	r := s.request()
	var err error
	switch {
	case s.flags.chat:
		r.Messages = append(s.system(), tokenizer.Message{Role: "user", Content: prompt})
	case s.tokenizer != nil:
		r.Prompt = prompt
	default:
		r.Tokens, err = tokenIDs(prompt)
	}
	return r, err
}

// isTerminal says whether a person may be at the other end.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
