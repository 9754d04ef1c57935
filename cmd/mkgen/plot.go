package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/sweep"
	"github.com/spf13/cobra"
)

func newPlot() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:     "plot RECORD...",
		Short:   "Draw records of mkgen bench, a sweep, or prompts into one SVG",
		Example: "  mkgen plot bench/results/h200/2026-11-21-decode-llama3-8b.json -o out/8b.svg\n  mkgen plot out/sweep-llama3-8b.json -o out/8b-sweep.svg",
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				return usagef("plot: name at least one record")
			}
			if err := checkOutputs(cmd, files, output{flag: "output", path: out, ours: ourPlot}); err != nil {
				return err
			}
			var series []bench.Series
			for _, path := range files {
				data, err := jsonfile.ReadFile(path)
				if err != nil {
					return err
				}
				switch kindOf(data) {
				case sweep.What:
					return plotSweep(cmd, path, len(files), out)
				case bench.PrefillWhat, bench.AttentionBesideWhat:
					return plotRates(cmd, path, data, len(files), out)
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

// kindOf is a file's field what; nothing where there is none.
func kindOf(data []byte) string {
	var of struct {
		What string `json:"what"`
	}
	_ = json.Unmarshal(data, &of)
	return of.What
}

// plotRates draws a file of prompts, or of their attention alone, which goes alone.
func plotRates(cmd *cobra.Command, path string, data []byte, files int, out string) error {
	if files > 1 {
		return usagef("plot: %s is a file of prompts, which is drawn alone", path)
	}
	var f interface{ Plot() *bench.RatePlot }
	var err error
	if kindOf(data) == bench.PrefillWhat {
		f, err = bench.ParsePrefill(data)
	} else {
		f, err = bench.ParseAttentionBeside(data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := f.Plot().Write(out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Plot written to %s\n", out)
	return err
}

// plotSweep draws the heat map of a sweep, which goes alone.
func plotSweep(cmd *cobra.Command, path string, files int, out string) error {
	if files > 1 {
		return usagef("plot: %s is a sweep, which is drawn alone", path)
	}
	r, err := sweep.ReadFile(path)
	if err != nil {
		return err
	}
	if err := sweep.WriteSVG(out, r); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Plot written to %s\n", out)
	return err
}
