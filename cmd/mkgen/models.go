package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/bundled"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/spf13/cobra"
)

func newModels() *cobra.Command {
	var names, checked bool
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the registered models",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := models.All()
			if checked {
				all = models.Checked()
			}
			if !names {
				return listModels(cmd.OutOrStdout(), all)
			}
			for _, c := range all {
				fmt.Fprintln(cmd.OutOrStdout(), c.Name)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&names, "names", false, "only the names, one a line, for scripts")
	cmd.Flags().BoolVar(&checked, "checked", false, "only those whose kernels the tests build and compile")
	return cmd
}

// predictedContext is how many tokens the predictions of the list are behind.
const predictedContext = 1024

// gpus are the GPUs of the list: memory in bytes, and what they stream. Of an H100 only the ceiling is measured.
var gpus = []struct {
	name    string
	memory  float64
	machine func() *machine.Machine
}{
	{"H200", 141e9, machine.H200},
	{"H100", 80e9, func() *machine.Machine { return machine.H200().At(3.16e12) }},
}

// listModels prints a line a model, by family and size.
func listModels(w io.Writer, all []models.Config) error {
	families := models.Families()
	family := func(c *models.Config) int {
		return slices.IndexFunc(families, func(f models.Family) bool { return f.Name == c.Family })
	}
	slices.SortStableFunc(all, func(a, b models.Config) int {
		if d := family(&a) - family(&b); d != 0 {
			return d
		}
		return int(min(max(a.ParamCount()-b.ParamCount(), -1), 1))
	})
	lines := make([][]any, len(all))
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() { lines[i] = modelLine(&all[i]) })
	}
	wait.Wait()
	t := table.New("", ">parameters", ">read\na token", ">KV a\nposition", ">H200\ntok/s", ">H100\ntok/s")
	for i, l := range lines {
		if at := family(&all[i]); i == 0 || at != family(&all[i-1]) {
			t.Row(families[at].Title, "", "", "", "", "")
		}
		t.Row(l[:len(l)-1]...)
	}
	if err := t.Write(w, ""); err != nil {
		return err
	}
	missing := ""
	for i, l := range lines {
		if state := l[len(l)-1]; state != "yes" {
			missing += fmt.Sprintf("%s: %s.\n", all[i].Name, state)
		}
	}
	_, err := fmt.Fprintf(w, "\nTok/s are predicted: bf16, one sequence, behind %d tokens; - where weights do\nnot fit.\n"+
		missing+
		"With weights of their own, for mkgen run --model NAME:\n%s.\n", predictedContext,
		strings.Join(bundled.Names(), ", "))
	return err
}

// modelLine is a row of the list, and behind it whether there is a kernel: "yes", or why not.
func modelLine(c *models.Config) []any {
	a := c.Arch()
	approximate, state := "", "yes"
	plain := *c
	if len(megakernel.Supports(&a)) > 0 {
		approximate, state = "~",
			"the kernel does not have all of its features yet, and the figure is that of a Llama of its sizes"
		plain.Traits, plain.Rope, plain.Names = models.Traits{}, models.Rope{Theta: c.Rope.Theta}, nil
	}
	line := []any{"  " + c.Name, megakernel.FormatCount(c.ParamCount()),
		megakernel.FormatBytes(c.WeightBytes()), megakernel.FormatBytes(c.KVBytesPerToken())}
	mk, err := megakernel.Build(plain, megakernel.Options{})
	for _, gpu := range gpus {
		if err != nil || float64(2*c.ParamCount()) > gpu.memory {
			line = append(line, "-")
			continue
		}
		p := mk.Predict(gpu.machine(), predictedContext, 1)
		line = append(line, fmt.Sprintf("%s%.0f", approximate, 1/p.Total))
	}
	if err != nil {
		state = err.Error()
	}
	return append(line, state)
}
