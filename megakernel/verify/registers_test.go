package verify

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// registers is a kernel of several rows, three of whose warps are idle beside the producer's: the shrunk one has them,
// too, since its consumers are the real one's.
var registers = megakernel.Options{Tokens: 4, Weights: pipeline.FormatI4G128}

// Mistakes with the idle warps, and with the registers that they leave, are reported of the whole kernel.
func TestBrokenHandOversOfRegistersAreReported(t *testing.T) {
	for i, x := range []struct {
		name string
		edit func(*ir.Kernel) (*ir.Kernel, error)
		kind string
	}{
		{"idle warps leave before", inProducer(func(b *ir.Block, at int, working *ir.If) {
			working.Then.Stmts = slices.Insert(working.Then.Stmts, 0, b.Stmts[at])
			b.Stmts = slices.Delete(b.Stmts, at, at+1)
		}), "deadlock"},
		{"idle warps join a barrier", inProducer(func(b *ir.Block, at int, working *ir.If) {
			working.Else = &ir.Block{Stmts: []ir.Stmt{&ir.Instr{Op: ir.OpBarSync, Attr: ir.Attr{Imm: 1,
				N: 32 * megakernel.DefaultConsumers}}}}
		}), "data race"},
		{"idle warps stream", inProducer(func(b *ir.Block, _ int, working *ir.If) {
			n := slices.Index(b.Stmts, ir.Stmt(working))
			b.Stmts = slices.Concat(b.Stmts[:n], working.Then.Stmts, b.Stmts[n+1:])
		}), "mbarrier arrival overflow"},
		{"no registers are left", mutant("remove setmaxreg", "", "megakernel/assemble.go"), "deadlock"},
		{"the consumers give registers up", mutant("count setmaxreg: the other way", "", "megakernel/assemble.go"),
			"warpgroup apart"},
		{"the consumers want more than there are", mutant("count setmaxreg: 8 registers more", "", "megakernel/assemble.go"),
			"deadlock"},
	} {
		if i > 1 && !deep.On() {
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			c, err := models.Lookup("tiny")
			require.NoError(t, err)
			r, err := check(t.Context(), Request{Config: c, Options: registers, Seeds: 1, Steps: 2}, x.edit)
			require.NoError(t, err)
			require.NotEmpty(t, r.Findings)
			require.Contains(t, r.Equal, Fact{"roles", "consumers warps 0-7, producer warps 8-11"})
			require.Equal(t, x.kind, r.Findings[0].Kind, r.Findings[0].Text)
		})
	}
}

// inProducer edits the producers' role: its block, where it leaves registers, and what its first warp alone does.
func inProducer(edit func(b *ir.Block, at int, working *ir.If)) func(*ir.Kernel) (*ir.Kernel, error) {
	return func(k *ir.Kernel) (*ir.Kernel, error) {
		k, err := mutate.Clone(k), fmt.Errorf("no role whose warps leave registers to others")
		ir.Walk(k.Body, func(s ir.Stmt) bool {
			roles, ok := s.(*ir.Roles)
			if !ok {
				return true
			}
			for _, r := range roles.Roles {
				at := slices.IndexFunc(r.Body.Stmts, func(s ir.Stmt) bool {
					in, ok := s.(*ir.Instr)
					return ok && in.Op == ir.OpSetMaxReg && in.Attr.Imm == 0
				})
				working := slices.IndexFunc(r.Body.Stmts, func(s ir.Stmt) bool { _, ok := s.(*ir.If); return ok })
				if at >= 0 && working >= 0 {
					edit(r.Body, at, r.Body.Stmts[working].(*ir.If))
					err = nil
				}
			}
			return false
		})
		return k, err
	}
}
