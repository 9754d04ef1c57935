package emit

import (
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

func TestEveryOpHasExactlyOneSpelling(t *testing.T) {
	rows := ops()
	for _, op := range ir.AllOps() {
		r, n := rows[op], 0
		for _, set := range []bool{r.expr != nil, r.each != nil, r.stmt != nil} {
			if set {
				n++
			}
		}
		require.Equal(t, 1, n, "op %s has %d spellings in ops.go", op, n)
	}
}

func TestFixedHelpersAreInOrder(t *testing.T) {
	seen := map[string]int{}
	for _, h := range fixedHelpers() {
		require.NotContains(t, seen, h.name)
		seen[h.name] = h.rank
	}
	for _, h := range fixedHelpers() {
		for _, dep := range strings.Fields(h.deps) {
			rank, ok := seen[dep]
			require.True(t, ok, "%s needs %s, which does not exist", h.name, dep)
			require.Less(t, rank, h.rank, "%s is printed before %s, which it calls", h.name, dep)
		}
	}
}
