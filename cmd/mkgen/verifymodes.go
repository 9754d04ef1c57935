package main

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// verifyModes are the flags of mkgen verify that have it do something else, with the flags that each reads: those of
// the kernel or not, and others.
var verifyModes = []struct {
	flag   string
	kernel bool
	reads  []string
}{
	{"spin", false, []string{"record", "models"}},
	{"skeleton", true, []string{"races"}},
	{"explore", true, []string{"record"}},
	{"prefill", true, []string{"record", "lines", "seeds", "seed", "schedule", "prefill-activations"}},
}

// verifiesOne refuses two of verifyModes at a time, and flags that the one that was chosen does not read. kernel are
// the flags of the kernel.
func verifiesOne(cmd *cobra.Command, kernel *pflag.FlagSet) error {
	given := cmd.Flags().Changed
	for _, mode := range verifyModes {
		if !given(mode.flag) {
			continue
		}
		var others []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			read := mode.kernel && kernel.Lookup(f.Name) != nil || slices.Contains(mode.reads, f.Name)
			if f.Name != mode.flag && !read {
				others = append(others, f.Name)
			}
		})
		if err := alone(cmd, mode.flag, "", others...); err != nil {
			return err
		}
	}
	switch {
	case given("models") && !given("spin"):
		return usagef("--models goes with --spin")
	case given("races") && !given("skeleton"):
		return usagef("--races goes with --skeleton")
	}
	return nil
}
