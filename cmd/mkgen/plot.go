package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mkgen/mkgen/megakernel/runtime/bench"
	"github.com/spf13/cobra"
)

func newPlot() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:     "plot RECORD...",
		Short:   "Draw records of mkgen bench into one SVG",
		Example: "  mkgen plot bench/results/h200/2026-11-21-decode-llama3-8b.json -o out/8b.svg",
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return usagef("plot: name at least one record")
			}
			var series []bench.Series
			for _, path := range files {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				r, err := bench.Parse(data)
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				mark := "" // curves of several files are told apart by the files' names
				if len(files) > 1 {
					mark = strings.TrimSuffix(filepath.Base(path), ".json")
				}
				series = append(series, bench.SeriesOf(r, mark)...)
			}
			if err := bench.WriteSVG(out, series); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "Plot written to %s\n", out)
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "out/bench.svg", "SVG `file` to write")
	return cmd
}
