package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/spf13/cobra"
)

func newDescribe() *cobra.Command {
	var c choice
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "describe",
		Short: "Print what a model computes by layer, and its tensors",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := c.lookup(cmd)
			if err != nil {
				return err
			}
			if !asJSON {
				return describe(cmd.OutOrStdout(), &config)
			}
			text := models.Text(c.model)
			if c.config != "" {
				if text, err = os.ReadFile(c.config); err != nil {
					return err
				}
			}
			return describeJSON(cmd.OutOrStdout(), &config, text)
		},
	}
	c.arch = "sm_90a"
	c.modelFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"all of it as JSON, with the recipes of random weights: what tests/gpu/reference.py reads")
	return cmd
}

// describe prints the description, the tensors of the first layer of each kind, and what the kernel lacks.
func describe(w io.Writer, c *models.Config) error {
	a := c.Arch()
	var b strings.Builder
	b.WriteString(a.String())
	fmt.Fprintf(&b, "\n%s parameters; a token reads %s of weights\n\n", megakernel.FormatCount(c.ParamCount()),
		megakernel.FormatBytes(c.WeightBytes()))
	for _, t := range c.Stored() {
		if t.First.Layer > 0 {
			continue
		}
		shape := strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Shape), " ", " × "), "[]")
		fmt.Fprintf(&b, "%-60s %s\n", t.Name, shape)
	}
	if a.Layers() > 1 {
		fmt.Fprintf(&b, "and so on for layers 1 to %d\n", a.Layers()-1)
	}
	if missing := megakernel.Supports(&a); len(missing) > 0 {
		fmt.Fprintf(&b, "\nThe kernel does not have %s yet.\n", strings.Join(missing, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// described is what --json prints.
type described struct {
	Config  json.RawMessage `json:"config"` // config.json
	Arch    models.Arch     `json:"arch"`
	InvFreq [][]float32     `json:"inv_freq"` // of each kind of layer
	// name, shape, then "gain" or mantissa, exponent and shift (where there is one) of a normal weight
	Stored  [][]any         `json:"stored"`
	Tensors []models.Tensor `json:"tensors"` // by role
}

func describeJSON(w io.Writer, c *models.Config, config []byte) error {
	d := described{Config: config, Arch: c.Arch(), Tensors: c.Tensors()}
	for i := range d.Arch.Kinds {
		d.InvFreq = append(d.InvFreq, d.Arch.Kinds[i].Attn.Rope.InvFreq(c.MaxPositions))
	}
	for _, t := range synth.Tensors(*c) {
		line := []any{t.Name, t.Shape, "gain"}
		if t.Recipe.Kind == synth.KindNormal {
			line = []any{t.Name, t.Shape, t.Recipe.Mantissa, t.Recipe.Exp}
			if t.Recipe.Shift != 0 {
				line = append(line, t.Recipe.Shift)
			}
		}
		d.Stored = append(d.Stored, line)
	}
	return json.NewEncoder(w).Encode(d)
}
