package main

import (
	"cmp"
	"fmt"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/spf13/cobra"
)

// manyRows is a kernel's rows a step between one and the most: sequences that are few do not pay
// for rows that they have not.
const manyRows = 8

// kernels builds the kernels that generate, the widest first. The flags of tuning are of the one
// that --rows names, and of that of one row where it is not given; those beside it have the same
// cache and attention, and what is best by default otherwise. There are none beside it where
// results must not depend on which kernel a launch takes (--pin-split), where the weights are
// packed otherwise (--mlp), or where --rows is 1.
//
// Where requests are sampled the kernels draw. A server has both: kernels without draws for launches of greedy
// requests, which are faster for having less to do, and beside each one that draws.
func (r *runFlags) kernels(cmd *cobra.Command, config models.Config) (all []*megakernel.Kernel, err error) {
	o := r.chosen(config)
	alone := r.opts.Tokens == 1 || r.pin > 0 || o.Selection || !o.PackedByRows()
	both := r.serves && !o.Draws && !alone
	o.Draws = o.Draws || (!r.sampling.Greedy() || r.serves && alone) && o.Launch != megakernel.LaunchGraph
	if !cmd.Flags().Changed("watchdog") {
		o.Watchdog = megakernel.WatchAll
	}
	if r.device == deviceSim {
		o.SMs, o.Consumers = cmp.Or(o.SMs, simSMs), cmp.Or(o.Consumers, simConsumers)
	}
	named, err := megakernel.Build(config, o)
	if err != nil {
		return nil, r.inFlags(err)
	}
	if alone {
		return []*megakernel.Kernel{named}, nil
	}
	beside := megakernel.Options{SMs: o.SMs, Page: o.Page, Watchdog: o.Watchdog, KV: o.KV, Weights: o.Weights,
		Head: o.Head, Attention: o.Attention, Draws: o.Draws}
	if r.device == deviceSim {
		beside.Consumers = o.Consumers
	}
	for _, rows := range r.widths() {
		of := beside
		of.Tokens = rows
		if rows == max(1, r.opts.Tokens) {
			all, of = append(all, named), o
		} else if all, err = r.beside(cmd, all, config, of); err != nil {
			continue
		}
		if of.Draws = true; both {
			if all, err = r.beside(cmd, all, config, of); err != nil {
				return nil, r.inFlags(err)
			}
		}
	}
	return all, nil
}

// beside adds a kernel where there can be one.
func (r *runFlags) beside(cmd *cobra.Command, all []*megakernel.Kernel, config models.Config,
	o megakernel.Options) ([]*megakernel.Kernel, error) {
	mk, err := megakernel.Build(config, o)
	if err != nil {
		if r.verbose { // such as of one row under a mask
			fmt.Fprintf(cmd.ErrOrStderr(), "mkgen: without a kernel of %d rows: %s\n", o.Tokens, oneLine(err))
		}
		return all, err
	}
	return append(all, mk), nil
}

// widths are the rows of the kernels, the most first.
func (r *runFlags) widths() []int {
	rows := cmp.Or(r.opts.Tokens, kv.MaxRows)
	if rows > manyRows && r.opts.Tokens > 0 && r.device == deviceCUDA {
		return []int{rows, manyRows, 1}
	}
	return []int{rows, 1}
}
