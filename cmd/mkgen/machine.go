package main

import (
	"fmt"

	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/spf13/cobra"
)

// machineFlags say what machine syncs are chosen and times predicted for.
type machineFlags struct {
	file string
	rate speed
}

// flags adds both flags to a command.
func (m *machineFlags) flags(cmd *cobra.Command) {
	m.fileFlag(cmd)
	m.rate = speed(machine.H200().Ceiling.Median)
	cmd.Flags().Var(&m.rate, "bandwidth", "memory bandwidth for the predicted times, other things being an H200's")
}

// fileFlag adds --machine.
func (m *machineFlags) fileFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.file, "machine", "",
		"`file` of mkgen calibrate: what syncs are chosen for, where no flag or profile chooses, and predicted times are of (default: an H200)")
}

// of is the machine that was chosen; that of a file also chooses syncs.
func (m *machineFlags) of(cmd *cobra.Command, c *choice) (*machine.Machine, error) {
	of, err := m.machine(cmd)
	if err == nil && cmd.Flags().Changed("machine") {
		c.of = of
	}
	return of, err
}

// machine is the one that was chosen.
func (m *machineFlags) machine(cmd *cobra.Command) (*machine.Machine, error) {
	given := cmd.Flags().Changed
	switch {
	case given("machine") && given("bandwidth"):
		return nil, usagef("--machine and --bandwidth exclude each other: the file has the bandwidth")
	case given("machine"):
		of, err := machine.ReadFile(m.file)
		if err != nil {
			return nil, fmt.Errorf("--machine: %w", err)
		}
		return of, nil
	case given("bandwidth"):
		return machine.H200().At(float64(m.rate) * 1e9), nil
	}
	return machine.H200(), nil
}
