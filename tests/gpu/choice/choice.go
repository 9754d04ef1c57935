// Package choice reads a model and kernel options from the command line, the
// same way in every GPU check.
package choice

import (
	"flag"
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
)

// Choice is a model and the options of its kernel.
type Choice struct {
	model   *string
	options megakernel.Options
}

// Flags declares -model and a flag for each option; call Build after
// flag.Parse.
func Flags() *Choice {
	c := &Choice{model: flag.String("model", "tiny", "registered model")}
	o := &c.options
	for _, f := range []struct {
		to   *int
		name string
	}{{&o.Tokens, "rows"}, {&o.SMs, "sms"}, {&o.Page, "page"}, {&o.Splits, "splits"}, {&o.Stages, "stages"},
		{&o.StageBytes, "stage-bytes"}, {&o.InFlight, "in-flight"}, {&o.Consumers, "consumers"}} {
		flag.IntVar(f.to, f.name, 0, "as mkgen's flag; 0 chooses")
	}
	flag.StringVar((*string)(&o.Watchdog), "watchdog", "", "grid, all or none, as mkgen's flag")
	return c
}

// Build assembles the kernel, with a planted fault or none.
func (c *Choice) Build(fault megakernel.Fault) (*megakernel.Kernel, error) {
	m, err := models.Lookup(*c.model)
	if err != nil {
		return nil, err
	}
	return c.BuildFor(m, fault)
}

// BuildFor is Build for a configuration read from elsewhere.
func (c *Choice) BuildFor(m models.Config, fault megakernel.Fault) (*megakernel.Kernel, error) {
	o := c.options
	o.Fault = fault
	return megakernel.Build(m, o)
}

// Name is a file name for the kernel: the model and what was set.
func (c *Choice) Name(fault megakernel.Fault) string {
	var b strings.Builder
	b.WriteString(*c.model)
	o := &c.options
	for _, f := range []struct {
		v    int
		name string
	}{{o.Tokens, "rows"}, {o.SMs, "sms"}, {o.Page, "page"}, {o.Splits, "splits"}, {o.Stages, "stages"},
		{o.StageBytes, "bytes"}, {o.InFlight, "flight"}, {o.Consumers, "cons"}} {
		if f.v != 0 {
			fmt.Fprintf(&b, "-%s%d", f.name, f.v)
		}
	}
	if o.Watchdog != "" {
		b.WriteString("-watch" + string(o.Watchdog))
	}
	if fault != megakernel.NoFault {
		b.WriteString("+" + string(fault))
	}
	return b.String()
}
