package dsl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Scopes of memory operations, fences and uniformity, narrowest first.
const (
	WarpScope = ir.Warp
	CTAScope  = ir.CTA
	GPUScope  = ir.GPU
	SysScope  = ir.Sys
)

// WarpSize is the number of lanes in a warp.
const WarpSize = 32

// Options describe the launch a kernel is built for.
type Options struct {
	Warps       int      // warps a CTA, 1 to 32
	Grid        int      // CTAs; 0 when the kernel takes any number
	Cluster     int      // CTAs a cluster; 0 or 1: none
	PerSM       int      // CTAs that registers are left for on an SM, of this kernel or of others; 0: 1
	SharedLimit int      // bytes of shared memory a CTA may use
	Doc         []string // lines for the head of the emitted file
}

// Kernel is a kernel under construction. One goroutine builds one kernel.
type Kernel struct {
	ir      *ir.Kernel
	cur     *ir.Block
	errs    []error
	left    map[*ir.Value]bool // operands of what folding dropped; see sweep
	names   map[string]ir.Pos  // of parameters and buffers
	helpers map[string]bool    // functions that here passes over

	role    string   // being built
	regions []string // being built, outermost first

	claiming bool        // what is made now only serves an assertion
	claimed  []*ir.Value // what was made so
}

// New starts an empty kernel. Name must be a C identifier.
func New(name string, o Options) *Kernel {
	k := &Kernel{ir: &ir.Kernel{
		Name: name, Doc: o.Doc, Warps: o.Warps, Grid: o.Grid, ClusterSize: o.Cluster, PerSM: o.PerSM,
		SharedLimit: o.SharedLimit, Body: &ir.Block{},
	}, left: map[*ir.Value]bool{}, helpers: map[string]bool{}, names: map[string]ir.Pos{}}
	k.cur = k.ir.Body
	if !isIdent(name) {
		k.errorf("kernel name %q is not a C identifier", name)
	}
	if o.Warps < 1 || o.Warps > 32 {
		k.errorf("kernel %s has %d warps, want 1 to 32", name, o.Warps)
	}
	return k
}

// Finish drops what folding left over, places the shared buffers, verifies
// the program and returns it. All mistakes come back together, joined: first
// those of building, then those of the finished program, each in the order of
// the program.
func (k *Kernel) Finish() (*ir.Kernel, error) {
	k.sweep()
	k.number()
	errs := slices.Clip(k.errs)
	layout := k.ir.LayoutShared()
	if layout != nil {
		errs = append(errs, layout)
	}
	for _, e := range ir.Errors(ir.Verify(k.ir)) {
		follows := len(k.errs) > 0 && (e.Kind == ir.KindHead || e.Kind == ir.KindUnused || e.Kind == ir.KindInit) ||
			layout != nil && e.Kind == ir.KindPlace
		if !follows { // from a mistake that is reported already
			errs = append(errs, e)
		}
	}
	if len(errs) > 0 {
		return nil, join(errs)
	}
	return k.ir, nil
}

// Warps is the number of warps a CTA.
func (k *Kernel) Warps() int { return k.ir.Warps }

// Err is the mistakes recorded so far, joined, or nil.
func (k *Kernel) Err() error { return join(k.errs) }

// join joins mistakes; one that a Go loop made again and again comes once.
func join(errs []error) error {
	seen := map[string]bool{}
	return errors.Join(slices.DeleteFunc(slices.Clone(errs), func(e error) bool {
		again := seen[e.Error()]
		seen[e.Error()] = true
		return again
	})...)
}

// Require records a mistake of the template's user when cond is false.
func (k *Kernel) Require(cond bool, format string, args ...any) {
	if !cond {
		k.errorf(format, args...)
	}
}

func (k *Kernel) errorf(format string, args ...any) {
	k.errs = append(k.errs, fmt.Errorf("%s: %s", k.here(), fmt.Sprintf(format, args...)))
}

// emit appends an instruction, computes its result types and returns it; nil
// when it was refused.
func (k *Kernel) emit(in *ir.Instr) *ir.Instr {
	in.Pos = k.here()
	for _, a := range in.Args {
		if a == nil {
			k.errs = append(k.errs, &ir.Error{Pos: in.Pos, Kind: ir.KindValue, What: in.Op.String(),
				Text: "an operand is a zero Val; make it with a Kernel"})
			return nil
		}
	}
	types, err := in.Op.Info().Sig(in)
	if err != nil {
		k.errs = append(k.errs, &ir.Error{Pos: in.Pos, Kind: ir.KindType, What: in.Op.String(), Text: err.Error()})
		return nil
	}
	for _, t := range types {
		in.Res = append(in.Res, k.value(t, in, nil))
	}
	k.cur.Stmts = append(k.cur.Stmts, in)
	return in
}

func (k *Kernel) value(t ir.Type, def *ir.Instr, loop *ir.For) *ir.Value {
	v := &ir.Value{ID: k.ir.NumValues, Type: t, Def: def, Loop: loop}
	if k.claiming {
		v.ID = -2
		k.claimed = append(k.claimed, v)
		return v
	}
	k.ir.NumValues++
	return v
}

// in builds a nested block.
func (k *Kernel) in(body func()) *ir.Block {
	outer := k.cur
	k.cur = &ir.Block{}
	defer func() { k.cur = outer }()
	body()
	return k.cur
}

func isIdent(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}
