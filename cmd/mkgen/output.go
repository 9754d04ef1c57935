package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/spf13/cobra"
)

// output is a file that a command writes; one without a path is none.
type output struct {
	flag, path string
	own        bool                  // what is there is read first, and replaced only if the command wrote it
	ours       func(io.Reader) error // refuses what is there unless mkgen wrote such a file; nil: all is replaced
	ext        string                // what the name must end in; empty: anything
}

// checkOutputs refuses, before anything long is done, files that are one, that the command
// reads (those that flags name, and read), that cannot be written, or that are there and
// not ours.
func checkOutputs(cmd *cobra.Command, read []string, files ...output) error {
	for i, f := range files {
		if f.path == "" {
			continue
		}
		for _, other := range files[:i] {
			if other.path != "" && atomicfile.Same(other.path, f.path) {
				return usagef("--%s %s and --%s %s are one file, want two", other.flag, other.path, f.flag, f.path)
			}
		}
		for _, name := range []string{"config", "profile", "machine"} {
			if in := cmd.Flags().Lookup(name); !f.own && in != nil && in.Changed && atomicfile.Same(in.Value.String(), f.path) {
				return usagef("--%s %s is the file of --%s, want another", f.flag, f.path, name)
			}
		}
		for _, in := range read {
			if atomicfile.Same(in, f.path) {
				return usagef("--%s %s is the file that is read, want another", f.flag, f.path)
			}
		}
	}
	for _, f := range files {
		if f.path == "" {
			continue
		}
		if err := atomicfile.Check(f.path); err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		}
		if err := f.replaceable(); err != nil {
			return err
		}
		if !strings.EqualFold(filepath.Ext(f.path), cmp.Or(f.ext, filepath.Ext(f.path))) {
			return usagef("--%s: found %s, want a name that ends in %s", f.flag, f.path, f.ext)
		}
	}
	return nil
}
