package verify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// accesses edits the loads or stores of a buffer that stand in a file of megakernel.
func accesses(op ir.Op, buffer, file string,
	edit func(k *ir.Kernel, in *ir.Instr)) func(*ir.Kernel) (*ir.Kernel, error) {
	return func(k *ir.Kernel) (*ir.Kernel, error) {
		k = mutate.Clone(k)
		found := 0
		ir.Walk(k.Body, func(s ir.Stmt) bool {
			in, ok := s.(*ir.Instr)
			if ok && in.Op == op && in.Mem[0].Buf.Name == buffer && strings.HasPrefix(in.Pos.Line, "megakernel/"+file) {
				edit(k, in)
				found++
			}
			return true
		})
		if found == 0 {
			return nil, fmt.Errorf("no access of %s in %s", buffer, file)
		}
		return k, nil
	}
}

// otherTable makes a load of a stop token read the plan table instead.
func otherTable(k *ir.Kernel, in *ir.Instr) {
	for _, b := range k.Globals() {
		if b.Name == "plan" {
			in.Mem[0].Buf = b
		}
	}
}

// runs makes a store of 0 one of 1.
func runs(_ *ir.Kernel, in *ir.Instr) {
	if v := in.Args[0]; v.Const && v.Bits == 0 {
		in.Args[0] = ir.ConstInt(ir.U32, 1)
	}
}

// A launch that ends before its last step is executed, of one row a step and of several: what is
// wrong there only is reported.
func TestMistakesOfLaunchesThatEndEarlyAreReported(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	mistakes := map[string]func(*ir.Kernel) (*ir.Kernel, error){
		"stop tokens are not looked at":            accesses(ir.OpLd, "ends", "", otherTable),
		"the producer is told that each step runs": accesses(ir.OpSt, "running", "assemble.go", runs),
		"the verdict of another step's parity": accesses(ir.OpLd, "stop_requested", "assemble.go",
			func(_ *ir.Kernel, in *ir.Instr) { in.Mem[0].Index = ir.ConstInt(ir.U32, 1) }),
	}
	for name, edit := range mistakes {
		for _, tokens := range []int{1, 2} {
			if !deep.On() && (name != "stop tokens are not looked at" || tokens == 1) {
				continue
			}
			t.Run(fmt.Sprintf("%s, %d rows", name, tokens), func(t *testing.T) {
				r, err := check(t.Context(), Request{Config: tiny, Options: megakernel.Options{Tokens: tokens}, Seeds: 1, Steps: 2},
					edit)
				require.NoError(t, err)
				require.NotEmpty(t, r.Findings)
			})
		}
	}
}

// Of tiny at eight rows a step every Go line runs that stands for a launch that is stopped or given up.
func TestLinesOfLaunchesThatEndEarlyRun(t *testing.T) {
	deep.Only(t)
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	r, err := Check(t.Context(), Request{Config: c, Options: megakernel.Options{Tokens: 8}, Seeds: 4, Steps: 2})
	require.NoError(t, err)
	require.NoError(t, r.Err())
	for _, m := range r.Coverage.Missing {
		require.NotRegexp(t, `^(megakernel|pipeline)/`, m.Pos.Line, "%v", m)
	}
}
