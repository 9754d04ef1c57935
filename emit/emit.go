package emit

import (
	"fmt"
	"io"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Options are choices that change the text but not what the kernel computes.
type Options struct {
	Lines bool // end statements with the Go line they come from
	// ParamsByValue makes the params block itself the kernel's argument instead
	// of its address. The compiler keeps by-pointer members in registers or,
	// where it runs short, reads them again near their uses, a round trip to
	// memory each; by value they lie in constant memory and cost neither.
	ParamsByValue bool
}

// Source is an emitted file.
type Source struct {
	Text  []byte
	Lines []ir.Pos // per line of Text, from line 1 at index 0; empty where no statement is printed
	// Instrs are, per line of Text, the instructions whose text is in the statement there: the one that the statement
	// is for, and those that are printed where their results are used. A statement of several lines has them on each.
	Instrs [][]*ir.Instr
}

// Pos is the Go position behind a line (from 1) of the file: that of the line
// itself or of the nearest one before it that has one. It is how a compiler's
// message leads back to the template. Unknown lines give the zero Pos.
func (s *Source) Pos(line int) ir.Pos {
	for i := min(line, len(s.Lines)) - 1; i >= 0; i-- {
		if s.Lines[i].Line != "" {
			return s.Lines[i]
		}
	}
	return ir.Pos{}
}

// CUDA writes kernel k as one self-contained .cu for t. It refuses what Print
// refuses.
func CUDA(w io.Writer, k *ir.Kernel, t Target) error {
	src, err := Print(k, t, Options{})
	if err != nil {
		return err
	}
	_, err = w.Write(src.Text)
	return err
}

// Print is kernel k as one self-contained .cu for t. The kernel must have been
// verified and its shared memory placed. Print refuses kernels that exceed
// the target: threads, cluster size, shared memory; and names that C++ cannot
// take for the kernel itself.
func Print(k *ir.Kernel, t Target, o Options) (*Source, error) {
	if err := fits(k, t); err != nil {
		return nil, err
	}
	p := newPrinter(k, t, o)
	p.block(k.Body)
	return p.file(), nil
}

// fits says what of k exceeds the target.
func fits(k *ir.Kernel, t Target) error {
	if _, err := TargetFor(t.Arch); err != nil {
		return err
	}
	switch {
	case !isIdent(k.Name) || reserved()[k.Name]:
		return fmt.Errorf("kernel name %q is not a free C++ identifier", k.Name)
	case k.Warps < 1 || 32*k.Warps > t.MaxThreads:
		return fmt.Errorf("kernel %s has %d warps a CTA, want 1 to %d on %s", k.Name, k.Warps, t.MaxThreads/32, t.Arch)
	case k.SharedBytes > t.SharedPerCTA:
		return fmt.Errorf("kernel %s uses %d bytes of shared memory, a CTA has %d on %s", k.Name, k.SharedBytes,
			t.SharedPerCTA, t.Arch)
	case k.ClusterSize > t.MaxCluster:
		return fmt.Errorf("kernel %s has clusters of %d CTAs, want at most %d on %s", k.Name, k.ClusterSize, t.MaxCluster,
			t.Arch)
	case k.ClusterSize > 1 && k.Grid%k.ClusterSize != 0:
		return fmt.Errorf("kernel %s has a grid of %d CTAs, no multiple of its clusters of %d", k.Name, k.Grid, k.ClusterSize)
	}
	for _, b := range k.Shareds() {
		if b.Offset < 0 || int64(b.Offset)+b.Bytes() > int64(k.SharedBytes) {
			return fmt.Errorf("%s: shared buffer %s at byte %d is not placed within the kernel's %d bytes", b.Pos, b, b.Offset,
				k.SharedBytes)
		}
		if b.Align > sharedAlign {
			return fmt.Errorf("%s: shared buffer %s wants alignment %d, the block of shared memory has %d", b.Pos, b, b.Align,
				sharedAlign)
		}
	}
	return nil
}

// sharedAlign is the alignment in bytes of a CTA's block of shared memory; the
// hardware places it at a multiple of 1024.
const sharedAlign = 1024
