package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError is a mistake in how the command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// alone refuses the others beside a flag, each by its name without dashes; why, unless empty, ends the message.
func alone(cmd *cobra.Command, flag, why string, others ...string) error {
	if why != "" {
		why = ": " + why
	}
	for _, other := range others {
		if cmd.Flags().Changed(other) {
			return usagef("--%s and --%s exclude each other%s", other, flag, why)
		}
	}
	return nil
}

// notEmpty refuses flags of text that were given without any, as of a shell's variable that is not set.
func notEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		empty := map[string]string{"string": "", "stringSlice": "[]"}
		if text, ok := empty[f.Value.Type()]; ok && f.Value.String() == text && err == nil {
			err = usagef(`--%s: found "", want a value`, f.Name)
		}
	})
	return err
}

// exitCode is 2 for a usageError, 130 for an interruptError as for a program that
// the signal ended, else 1.
func exitCode(err error) int {
	if errors.As(err, new(interruptError)) {
		return 130
	}
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}

// flagError says in our words what pflag found wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	var (
		value   *pflag.InvalidValueError
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &value):
		return usagef("--%s: found %q, want %s", value.GetFlag().Name, value.GetValue(),
			wantValue(value.GetFlag(), value.Unwrap()))
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		return usagef("unknown flag %s; %s --help lists them", name, cmd.CommandPath())
	case errors.As(err, &missing):
		return usagef("--%s needs a value", missing.GetFlag().Name)
	}
	return usageError{err}
}

func wantValue(f *pflag.Flag, cause error) string {
	if w, ok := f.Value.(interface{ want() string }); ok {
		return w.want()
	}
	if f.Value.Type() == "bool" {
		return "true or false"
	}
	return "a " + f.Value.Type() + ": " + cause.Error()
}

// noArgs refuses arguments that are no flags; of the root they are unknown
// commands.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasParent():
		name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		return usagef("%s takes no argument, found %q", name, args[0])
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q; closest is %s", args[0], near[0])
	}
	return usagef("unknown command %q; mkgen --help lists them", args[0])
}

// maxProblems is how many of several errors one line names.
const maxProblems = 5

// oneLine is an error as one line: several joined errors are numbered, and
// characters that a terminal would not print are escaped.
func oneLine(err error) string {
	var joined interface{ Unwrap() []error }
	text := err.Error()
	if errors.As(err, &joined) {
		all := joined.(error).Error()
		problems := strings.Split(all, "\n")
		if prefix, ok := strings.CutSuffix(text, all); ok && len(problems) > 1 {
			text = prefix + number(problems)
		}
	}
	var b strings.Builder
	for _, r := range strings.TrimSpace(text) {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

func number(problems []string) string {
	s := fmt.Sprintf("%d problems:", len(problems))
	for i, p := range problems[:min(len(problems), maxProblems)] {
		s += fmt.Sprintf(" (%d) %s;", i+1, p)
	}
	if len(problems) > maxProblems {
		return s + fmt.Sprintf(" and %d more", len(problems)-maxProblems)
	}
	return strings.TrimSuffix(s, ";")
}
