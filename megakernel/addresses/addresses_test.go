package addresses_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/addresses"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// positions is what every kernel is proved for.
const positions = 1 << 20

func TestRegisteredModelsOfOneRow(t *testing.T) {
	for _, c := range models.All() {
		t.Run(c.Name, func(t *testing.T) {
			mk, err := megakernel.Build(c, megakernel.Options{})
			require.NoError(t, err)
			r := addresses.Check(mk, mk.IR, positions)
			require.Empty(t, r.Findings)
			require.Greater(t, r.Accesses, 300)
			require.Greater(t, r.Values, 300)
		})
	}
}

func TestTry(t *testing.T) {
	if os.Getenv("MODEL") == "" {
		t.Skip()
	}
	for _, name := range strings.Split(os.Getenv("MODEL"), ",") {
		c, err := models.Lookup(name)
		require.NoError(t, err)
		rows, _ := strconv.Atoi(os.Getenv("ROWS"))
		page, _ := strconv.Atoi(os.Getenv("PAGE"))
		var ks []*ir.Kernel
		o := megakernel.Options{Tokens: rows, Page: page, Attention: os.Getenv("ATT"), KV: tasks.KVType(os.Getenv("KV")), Launch: megakernel.Launching(os.Getenv("LAUNCH")), Selection: os.Getenv("SEL") != ""}
		mk, err := megakernel.Build(c, o)
		require.NoError(t, err)
		ks = append(ks, mk.IR)
		if mk.Graph != nil {
			ks = mk.Graph.Kernels
		}
		for _, k := range ks {
			start := time.Now()
			r := addresses.Check(mk, k, 1<<20)
			fmt.Println(name, k.Name, time.Since(start), r.Accesses, r.Values, len(r.Findings))
			for i, f := range r.Findings {
				if i < 60 {
					fmt.Println(f)
				}
			}
		}
	}
}
