package skeleton

import (
	"bytes"
	"fmt"
	"io"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/table"
)

// Report is what a check ran and found.
type Report struct {
	Model            string
	SMs              int
	Layers, OfLayers int // run, and of the model
	Seed             uint64
	Races            bool
	Roles            []ir.SkeletonCount
	Launches         []Launch
	Findings         []Finding
}

// Launch is what one launch did.
type Launch struct {
	Context, Steps            int
	Instructions              int64 // of a warp
	WeightCopies, WeightBytes int64
	KVCopies, KVBytes         int64
	KVStored                  int64 // bytes
	Packets                   int64 // waits for LL packets, of a lane
}

// Finding is something wrong with the kernel.
type Finding struct {
	Kind    string
	Context int
	Text    string
	Sides   []interp.Side
}

// Err is nil if nothing was found, else what was, in one line.
func (r *Report) Err() error {
	if len(r.Findings) == 0 {
		return nil
	}
	return fmt.Errorf("%s fails verification of its plan: %s", r.Model, r.Findings[0].Kind)
}

// Write prints the report for a person. The error is w's.
func (r *Report) Write(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: the kernel's plan without data, on the CPU\n\n", r.Model)
	races := "no check for races"
	if r.Races {
		races = "checked for races"
	}
	fmt.Fprintf(&b, "Ran %s, %d of %s and the LM head, seed %d, %s.\n\n", plural.Of(r.SMs, "SM"), r.Layers,
		plural.Of(r.OfLayers, "layer"), r.Seed, races)
	roles := table.New("instructions of the program", ">kept", ">dropped")
	for _, c := range r.Roles {
		name := c.Role
		if name == "" {
			name = "outside of roles"
		}
		roles.Row(name, c.Kept, c.Dropped)
	}
	launches := table.New(">context", ">steps", ">instructions\nof warps", ">copies of\nweights", ">bytes",
		">copies\nof KV", ">bytes", ">KV bytes\nstored", ">LL packets\nread")
	for _, l := range r.Launches {
		launches.Row(l.Context, l.Steps, l.Instructions, l.WeightCopies, l.WeightBytes, l.KVCopies, l.KVBytes, l.KVStored,
			l.Packets)
	}
	for _, t := range []*table.Table{roles, launches} {
		if err := t.Write(&b, "  "); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	r.writeFindings(&b)
	_, err := b.WriteTo(w)
	return err
}

func (r *Report) writeFindings(b *bytes.Buffer) {
	if len(r.Findings) == 0 {
		fmt.Fprintf(b, "Every copy, store and packet is as planned.\n")
		return
	}
	fmt.Fprintf(b, "Found\n")
	for i, f := range r.Findings {
		fmt.Fprintf(b, "  %d. %s (context %d): %s\n", i+1, f.Kind, f.Context, f.Text)
		for _, s := range f.Sides {
			fmt.Fprintf(b, "       %s\n", s)
		}
	}
}
