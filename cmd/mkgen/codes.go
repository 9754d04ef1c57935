package main

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/spf13/cobra"
)

// withCodes returns t with its own codes where the kernel multiplies just these, and what a user is told of it instead
// of note. The kernel's formats become theirs unless --weight-format and --head-format ask for others. A quantised LM
// head is not rounded once more: it has its own codes, or becomes bf16, or is refused. So is a profile of other formats
// than the kernel then has.
func (c *choice) withCodes(cmd *cobra.Command, t megakernel.Tensors, note string) (megakernel.Tensors, string, error) {
	t, note, err := c.ownCodes(cmd, t, note)
	if err == nil {
		err = c.profileOfFormats()
	}
	return t, note, err
}

// ownCodes is withCodes without a look at the profile.
func (c *choice) ownCodes(cmd *cobra.Command, t megakernel.Tensors, note string) (megakernel.Tensors, string, error) {
	q, ok := t.(*quant.Model)
	if !ok {
		return t, note, nil
	}
	layers, note := c.withLayersCodes(cmd, q, note)
	head, why := q.CodedHead()
	if head == nil && why == "" {
		return codesOr(layers, q), note, nil
	}
	own, ok := formatOf(head)
	given := cmd.Flags().Changed("head-format")
	switch asked := c.opts.Head; {
	case given && asked == pipeline.FormatBF16:
	case layers != nil && ok && (!given || asked == own):
		c.opts.Head, layers.Head = own, head
		note += fmt.Sprintf(" So is the LM head's, %s.", own)
	case given:
		want := "bf16"
		if ok && layers != nil {
			want = string(own) + ", or bf16"
		}
		return nil, "", usagef("--head-format %s: lm_head.weight is %s, which would be rounded once more; want %s",
			asked, q.HeadFormat(), want)
	}
	return codesOr(layers, q), note, nil
}

// withLayersCodes is withCodes of the layers' matrices; nil: they are widened.
func (c *choice) withLayersCodes(cmd *cobra.Command, q *quant.Model, note string) (*quant.Coded, string) {
	if !c.opts.PackedByRows() {
		return nil, note
	}
	coded, why := q.Coded()
	own, ok := formatOf(coded)
	left := ""
	if coded == nil {
		if coded, own, left = mixedCodes(q); coded == nil {
			if q.Integers() {
				note += " Integers are multiplied as they are where all layers have one form: " + why + "."
			}
			return nil, note
		}
		ok = true
	}
	if !ok || c.opts.Weights != "" && cmd.Flags().Changed("weight-format") && c.opts.Weights != own {
		return nil, note
	}
	c.opts.Weights = own
	return coded, strings.Replace(note, widened,
		fmt.Sprintf("the kernel's format is %s, which has just these codes and scales%s.", own, left), 1)
}

// mixedCodes are the codes of those matrices that have one form in all layers, the kernel's format that has them, and
// what is widened beside, and why; nil where no matrix has integers or e2m1, or nothing may stand beside it.
func mixedCodes(q *quant.Model) (c *quant.Coded, own pipeline.Format, left string) {
	forms, why := q.Mixed()
	of, first := map[string]pipeline.Format{}, pipeline.Format("")
	for _, m := range quant.Matrices {
		of[m] = pipeline.FormatBF16
		switch f, ok := formatOf(forms[m]); {
		case !ok || f.Blocks():
			delete(forms, m)
		default:
			of[m] = f
			if first == "" && f.Integers() {
				first = f
			}
		}
	}
	if first == "" {
		return nil, "", ""
	}
	own = first
	for _, m := range quant.Matrices {
		if of[m] != first {
			own += pipeline.Format("," + m + "=" + string(of[m]))
		}
		if forms[m] == nil {
			left += fmt.Sprintf("; %s is widened to bf16", m)
			if why[m] != "" {
				left += ", as " + why[m]
			}
		}
	}
	return q.Join(forms), own, left
}

// codesOr are tensors with their codes, or where there are none as they are widened.
func codesOr(coded *quant.Coded, widened *quant.Model) megakernel.Tensors {
	if coded == nil {
		return widened
	}
	return coded
}

// formatOf is the kernel's format of codes; false: there is none.
func formatOf(coded *quant.Coded) (pipeline.Format, bool) {
	switch {
	case coded == nil:
		return "", false
	case coded.Float:
		return pipeline.OwnFloats(coded.Bits, coded.Group), true
	}
	return pipeline.Own(coded.Bits, coded.Group, coded.Zeros, coded.F16)
}

// widened is what a user is told of quantised weights that become bf16.
const widened = "they are widened to bf16."
