package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/progress"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/tokenizer"
)

// speaker is an engine whose text is printed as it comes.
type speaker struct {
	*engine.Engine
	flags     *runFlags
	model     models.Config
	tokenizer *tokenizer.Tokenizer // nil where there is none
	out, err  io.Writer
}

// once answers one prompt.
func (s *speaker) once(ctx context.Context, prompt string) error {
	r, err := s.requestOf(prompt)
	if err != nil {
		return err
	}
	_, err = s.answer(ctx, r)
	return interrupted(ctx, err)
}

// converse asks, answers and so on until there is no more input. Ctrl-C ends an
// answer; while nothing is generated it ends the program.
func (s *speaker) converse(ctx context.Context, in io.Reader) error {
	messages := s.system()
	lines := bufio.NewReader(in)
	for {
		fmt.Fprint(s.err, "> ")
		line, err := lines.ReadString('\n')
		if err != nil && strings.TrimSpace(line) == "" {
			fmt.Fprintln(s.err)
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		messages = append(messages, tokenizer.Message{Role: "user", Content: strings.TrimRight(line, "\r\n")})
		r := s.request()
		r.Messages = messages
		turn, stop := interruptible(ctx)
		text, err := s.answer(turn, r)
		err = interrupted(turn, err) // before stop, which ends turn
		stop()
		if err != nil && !errors.As(err, new(interruptError)) {
			return err
		}
		messages = append(messages, tokenizer.Message{Role: "assistant", Content: text})
	}
}

// request is what all generations have in common.
func (s *speaker) request() engine.Request {
	return engine.Request{MaxTokens: int(s.flags.maxTokens), Sampling: s.flags.sampling, Stop: s.flags.stop}
}

// system is the beginning of a conversation.
func (s *speaker) system() []tokenizer.Message {
	if s.flags.system == "" {
		return nil
	}
	return []tokenizer.Message{{Role: "system", Content: s.flags.system}}
}

// longPrompt is from how many tokens on it is told how far a prompt is.
const longPrompt = 256

// tellPrompt shows how far a long prompt is.
func tellPrompt(w io.Writer) func(fed, of int) {
	bar := progress.Count(w, "prompt", "tokens")
	return func(fed, of int) {
		switch {
		case of < longPrompt:
		case fed < of:
			bar.Set(int64(fed), int64(of))
		default:
			bar.End(int64(of))
		}
	}
}

// answer generates and prints; what is printed ends with a line break.
func (s *speaker) answer(ctx context.Context, r engine.Request) (string, error) {
	var failed error
	last := ""
	if s.flags.verbose {
		r.Progress = tellPrompt(s.err)
	}
	got, err := s.Generate(ctx, r, func(p engine.Piece) bool {
		text := p.Text
		if s.tokenizer == nil {
			text = strconv.Itoa(p.Token)
			if last != "" {
				text = " " + text
			}
		}
		if text != "" {
			last = text
			_, failed = io.WriteString(s.out, text)
		}
		return failed == nil
	})
	if last != "" && !strings.HasSuffix(last, "\n") && failed == nil {
		_, failed = io.WriteString(s.out, "\n")
	}
	if s.flags.verbose && got.Finish != "" {
		fmt.Fprintln(s.err, "mkgen: "+figures(got))
	}
	return got.Text, errors.Join(hung(s.err, err), failed)
}

// hung prints who waits for what in a kernel that was given up, a line each, and
// returns the rest of the error; any other error it leaves alone.
func hung(w io.Writer, err error) error {
	var hang *runtime.HangError
	if !errors.As(err, &hang) {
		return err
	}
	head, waits, _ := strings.Cut(hang.Error(), "\n")
	for line := range strings.Lines(waits) {
		fmt.Fprintln(w, "mkgen: "+oneLine(errors.New(line)))
	}
	return errors.New(head)
}

// figures is a generation in one line.
func figures(r engine.Result) string {
	u := r.Usage
	line := fmt.Sprintf("prompt %s (%d reused), generated %d (%s)", plural.Of(u.Prompt, "token"), u.Reused, len(r.Tokens),
		r.Finish)
	if len(r.Tokens) > 0 {
		line += fmt.Sprintf(", the first after %.3f s", u.First.Seconds())
	}
	if rest := u.Total - u.First; len(r.Tokens) > 1 && rest > 0 {
		line += fmt.Sprintf(", then %.1f tokens/s", float64(len(r.Tokens)-1)/rest.Seconds())
	}
	return line
}

// tokenIDs reads the prompt of a model without a tokenizer.
func tokenIDs(prompt string) ([]int, error) {
	var ids []int
	for _, word := range strings.Fields(prompt) {
		id, err := strconv.Atoi(word)
		if err != nil {
			return nil, usagef("without a tokenizer the prompt is token ids with spaces between them, found %q", word)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// interruptible is ctx until the first Ctrl-C, or one of the other signals; the second one
// then does what it does to any program.
func interruptible(ctx context.Context, others ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, append(others, os.Interrupt)...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// interruptError is what Ctrl-C ended.
type interruptError struct {
	kept string // the file that has what was done, where the same command goes on; empty: none
}

func (e interruptError) Error() string {
	if e.kept == "" {
		return "interrupted"
	}
	return fmt.Sprintf("interrupted; what was measured is in %s, and the same command goes on", e.kept)
}

// keeping is err, where it is an interruption with the file that has what was done before,
// if that is there.
func keeping(err error, file string) error {
	if _, missing := os.Stat(file); missing == nil && errors.As(err, new(interruptError)) {
		return interruptError{kept: file}
	}
	return err
}

// interrupted is err, or the interruption that made it.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return interruptError{}
	}
	return err
}
