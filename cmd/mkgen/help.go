package main

import (
	"slices"
	"strings"

	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// forTuning is whether a flag is of how a kernel works. mkgen chooses these where they are not given; help lists them
// under a heading of their own.
func forTuning(flag string) bool {
	row, ok := megakernel.OptionOf(flag)
	return ok && row.Group != megakernel.OptionCommon && flag != "launch" ||
		slices.Contains([]string{"profile", "machine", "bandwidth"}, flag)
}

const tuningTopic = "tuning"

// helpWidth is how many columns help has.
const helpWidth = 80

// flagsOf prints the flags of a command that are for tuning, or the others.
func flagsOf(all *pflag.FlagSet, tuning bool) string {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	some.SortFlags = false
	all.VisitAll(func(f *pflag.Flag) {
		if forTuning(f.Name) == tuning {
			some.AddFlag(f)
		}
	})
	return strings.TrimRight(some.FlagUsagesWrapped(helpWidth), "\n")
}

// groupedHelp makes help list what everybody needs first, and what is for tuning below it.
func groupedHelp(root *cobra.Command) {
	cobra.AddTemplateFunc("commonFlags", func(f *pflag.FlagSet) string { return flagsOf(f, false) })
	cobra.AddTemplateFunc("tuningFlags", func(f *pflag.FlagSet) string { return flagsOf(f, true) })
	const flags = "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	text := root.UsageTemplate()
	if !strings.Contains(text, flags) {
		panic("BUG: cobra's usage template has no " + flags)
	}
	grouped := "{{commonFlags .LocalFlags}}{{with tuningFlags .LocalFlags}}\n\n" +
		"Tuning, chosen where not given (mkgen help " + tuningTopic + "):\n{{.}}{{end}}"
	root.SetUsageTemplate(strings.Replace(text, flags, grouped, 1))
	root.Version = revision.String()
	root.SetVersionTemplate("mkgen, commit {{.Version}}\n")
}

// newTuning is the topic of mkgen help tuning.
func newTuning() *cobra.Command {
	return &cobra.Command{
		Use:   tuningTopic,
		Short: "What the flags for tuning do, and how they are chosen",
		Long: `A kernel is one CTA an SM. Its producer warp streams chunks of weights and of
the KV cache through a ring of stages in shared memory; its consumer warps
compute. The flags under "Tuning" say how. Values differ in their last bits
where sums are in another order (--consumers, --splits, --stage-bytes), and
from run to run with --mlp fused.

  the ring        --stages deep, of --stage-bytes each; --in-flight copies at
                  a time, fewer of them where the producer leads (--leads);
                  --held chunks of the next product are taken into registers
                  while consumers wait for its input
  the CTA         --consumers warps
  attention       --splits parts of the KV cache, and all of a KV head in one
                  SM while at most --unsplit tokens are cached
  syncs           how --queries, partial states (--merge) and --vectors go
                  from SM to SM; what stands between the MLP's halves
                  (--mlp)
  hangs           --watchdog: the waits at which a launch can be given up
  a graph         with --launch graph: --resident kernels on an SM, when
                  --dependents start, --graph-steps of a launch

What is not given is chosen: by --profile, which mkgen tune writes for the GPU
at hand, else by the figures of --machine, which mkgen calibrate writes, else
for an H200. mkgen explain says what was chosen; mkgen bench --ablate measures
what each choice is worth. In detail: docs/tuning.md, docs/budget.md.`,
	}
}
