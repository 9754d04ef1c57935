package main

import (
	"fmt"

	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/spf13/cobra"
)

func newModels() *cobra.Command {
	var names bool
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the registered models",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			if names {
				for _, n := range models.Names() {
					fmt.Fprintln(w, n)
				}
				return nil
			}
			t := table.New("NAME", ">LAYERS", ">HIDDEN", ">HEADS/KV", ">PARAMETERS", ">READ A TOKEN", ">KV A POSITION")
			for _, c := range models.All() {
				t.Row(c.Name, c.Layers, c.Hidden, fmt.Sprintf("%d/%d", c.Heads, c.KVHeads), megakernel.FormatCount(c.ParamCount()),
					megakernel.FormatBytes(c.WeightBytes()), megakernel.FormatBytes(c.KVBytesPerToken()))
			}
			return t.Write(w, "")
		},
	}
	cmd.Flags().BoolVar(&names, "names", false, "only the names, one a line, for scripts")
	return cmd
}
