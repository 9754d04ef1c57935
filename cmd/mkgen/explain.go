package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"
)

// index is a flag that is a whole number from 0; absent it is -1.
type index int

func (i *index) String() string { return strconv.Itoa(int(*i)) }

func (i *index) Type() string { return "n" }

func (i *index) want() string { return fmt.Sprintf("a whole number from 0 to %d", math.MaxInt32) }

func (i *index) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 31)
	*i = index(n)
	return err
}

func newExplain() *cobra.Command {
	var (
		c  choice
		sm = index(-1)
		m  machineFlags
	)
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Print the plan of a kernel in detail",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			of, err := m.of(cmd, &c)
			if err != nil {
				return err
			}
			mk, err := c.build(cmd)
			switch {
			case err != nil:
				return err
			case sm < 0:
				return mk.Explain(cmd.OutOrStdout(), of)
			case int(sm) >= mk.Plan.SMs:
				return usagef("--sm: found %d, want 0 to %d", sm, mk.Plan.SMs-1)
			}
			return mk.ExplainSM(cmd.OutOrStdout(), int(sm))
		},
	}
	c.flags(cmd)
	m.flags(cmd)
	cmd.Flags().Var(&sm, "sm", "instead, the chunks that this SM reads, in order")
	cmd.Flags().Lookup("sm").DefValue = ""
	return cmd
}
